"""Sessions and their traces as they are put together: rules that every catalog shares."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

from harbor_assets.domain.errors import Refused
from harbor_assets.domain.experiments import EvaluatorResult, Session
from harbor_assets.domain.statistics import mean
from harbor_assets.domain.traces import SPANS_MAX, Span, Usage, usage_of


def check_spans(spans: Sequence[Span]) -> None:
    """Raises `Refused` for more spans than a trace may have, and for two of one id."""
    if len(spans) > SPANS_MAX:
        raise Refused(f"The trace has {len(spans)} spans, at most {SPANS_MAX} are kept; leave out the innermost")
    seen = set[str]()
    for span in spans:
        if span.span_id in seen:
            raise Refused(f"Two spans of the trace have the id '{span.span_id[:80]}'; ids of spans are their own")
        seen.add(span.span_id)


RESULTS_MAX: Final = 1_000  # of one session: every list of sessions has all of them


def check_results(session_id: str, results: Sequence[EvaluatorResult]) -> None:
    """Raises `Refused` for a result of another session, and for too many."""
    check_number(len(results))
    for result in results:
        if result.session_id != session_id:
            raise Refused(f"The result '{result.name[:80]}' is of session '{result.session_id[:80]}', not of this one")


def check_number(results: int) -> None:
    """Raises `Refused` for more results than a session may have."""
    if results > RESULTS_MAX:
        raise Refused(f"A session has at most {RESULTS_MAX} results; put them into fewer")


def extended(
    old: Session | None, new: Session, old_spans: Sequence[Span], new_spans: Sequence[Span]
) -> tuple[Session, list[Span]]:
    """A session whose trace comes in several pieces, with one piece more.

    Members that `new` has set stand in the place of the old ones; usage is that of all spans, unless `new` says it.
    """
    by_id = {span.span_id: span for span in (*old_spans, *new_spans)}
    spans = sorted(by_id.values(), key=lambda span: (span.started_at is None, span.started_at, span.span_id))
    used = usage_of(spans)
    members = {name: getattr(new, name) for name in new.model_fields_set}
    found = (old or new).model_copy(update=members)
    if old is not None and old.started_at < found.started_at:
        found = found.model_copy(update={"started_at": old.started_at})
    usage = {
        name: getattr(used, name)
        for name in Usage.model_fields
        if name not in new.model_fields_set and getattr(used, name) is not None
    }
    return found.model_copy(update=usage), spans


def result_id(workspace: str, result: EvaluatorResult) -> str:
    """The id of a result: the same for the same workspace, session, span and name."""
    parts = (workspace, result.session_id, result.span_id, result.name)
    text = "".join(f"{len(part)}:{part}" for part in parts)  # with lengths, no part ends where another could begin
    return f"evaluator-result-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def scores_of(results: Iterable[EvaluatorResult]) -> dict[str, float]:
    """The mean of each evaluator's numbers."""
    values: dict[str, list[float]] = {}
    for result in results:
        if result.value is not None:
            values.setdefault(result.name, []).append(result.value)
    found = {name: mean(held) for name, held in sorted(values.items())}
    return {name: value for name, value in found.items() if value is not None}
