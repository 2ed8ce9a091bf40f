"""A trace as a page shows it: its spans in order, some at a time, each as deep as it lies."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harbor_assets.domain.traces import Span

STEPS_PAGE: Final = 100
DEPTH_MAX: Final = 4  # deeper ones stand no further in
_FIRST_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Step:
    """A span with its number from 1 and its depth below the one around all others."""

    number: int
    depth: int
    span: Span


class Steps:
    """Spans from `first` on, without the one around all others, which the page tells in its own words."""

    def __init__(self, spans: Sequence[Span], first: int) -> None:
        self.root = spans[0]
        self.first = first
        self.total = len(spans) - 1
        self._spans = spans

    @property
    def shown(self) -> Iterator[Step]:
        """Those of this page."""
        depths: dict[str, int] = {self.root.span_id: 0}
        for number, span in enumerate(self._spans[1 : self.first + STEPS_PAGE], start=1):
            depth = depths[span.span_id] = depths.get(span.parent_span_id or "", 0) + 1
            if number >= self.first:
                yield Step(number, min(depth, DEPTH_MAX), span)

    @property
    def last(self) -> int:
        """The number of the last one on this page."""
        return min(self.total, self.first + STEPS_PAGE - 1)

    @property
    def earlier(self) -> int | None:
        return max(1, self.first - STEPS_PAGE) if self.first > 1 else None

    @property
    def later(self) -> int | None:
        return self.first + STEPS_PAGE if self.first + STEPS_PAGE <= self.total else None


def first_of(query: Mapping[str, str]) -> int:
    """Which step is asked for first; 1 where that is no number."""
    text = query.get("step", "")
    return min(max(1, int(text)), _FIRST_MAX) if text.isascii() and text.isdigit() and len(text) < 10 else 1
