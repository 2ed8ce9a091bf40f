"""What readers of traces share: limits for what strangers write, and counts of what was left out because of them."""

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any, Final

from harbor_assets.domain.text import visible
from harbor_assets.domain.traces import ID_MAX, SPANS_MAX, TEXT_MAX, TOKENS_MAX, Span, SpanKind, Usage, cut

DOCUMENT_MAX_BYTES: Final = 32 * 1024 * 1024  # a larger trace is kept as evidence and not read
TOTAL_TEXT_MAX: Final = 8_000_000  # characters of all the texts of one trace
NAME_MAX: Final = 200
ATTRIBUTE_MAX: Final = 4_000  # characters of one attribute
ATTRIBUTES_MAX: Final = 60  # of one span
_AMOUNT_MAX: Final = 1e12  # US dollars of one call
_YEAR_MAX: Final = 2200


class Reading:
    """Spans as they are read, within the limits. What did not fit is counted in `left_out`, by kind."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.left_out: Counter[str] = Counter()
        self._room = TOTAL_TEXT_MAX
        self._ids: set[str] = set()

    def add(
        self,
        span_id: str,
        *,
        name: str,
        kind: SpanKind,
        parent: str | None = None,
        usage: Usage | None = None,
        source: str | None = None,
        result: str | None = None,
        model: str | None = None,
        attributes: dict[str, str] | None = None,
        failed: bool = False,
        started_at: datetime | None = None,
        ended_at: datetime | None = None,
    ) -> str | None:
        """Keep a span with its input `source` and output `result`; None if there is no room, or its id was there."""
        if len(self.spans) >= SPANS_MAX or span_id in self._ids:
            self.left_out["spans"] += 1
            return None
        self._ids.add(span_id)
        about = {key: self.text(value, ATTRIBUTE_MAX) or "" for key, value in (attributes or {}).items()}
        used = usage or Usage()
        self.spans.append(
            Span(
                span_id=span_id,
                parent_span_id=parent,
                name=label(name),
                kind=kind,
                status="error" if failed else "ok",
                started_at=started_at,
                ended_at=ended_at,
                input=self.text(source),
                output=self.text(result),
                model_name=label(model) if model else None,
                attributes=about,
                **used.model_dump(),
            )
        )
        return span_id

    def text(self, value: str | None, limit: int = TEXT_MAX) -> str | None:
        """A text as far as there is room for it; what is cut off is counted."""
        if value is None:
            return None
        most = min(limit, self._room)
        if len(value) > most:
            self.left_out["characters"] += len(value) - most
        self._room -= min(len(value), most)
        return cut(value, most)

    def whole(self, value: Any) -> int | None:
        """A number of tokens; None, and counted, if it is none that can be counted with."""
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= TOKENS_MAX:
            return value
        self.left_out["numbers"] += value is not None
        return None

    def amount(self, value: Any) -> float | None:
        """A sum of money; as `whole`. An unknown cost is None, never 0."""
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _AMOUNT_MAX:
            return float(value)
        self.left_out["numbers"] += value is not None
        return None

    def said(self) -> dict[str, str]:
        """What was left out, as attributes of a root span."""
        return {f"{what}_left_out": str(number) for what, number in sorted(self.left_out.items()) if number}


def label(text: str, limit: int = NAME_MAX) -> str:
    """A name of a stranger on one line."""
    return visible(text[:limit])[:limit]


def identity(text: str) -> str:
    """An id of a stranger, as a span may have it."""
    return visible(text)[:ID_MAX] or "-"


def compact(value: Any) -> str:
    """A value as JSON on one line; a text as it is."""
    try:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return "(nested too deep to be shown)"


def moment(text: Any) -> datetime | None:
    """An ISO 8601 time; None if it is none. Without an offset it is taken for UTC."""
    if not isinstance(text, str) or len(text) > 64:
        return None
    try:
        found = datetime.fromisoformat(text)
        found = (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return believable(found)


def believable(at: datetime) -> datetime | None:
    """A moment with which can be reckoned; None for what no clock of an agent showed."""
    return at if 1970 <= at.year <= _YEAR_MAX else None
