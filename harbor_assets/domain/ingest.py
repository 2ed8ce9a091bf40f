"""Traces as others send them, as sessions: an ATIF trajectory is a whole session, OTLP spans come in pieces. Pure."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError, model_validator

from harbor_assets.domain.atif import read_atif
from harbor_assets.domain.digests import digest_of
from harbor_assets.domain.errors import Malformed, Refused
from harbor_assets.domain.experiments import (
    DataType,
    EvaluatorResult,
    Label,
    Name,
    Session,
    SessionId,
    SessionStatus,
)
from harbor_assets.domain.otlp import attributes_of, read_otlp, single_root
from harbor_assets.domain.tasks import Body
from harbor_assets.domain.traces import Span, usage_of

RESULTS_MAX: Final = 1_000  # rewards of one trajectory
_EVALUATION, _TEST_CASE = ("nemo.experiment.id", "nemo.evaluation.id"), ("nemo.test_case.id",)
_SESSION: Final = ("gen_ai.conversation.id", "session.id")
_AGENT, _VERSION = ("gen_ai.agent.name", "service.name"), ("gen_ai.agent.version", "service.version")
_IDS: Final = TypeAdapter[str](SessionId)


# --- ATIF ---------------------------------------------------------------------------------------------------------


class EvaluationContext(BaseModel):
    """Which evaluation a trajectory belongs to, by its name, and which test case it is of. Others are dropped."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    evaluation_id: Name
    test_case_id: Label | None = None


