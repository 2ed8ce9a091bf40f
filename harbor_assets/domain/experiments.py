"""Experiments: what is sent, what is kept, what is answered. The shapes are the API's contract.

An EXPERIMENT is a container, one leaderboard; an EVALUATION is one run in it, one row; a SESSION is one trial of that
run, with its trace (`traces.py`) and the results that evaluators gave for it. Figures of an evaluation follow from its
sessions (`rollups.py`).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, Field, JsonValue, model_validator

from harbor_assets.domain.errors import Refused
from harbor_assets.domain.evaluation_lists import SORT_MAX, SORT_PATTERN, SortBy
from harbor_assets.domain.filters import Fact
from harbor_assets.domain.names import NAME_MAX
from harbor_assets.domain.rollups import Rollup
from harbor_assets.domain.tasks import Body
from harbor_assets.domain.text import quoted
from harbor_assets.domain.traces import TOKENS_MAX, cut

LABEL_MAX: Final = 400  # characters of a test case or a session's id; more is above what an index of Postgres holds
TEXT_MAX: Final = 100_000  # characters of a description, a summary, a root cause
BRIEF_MAX: Final = 1_000  # characters of an error or a comment in a list
METADATA_MAX: Final = 200  # keys of one record
VALUE_MAX: Final = 10_000  # characters of one value
LAYOUT_MAX: Final = 100_000  # characters of a column layout as JSON
EXPERIMENTS_MAX: Final = 100  # that one evaluation may be in
SESSION_PATTERN: Final = r"^[\w\-.:@+=]+$"
_DELETED: Final = ".deleted."


def _plain(text: str) -> str:
    if not text.isprintable():
        raise ValueError("it holds characters that cannot be printed")
    return text


Label = Annotated[str, Field(max_length=LABEL_MAX), AfterValidator(_plain)]
Name = Annotated[str, Field(min_length=1, max_length=NAME_MAX)]
SessionId = Annotated[str, Field(min_length=1, max_length=LABEL_MAX, pattern=SESSION_PATTERN)]
Text = Annotated[str, Field(max_length=TEXT_MAX)]
Value = Annotated[str, Field(max_length=VALUE_MAX)]
Metadata = Annotated[
    dict[Annotated[str, Field(min_length=1, max_length=NAME_MAX)], Value], Field(max_length=METADATA_MAX)
]


# --- experiments --------------------------------------------------------------------------------------------------


class Pareto(Body):
    """The two figures that an experiment's plot of trade-offs shows, in the words of sorting."""

    x_metric: str = Field(max_length=SORT_MAX)
    y_metric: str = Field(max_length=SORT_MAX)


def _layout(value: JsonValue) -> JsonValue:
    if len(repr(value)) > LAYOUT_MAX:
        raise ValueError(f"a column layout has at most {LAYOUT_MAX} characters")
    return value


class ExperimentContent(Body):
    """What can be said of an experiment, and changed later."""

    description: Text | None = None
    insight_id: Label | None = None
    summary: Text | None = None
    metadata: Metadata | None = None
    default_sort: Annotated[str, Field(max_length=SORT_MAX, pattern=SORT_PATTERN)] = "-created_at"
    pareto: Pareto | None = None
    column_layout: Annotated[JsonValue, AfterValidator(_layout)] = None
    is_favorite: bool = False
    show_evaluations_over_time: bool = False


class ExperimentInput(ExperimentContent):
    """The body that creates an experiment."""

    name: Name


class ExperimentUpdate(ExperimentContent):
    """The body that replaces an experiment's content: what it leaves out is reset. Its name never changes."""

    name: Name | None = None
    baseline_evaluation_name: Name | None = None


class Experiment(ExperimentContent):
    """An experiment as it is answered."""

    id: str
    name: str
    workspace: str
    baseline_evaluation_name: str | None = None
    created_by: str | None = None
    created_at: datetime
    updated_at: datetime
    evaluation_count: int = 0


# --- evaluations --------------------------------------------------------------------------------------------------


class EvaluationContent(Body):
    """What can be said of an evaluation, and changed later."""

    experiment_ids: list[Label] = Field(min_length=1, max_length=EXPERIMENTS_MAX)
    source_link: Annotated[str, Field(max_length=VALUE_MAX)] | None = None
    description: Text | None = None
    parent_evaluation_id: Label | None = None
    status: Label | None = None
    root_cause: Text | None = None
    metadata: Metadata = {}

    @model_validator(mode="before")
    @classmethod
    def _group(cls, value: Any) -> Any:
        """`experiment_group_id`, the older word, fills `experiment_ids`; doubles are dropped."""
        if not isinstance(value, dict):
            return value
        body = dict(value)
        group = body.pop("experiment_group_id", None)
        if group is not None and not body.get("experiment_ids"):
            body["experiment_ids"] = [group]
        ids = body.get("experiment_ids")
        if isinstance(ids, list) and all(isinstance(each, str) for each in ids):
            body["experiment_ids"] = list(dict.fromkeys(ids))
        return body


