"""`runs trace`: what the agent of a trial did, a line for each model call, tool call and message."""

from collections.abc import Iterator

from harbor_assets.domain.errors import NotFound
from harbor_assets.domain.publication import AGENT_VERSION_UNKNOWN as UNKNOWN
from harbor_assets.domain.traces import Span, TrialTrace
from harbor_assets.interfaces.cli.output import Output, command, duration, one_line, score
from harbor_assets.interfaces.cli.session import Session

WORDS_MAX = 160  # characters of what a span says; --json has them all
SPANS_SHOWN = 400  # of a trace, as lines; --json has them all
_DEEP = 6  # levels that are indented


def print_trace(session: Session, run_id: str, task: str, k: int, out: Output) -> None:
    """Print it. Raises `NotFound` for a task that the run does not have."""
    trace = session.evaluator.runs.trace(run_id, _index(session, run_id, task), k=k)
    if out.json:
        out.document(trace.model_dump(mode="json"))
        return
    out.line(f"{trace.trial_id}: {trace.outcome} ({trace.reason}), reward {score(trace.reward)}")
    agent = " ".join(one_line(word) for word in (trace.agent_name, trace.agent_version) if word and word != UNKNOWN)
    out.line(f"Agent {agent}, model {one_line(trace.model_name) if trace.model_name else '-'}; {_used(trace)}")
    if trace.error_type:
        out.line(f"Error {trace.error_type}: {one_line((trace.error_message or '')[:WORDS_MAX])}")
    for said in trace.unreadable:
        out.line(one_line(said))
    out.line()
    spans = trace.spans[:SPANS_SHOWN]
    out.table(("KIND", "NAME", "AT", "TOKENS", "SAID"), list(_rows(spans)))
    if len(trace.spans) > SPANS_SHOWN:
        words = ("runs", "trace", run_id, task, "--k", str(k), "--json", *session.own_words())
        out.line(f"… and {len(trace.spans) - SPANS_SHOWN} more; all of them: {command(*words)}")


def _index(session: Session, run_id: str, task: str) -> int:
    if task.isascii() and task.isdigit():
        return int(task)
    for each in session.evaluator.runs.tasks(run_id, page_size=1000):
        if task in (each.task, each.native_task_id, each.native_task_id.rpartition("/")[2]):
            return each.index
    raise NotFound(f"Run {run_id} has no task '{task[:80]}'; its tasks: {command('runs', 'tasks', run_id)}")


def _used(trace: TrialTrace) -> str:
    cached = "" if trace.cached_tokens is None else f" ({trace.cached_tokens} cached)"
    told = [
        f"{_number(trace.prompt_tokens)} tokens in{cached}, {_number(trace.completion_tokens)} out",
        f"cost {'unknown' if trace.cost_usd is None else f'${trace.cost_usd:.4f}'}",
    ]
    if trace.runtime_sec is not None:
        told.append(duration(trace.runtime_sec))
    return "; ".join(told)


def _rows(spans: tuple[Span, ...]) -> Iterator[tuple[str, str, str, str, str]]:
    depths: dict[str, int] = {}
    start = next((span.started_at for span in spans if span.started_at), None)
    for span in spans:
        depth = depths.get(span.parent_span_id or "", -1) + 1
        depths[span.span_id] = depth
        after = (span.started_at - start).total_seconds() if span.started_at and start else None
        both = (span.prompt_tokens, span.completion_tokens)
        yield (
            "  " * min(depth, _DEEP) + span.kind,
            span.name,
            "-" if after is None else f"+{after:.1f} s",
            "-" if both == (None, None) else "/".join(map(_number, both)),
            _said(span),
        )


def _said(span: Span) -> str:
    """What went in and what came out, as far as a line holds it."""
    parts = [one_line(text[: 2 * WORDS_MAX])[:WORDS_MAX] for text in (span.input, span.output) if text]
    return " -> ".join([*parts, *(["(error)"] if span.status == "error" else [])]) or "-"


def _number(value: int | None) -> str:
    return "?" if value is None else str(value)