class Agent(BaseModel):
    """The agent of a trajectory; further members are kept out of it."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str = Field(min_length=1)
    version: str
    model_name: str | None = None


class AtifTrajectory(Body):
    """A trajectory in the Agent Trajectory Interchange Format, and the evaluation it belongs to.

    `extra.verifier_result` may hold `rewards`, a number for each criterion, or a bare `score`: each becomes the result
    of an evaluator.
    """

    evaluation_context: EvaluationContext
    schema_version: Annotated[str, Field(pattern=r"^ATIF-v1\.[0-9]+$")]
    agent: Agent
    session_id: SessionId | None = None
    trajectory_id: str | None = None
    steps: list[dict[str, JsonValue]] = Field(min_length=1)
    final_metrics: dict[str, JsonValue] | None = None
    notes: str | None = None
    extra: dict[str, JsonValue] | None = None
    continued_trajectory_ref: str | None = None
    subagent_trajectories: list[dict[str, JsonValue]] | None = None

    @model_validator(mode="before")
    @classmethod
    def _older(cls, value: Any) -> Any:
        """`experiment_context`, the older word, names the evaluation where the newer one does not."""
        if not isinstance(value, dict) or "experiment_context" not in value:
            return value
        body = dict(value)
        older = body.pop("experiment_context")
        if isinstance(older, dict) and "evaluation_context" not in body:
            body["evaluation_context"] = {**older, "evaluation_id": older.get("experiment_id")}
        return body


@dataclass(frozen=True, slots=True)
class Ingested:
    """A session as it is stored, and the results that came with it."""

    session: Session
    spans: Sequence[Span]
    results: Sequence[EvaluatorResult] = ()


def atif_session(body: AtifTrajectory, *, now: datetime) -> Ingested:
    """A trajectory as a session. Without a `session_id` its content names it, so that sending it again replaces it."""
    document = body.model_dump(mode="json", exclude={"evaluation_context"}, exclude_none=True)
    found = read_atif(document)
    if found is None:
        raise Malformed("The trajectory cannot be read: it needs a schema_version 'ATIF-v1...' and at least one step")
    root = found.spans[0]
    session_id = body.session_id or f"atif-{digest_of(document)[:32]}"
    session = Session(
        session_id=session_id,
        evaluation=body.evaluation_context.evaluation_id,
        test_case_name=body.evaluation_context.test_case_id or "",
        agent_name=found.agent_name,
        agent_version=found.agent_version,
        model_name=found.model_name,
        started_at=root.started_at or now,
        latency_ms=_milliseconds(root),
        final_message=found.final_message,
        **usage_of(found.spans).model_dump(),
    )
    return Ingested(session, found.spans, list(_rewards(body.extra or {}, session_id, root.span_id)))


def _rewards(extra: Mapping[str, JsonValue], session_id: str, span_id: str) -> Iterator[EvaluatorResult]:
    verified = extra.get("verifier_result")
    if not isinstance(verified, dict):
        return
    rewards = verified.get("rewards")
    if not isinstance(rewards, dict):
        rewards = {"reward": verified["score"]} if "score" in verified else {}
    if len(rewards) > RESULTS_MAX:
        raise Refused(f"extra.verifier_result.rewards has {len(rewards)} entries, at most {RESULTS_MAX} are kept")
    for name, value in rewards.items():
        if isinstance(value, bool):
            kind, number = DataType.BOOLEAN, float(value)
        elif isinstance(value, int | float) and math.isfinite(value):
            kind, number = DataType.NUMERIC, float(value)
        else:
            raise Refused(f"extra.verifier_result.rewards.{name[:80]} is no number; leave out what was not measured")
        try:
            yield EvaluatorResult(session_id=session_id, span_id=span_id, name=name, data_type=kind, value=number)
        except ValidationError:
            raise Refused(
                f"'{name[:80]}' cannot be the name of an evaluator; it has 1 to 255 plain characters"
            ) from None


def _milliseconds(span: Span | None) -> float | None:
    if span is None or span.started_at is None or span.ended_at is None:
        return None
    return max(0.0, (span.ended_at - span.started_at).total_seconds() * 1000)


# --- OTLP ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Piece:
    """The spans that one export holds of a session. `evaluation` is None where none of them says whose it is."""

    session_id: str
    evaluation: str | None
    spans: Sequence[Span]
    said: Mapping[str, Any]
    """Members of the session that the spans say something of."""

    def session(self, evaluation: str, *, now: datetime) -> Session:
        """The session, with only those members set that the piece knows. Raises `ValidationError`."""
        begun = [span.started_at for span in self.spans if span.started_at is not None]
        return Session.model_validate(
            {
                "session_id": self.session_id,
                "evaluation": evaluation,
                "started_at": min(begun, default=now),
                **self.said,
            }
        )


def otlp_pieces(documents: Iterable[Mapping[str, Any]]) -> list[Piece]:
    """What export requests (`resourceSpans`) hold, by session.

    A session is named by an attribute of a span of the trace, or of its resource, else it is the trace itself.
    """
    traces: dict[str, list[tuple[Mapping[str, Any], Mapping[str, Any]]]] = {}
    for document in documents:
        for resource in _dicts(document.get("resourceSpans")):
            about = _dict(resource.get("resource")).get("attributes")
            common = attributes_of(about)
            for scope in _dicts(resource.get("scopeSpans")):
                for span in _dicts(scope.get("spans")):
                    has = {**common, **attributes_of(span.get("attributes"))}
                    traces.setdefault(str(span.get("traceId") or ""), []).append((span, has))
    sessions: dict[str, list[tuple[Mapping[str, Any], Mapping[str, Any]]]] = {}
    for trace, held in traces.items():
        sessions.setdefault(_said(held, _SESSION) or trace, []).extend(held)
    return [_piece(session, held) for session, held in sessions.items()]


def session_id_problem(text: str) -> str | None:
    """Why a text cannot be the id of a session, or None."""
    try:
        _IDS.validate_python(text)
    except ValidationError:
        return "is no id of a session: letters, digits and _-.:@+= are, at most 400 of them"
    return None


def _piece(session_id: str, held: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Piece:
    spans = read_otlp([{"resourceSpans": [{"scopeSpans": [{"spans": [span for span, _ in held]}]}]}])
    root = single_root(spans)
    whole = root if root is not None and root.parent_span_id is None else None
    said: dict[str, Any] = {
        "test_case_name": _said(held, _TEST_CASE),
        "agent_name": _said(held, _AGENT),
        "agent_version": _said(held, _VERSION),
        "model_name": next((span.model_name for span in spans if span.model_name), None),
        "latency_ms": _milliseconds(whole),
        "final_message": whole.output if whole else None,
        "status": SessionStatus.ERROR if whole and whole.status == "error" else None,
    }
    known = {name: value for name, value in said.items() if value is not None}
    return Piece(session_id, _said(held, _EVALUATION), spans, known)


def _said(held: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], names: Sequence[str]) -> str | None:
    """The first attribute of these names; the outermost span's where several have one."""
    ranked = sorted(held, key=lambda each: bool(each[0].get("parentSpanId")))
    for name in names:
        for _, has in ranked:
            if isinstance(value := has.get(name), str) and value:
                return value
    return None


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