class EvaluationInput(EvaluationContent):
    """The body that creates an evaluation."""

    name: Name
    dataset_name: Annotated[Label, Field(min_length=1)]
    dataset_version: Label | None = None


class EvaluationUpdate(EvaluationContent):
    """The body that replaces an evaluation's content: what it leaves out is reset. Name and dataset never change; they
    may be sent as they are."""

    name: Name | None = None
    dataset_name: Label | None = None
    dataset_version: Label | None = None


class EvaluationPatch(Body):
    """The members of an evaluation to change; metadata is replaced whole."""

    experiment_ids: list[Label] | None = Field(default=None, min_length=1, max_length=EXPERIMENTS_MAX)
    source_link: Annotated[str, Field(max_length=VALUE_MAX)] | None = None
    description: Text | None = None
    parent_evaluation_id: Label | None = None
    status: Label | None = None
    root_cause: Text | None = None
    metadata: Metadata | None = None

    @model_validator(mode="after")
    def _not_emptied(self) -> Self:
        if "experiment_ids" in self.model_fields_set and self.experiment_ids is None:
            raise ValueError("an evaluation is in at least one experiment; leave experiment_ids out to keep them")
        return self

    def changes(self) -> dict[str, Any]:
        """The members that were sent."""
        found = {name: getattr(self, name) for name in self.model_fields_set}
        if "metadata" in found:
            found["metadata"] = found["metadata"] or {}
        if "experiment_ids" in found:
            found["experiment_ids"] = list(dict.fromkeys(found["experiment_ids"]))
        return found


class Evaluation(Rollup):
    """An evaluation as it is answered, with the figures that follow from its sessions."""

    id: str
    name: str
    workspace: str
    experiment_ids: list[str]
    dataset_name: str
    dataset_version: str | None = None
    source_link: str | None = None
    description: str | None = None
    parent_evaluation_id: str | None = None
    status: str | None = None
    root_cause: str | None = None
    metadata: dict[str, str] = {}
    created_by: str | None = None
    pinned_at: datetime | None = None
    created_at: datetime
    updated_at: datetime


# --- results of evaluators ----------------------------------------------------------------------------------------


class DataType(StrEnum):
    """Which of `value` and `string_value` holds a result."""

    NUMERIC, BOOLEAN = "NUMERIC", "BOOLEAN"
    CATEGORICAL, TEXT = "CATEGORICAL", "TEXT"


class ResultStatus(StrEnum):
    """FAILED: the evaluator ran, and could give no value."""

    SCORED, FAILED = "SCORED", "FAILED"


class EvaluatorResult(Body):
    """What one evaluator says of one span of a session. A result of the same session, span and name replaces it."""

    session_id: SessionId
    span_id: Annotated[Label, Field(min_length=1)]
    name: Annotated[Label, Field(min_length=1, max_length=NAME_MAX)]
    data_type: DataType
    value: Annotated[float, Field(allow_inf_nan=False)] | None = None
    string_value: Annotated[str, Field(max_length=VALUE_MAX)] | None = None
    status: ResultStatus = ResultStatus.SCORED
    comment: Text | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        numeric = self.data_type in (DataType.NUMERIC, DataType.BOOLEAN)
        if self.status is ResultStatus.FAILED:
            if self.value is not None or self.string_value is not None:
                raise ValueError("a FAILED result has no value and no string_value; say why in comment")
            return self
        if (self.value is None) is numeric or (self.string_value is None) is not numeric:
            has, not_ = ("value", "string_value") if numeric else ("string_value", "value")
            raise ValueError(f"a result of type {self.data_type} has a {has} and no {not_}")
        if self.data_type is DataType.BOOLEAN and self.value not in (0, 1):
            raise ValueError("a BOOLEAN result has the value 0 or 1")
        return self


class StoredResult(EvaluatorResult):
    """A result as it is answered. Its id follows from workspace, session, span and name."""

    evaluator_result_id: str
    workspace: str
    created_at: datetime


# --- sessions -----------------------------------------------------------------------------------------------------


class SessionStatus(StrEnum):
    """How a trial went for the agent; what it was worth is said by its results."""

    OK, ERROR = "ok", "error"


