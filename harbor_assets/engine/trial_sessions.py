"""From an outcome row to what an Experiment shows of the trial: a session, its trace, and the results of its metrics.

Pure; the same row and trace give the same, so that what is published again replaces what was there. Only a scored
trial has results: one that infrastructure or a verifier failed has its error, and never a 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import ValidationError

from harbor_assets.domain.atif import ROOT, Trajectory
from harbor_assets.domain.bundle import Diagnostic, Score
from harbor_assets.domain.credentials import looks_like_key
from harbor_assets.domain.digests import digest_of
from harbor_assets.domain.experiments import DataType, EvaluatorResult, Session, SessionStatus
from harbor_assets.domain.names import NAME_MAX
from harbor_assets.domain.outcomes import Outcome, TrialOutcome
from harbor_assets.domain.publication import AGENT_VERSION_UNKNOWN, Publication
from harbor_assets.domain.runs import Run
from harbor_assets.domain.text import visible, whole
from harbor_assets.domain.traces import Span, SpanKind, Usage
from harbor_assets.engine.bundle_rows import BundleRows

LABEL_MAX = 400
MESSAGE_MAX = 10_000  # characters of an error, a comment or the agent's last words
UNSEEN = "(left out: it begins as a key does)"
DIGEST = "outcome_digest"  # of a session's metadata: tells whether the row it was made of is the one of now


@dataclass(frozen=True, slots=True)
class TrialSession:
    """A trial as it is published. `skipped`: what no result could be made of, and why."""

    session: Session
    spans: Sequence[Span]
    results: Sequence[EvaluatorResult]
    skipped: Sequence[str] = ()


def session_id(row: TrialOutcome) -> str:
    """The session of a trial: the same whoever publishes it, however often."""
    return f"{row.run_id}:{row.trial_id}"


def row_digest(row: TrialOutcome) -> str:
    """What a published session is compared by with the row of now."""
    return digest_of(row.model_dump(mode="json"))


def trial_session(
    run: Run, row: TrialOutcome, made: BundleRows, publication: Publication, trajectory: Trajectory | None
) -> TrialSession:
    """A trial as it is published. `made`: of the rows of its task; `trajectory`: what the agent left, if it did."""
    started = row.tries[-1].start if row.tries else run.started_at or run.created_at
    seconds = row.measurements.runtime_sec
    spans = _spans(row, publication, trajectory, started, seconds)
    used = _measured(row)  # not the trace's: every place is to name the same figures
    kind, message = _error(row)
    # A trajectory that names another agent than the one that was asked for is still of that one.
    version = trajectory.agent_version if trajectory and publication.agent_version == AGENT_VERSION_UNKNOWN else None
    session = Session(
        session_id=session_id(row),
        evaluation=publication.evaluation,
        test_case_name=_label(made.ids[row.index]),
        agent_name=_label(publication.agent_name),
        agent_version=_label(version or publication.agent_version),
        model_name=_label(trajectory.model_name) if trajectory and trajectory.model_name else None,
        status=SessionStatus.ERROR if kind else SessionStatus.OK,
        started_at=started,
        latency_ms=None if seconds is None else seconds * 1000,
        **used.model_dump(),
        error_type=kind,
        error_message=message,
        final_message=_short(trajectory.final_message) if trajectory else None,
        metadata=shown(
            {
                "run_id": row.run_id,
                "trial_id": row.trial_id,
                "task": row.task,
                "task_index": str(row.index),
                "task_ref": row.task_ref,
                "attempt": str(row.k),
                "outcome": row.outcome.value,
                "reason": row.reason.value,
                "trial_key": row.trial_key,
                DIGEST: row_digest(row),
            }
        ),
    )
    results, skipped = _results(session.session_id, spans[0].span_id, made.score(row))
    return TrialSession(session, spans, results, skipped)


def _spans(
    row: TrialOutcome,
    publication: Publication,
    trajectory: Trajectory | None,
    started: datetime,
    seconds: float | None,
) -> list[Span]:
    """The trace. Without a trajectory it is one span of the agent, with what it used."""
    ended = None if seconds is None else started + timedelta(seconds=seconds)
    if trajectory is None:
        root = Span(
            span_id=ROOT,
            name=_label(publication.agent_name),
            kind=SpanKind.AGENT,
            status="error" if row.error else "ok",
            started_at=started,
            ended_at=ended,
            **_measured(row).model_dump(),
        )
        return [root]
    first, *rest = trajectory.spans
    begins = first.started_at or started
    root = first.model_copy(
        update={
            "started_at": begins,
            "ended_at": first.ended_at if seconds is None else begins + timedelta(seconds=seconds),
            "status": "error" if row.error else first.status,
        }
    )
    return [root, *rest]


def _measured(row: TrialOutcome) -> Usage:
    used = row.measurements
    return Usage(
        prompt_tokens=used.prompt_tokens,
        completion_tokens=used.completion_tokens,
        cached_tokens=used.cache_read_tokens,
        cost_usd=used.cost_usd,
    )


def _error(row: TrialOutcome) -> tuple[str | None, str | None]:
    """Type and message of what went wrong. A trial without a score has its reason for a type."""
    if row.outcome is Outcome.SCORED:
        return (_label(row.error.type), _short(row.error.message)) if row.error else (None, None)
    return row.reason.value, _short(row.message or (row.error.message if row.error else None))


def _results(session: str, span: str, score: Score) -> tuple[list[EvaluatorResult], list[str]]:
    found: list[EvaluatorResult] = []
    skipped: list[str] = []
    for output in score.outputs:  # none of a trial without a score
        name = f"{score.metric_type}.{output.name}"
        value = output.value
        if len(name) > NAME_MAX or not name.isprintable():
            skipped.append(f"{visible(name[:LABEL_MAX])}: its name cannot be that of an evaluator")
            continue
        try:
            found.append(
                EvaluatorResult.model_validate(
                    {
                        "session_id": session,
                        "span_id": span,
                        "name": name,
                        **_value(value),
                        "comment": _comment(score.diagnostics, output.name),
                    }
                )
            )
        except ValidationError:
            skipped.append(f"{name}: it is no finite number")
    return found, skipped


def _value(value: object) -> dict[str, object]:
    if isinstance(value, bool):
        return {"data_type": DataType.BOOLEAN, "value": float(value)}
    if isinstance(value, int | float):
        return {"data_type": DataType.NUMERIC, "value": float(value)}
    return {"data_type": DataType.TEXT, "string_value": whole(str(value))[:MESSAGE_MAX]}


def _comment(diagnostics: Sequence[Diagnostic], output: str) -> str | None:
    """What was said of this output, else the first that was said of none."""
    of_it = (each.message for each in diagnostics if each.details.get("output") == output)
    of_none = (each.message for each in diagnostics if "output" not in each.details)
    return _short(next(of_it, None) or next(of_none, None))


def shown(metadata: Mapping[str, str]) -> dict[str, str]:
    """Metadata as a catalog takes it. A name may begin as keys of services do (`sk-learn-1`), which no record may."""
    return {name: UNSEEN if looks_like_key(value) else whole(value) for name, value in metadata.items()}


def _label(text: str) -> str:
    return visible(text)[:LABEL_MAX]


def _short(text: str | None) -> str | None:
    if text is None:
        return None
    more = f"… (cut, {len(text)} characters)" if len(text) > MESSAGE_MAX else ""
    return whole(text[:MESSAGE_MAX]) + more
