"""The trace of a session: what an agent did, as a tree of spans, and what it used, counted once.

Texts of strangers: cut to a length, kept as they are, shown with care by whoever shows them.
"""

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

SPANS_MAX: Final = 20_000  # of one session
TEXT_MAX: Final = 64_000  # characters of one span's input or output
ID_MAX: Final = 400
TOKENS_MAX: Final = 2**53  # of one number: what every reader of JSON takes
_CUT: Final = "… (cut, {} characters)"


class SpanKind(StrEnum):
    """`message`: what a user or the system said; `gateway`: a model call as the gateway saw it."""

    AGENT, MESSAGE, MODEL, TOOL, GATEWAY, OTHER = "agent", "message", "model", "tool", "gateway", "other"


class Usage(BaseModel):
    """Tokens and cost in US dollars; None is unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt_tokens: Annotated[int, Field(ge=0, le=TOKENS_MAX)] | None = None
    completion_tokens: Annotated[int, Field(ge=0, le=TOKENS_MAX)] | None = None
    cached_tokens: Annotated[int, Field(ge=0, le=TOKENS_MAX)] | None = None
    cost_usd: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None

    @property
    def known(self) -> bool:
        return any(getattr(self, name) is not None for name in Usage.model_fields)


class Span(Usage):
    """One thing an agent did. Spans of a session have ids of their own; `parent_span_id` is that of the span around it.

    `status`: whether it failed. `attributes` are whatever else its producer says of it.
    """

    span_id: str = Field(min_length=1, max_length=ID_MAX)
    parent_span_id: str | None = Field(default=None, max_length=ID_MAX)
    name: str = Field(default="", max_length=1000)
    kind: SpanKind = SpanKind.OTHER
    status: Annotated[str, Field(pattern="^(ok|error)$")] = "ok"
    started_at: datetime | None = None
    ended_at: datetime | None = None
    input: str | None = Field(default=None, max_length=TEXT_MAX + 100)
    output: str | None = Field(default=None, max_length=TEXT_MAX + 100)
    model_name: str | None = Field(default=None, max_length=400)
    attributes: dict[str, str] = {}

    @property
    def usage(self) -> Usage:
        return Usage(**{name: getattr(self, name) for name in Usage.model_fields})


class TrialTrace(Usage):
    """A trial's trace with what it came to. Usage is the trial's, each token and dollar once; None is unknown.

    `spans` begin with the one around all others; texts are those of agents and models, cut to a length. `unreadable`: a
    sentence for each trajectory in the trial's folder that could not be read.
    """

    run_id: str
    index: int
    task: str
    k: int
    trial_id: str
    outcome: str
    reason: str
    reward: float | None = None
    agent_name: str | None = None
    agent_version: str | None = None
    model_name: str | None = None
    runtime_sec: float | None = None
    error_type: str | None = None
    error_message: str | None = None
    final_message: str | None = None
    spans: tuple[Span, ...] = ()
    unreadable: tuple[str, ...] = ()


def cut(text: str | None, limit: int = TEXT_MAX) -> str | None:
    """At most `limit` characters of a text and how many there were; no unpaired surrogates."""
    if text is None:
        return None
    short = text if len(text) <= limit else text[:limit] + _CUT.format(len(text))
    return short if short.isascii() else short.encode("utf-8", "replace").decode()


def usage_of(spans: Sequence[Span]) -> Usage:
    """What a session used, each token and dollar once.

    Gateway spans know best: they hold what the provider reported. Without any, a span with usage stands for all the
    spans below it: an agent's own total is not added to that of its model calls.
    """
    gateway = [span for span in spans if span.kind is SpanKind.GATEWAY and span.usage.known]
    return added(gateway or _topmost(spans))


def added(parts: Iterable[Usage]) -> Usage:
    """The sum of each member over the parts that know it; None where none does, and for one that no number holds."""
    found: dict[str, int | float] = {}
    for part in parts:
        for name in Usage.model_fields:
            value = getattr(part, name)
            if value is not None:
                found[name] = found.get(name, 0) + value
    most = {"cost_usd": sys.float_info.max}
    return Usage.model_validate({name: sum_ for name, sum_ in found.items() if sum_ <= most.get(name, TOKENS_MAX)})


def _topmost(spans: Sequence[Span]) -> list[Span]:
    by_id = {span.span_id: span for span in spans}
    covered: dict[str, bool] = {}  # whether a span, or one around it, has usage

    def is_covered(at: str | None) -> bool:
        path: list[str] = []
        answer = False
        while at is not None and at in by_id and at not in path:
            if at in covered:
                answer = covered[at]
                break
            path.append(at)
            if by_id[at].usage.known:
                answer = True
                break
            at = by_id[at].parent_span_id
        covered.update(dict.fromkeys(path, answer))
        return answer

    return [span for span in spans if span.usage.known and not is_covered(span.parent_span_id)]