Tokens = Annotated[int, Field(ge=0, le=TOKENS_MAX)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Session(Body):
    """One trial: what it was, how long it took and what it used. Unknown usage is None, never 0.

    `latency_ms` is the time the agent had; `cached_tokens` are among the prompt's. `metadata` leads back to where it
    came from (`run_id`, `trial_id`, `task_ref`).
    """

    session_id: SessionId
    evaluation: Name
    test_case_name: Label = ""
    agent_name: Label | None = None
    agent_version: Label | None = None
    model_name: Label | None = None
    status: SessionStatus = SessionStatus.OK
    started_at: datetime
    latency_ms: Amount | None = None
    prompt_tokens: Tokens | None = None
    completion_tokens: Tokens | None = None
    cached_tokens: Tokens | None = None
    total_tokens: Tokens | None = None
    cost_usd: Amount | None = None
    error_type: Label | None = None
    error_message: Text | None = None
    final_message: Text | None = None
    metadata: Metadata = {}

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.started_at.tzinfo is None:
            raise ValueError("started_at has no offset from UTC; nobody knows which moment it is")
        return self

    @property
    def tokens(self) -> int | None:
        """Prompt and completion together; None if one of them, and the total, is unknown."""
        if self.total_tokens is not None:
            return self.total_tokens
        if self.prompt_tokens is None or self.completion_tokens is None:
            return None
        return self.prompt_tokens + self.completion_tokens


class StoredSession(Session):
    """A session as it is answered. `evaluator_scores`: the mean of each evaluator's numbers in it."""

    workspace: str
    span_count: int
    updated_at: datetime
    results: list[StoredResult] = []
    evaluator_scores: dict[str, float] = {}

    def brief(self) -> Self:
        """As lists have it: without the final message, and with the beginnings of errors and comments."""
        results = [each.model_copy(update={"comment": cut(each.comment, BRIEF_MAX)}) for each in self.results]
        error = cut(self.error_message, BRIEF_MAX)
        return self.model_copy(update={"final_message": None, "error_message": error, "results": results})


# --- rules ---------------------------------------------------------------------------------------------------------


def ordered(found: Sequence[Evaluation], by: SortBy, figures: Mapping[str, Rollup]) -> list[Evaluation]:
    """Evaluations by a figure, `figures` by id: pinned ones first, those without the figure last, then by name."""

    def key(evaluation: Evaluation) -> tuple[bool, bool, float, str]:
        value = by.of(figures[evaluation.id])
        return (
            evaluation.pinned_at is None,
            value is None,
            (-value if by.down else value) if value else 0.0,
            evaluation.name,
        )

    return sorted(found, key=key)


def replaced_content(old: EvaluationInput, body: EvaluationUpdate) -> EvaluationInput:
    """An evaluation with the content of `body`; name and dataset stay. Raises `Refused` for others."""
    kept = ("name", "dataset_name", "dataset_version")
    for member in kept:
        sent = getattr(body, member)
        if sent is not None and sent != getattr(old, member):
            has = quoted(str(getattr(old, member)), 80)
            raise Refused(f"An evaluation keeps its {member}, which is {has}; send that one, or leave it out")
    content = {name: getattr(body, name) for name in EvaluationContent.model_fields}
    return old.model_copy(update=content)


def evaluation_facts(evaluation: Evaluation, *, deleted: bool) -> list[Fact]:
    """What filters ask of an evaluation, but for its figures."""
    plain = ("id", "name", "dataset_name", "dataset_version", "status", "description", "parent_evaluation_id")
    times = ("created_by", "created_at", "updated_at", "pinned_at")
    return [
        *((name, "", getattr(evaluation, name)) for name in (*plain, *times)),
        *(("experiment_id", "", each) for each in evaluation.experiment_ids),
        *(("metadata", key, value) for key, value in evaluation.metadata.items()),
        ("is_pinned", "", evaluation.pinned_at is not None),
        ("is_deleted", "", deleted),
    ]


def experiment_facts(experiment: Experiment, *, deleted: bool) -> list[Fact]:
    """What filters ask of an experiment."""
    plain = ("id", "name", "description", "insight_id", "created_by", "created_at", "updated_at", "is_favorite")
    return [
        *((name, "", getattr(experiment, name)) for name in plain),
        *(("metadata", key, value) for key, value in (experiment.metadata or {}).items()),
        ("is_deleted", "", deleted),
    ]


def deleted_name(name: str, record_id: str) -> str:
    """What a deleted record is called from then on: its name is free for another."""
    tail = f"{_DELETED}{record_id}"
    return f"{name[: NAME_MAX - len(tail)]}{tail}"
