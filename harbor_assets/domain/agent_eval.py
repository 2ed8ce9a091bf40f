"""Evaluations of tasks over outputs that exist or that a target makes: what is asked, and what is kept of it.

The shapes are the API's: `AgentEvalInputSpec` is what clients send, `AgentEvalSpec` the same with every task and metric
in it, so that nothing which changes later changes what was asked.
"""

import re
import secrets
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from harbor_assets.domain.bundle import Aggregate, Coverage, RubricAggregate, ScalarAggregate, SemanticView, Trial
from harbor_assets.domain.credentials import looks_like_key
from harbor_assets.domain.metrics.bodies import MetricInline

TASKS_MAX = 100_000
TRIALS_MAX = 100_000

TasksetRef = Annotated[str, Field(pattern=r"^[\w\-.]+(/[\w\-.]+)?(#[\w\-.]+)?$", max_length=600)]


class Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Annotation(Body):
    key: str
    value: JsonValue


class TaskInputs(BaseModel):
    """What the agent is given; further members are kept, templates can name them."""

    model_config = ConfigDict(frozen=True, extra="allow")

    instruction: str | None = None


class _Task(Body):
    id: Annotated[str, Field(pattern=r"\S", max_length=1000)]
    intent: str
    inputs: TaskInputs = TaskInputs()
    reference: dict[str, JsonValue] = {}
    views: dict[str, SemanticView] = {}
    metadata: list[Annotation] = []


class AgentEvalTaskInput(_Task):
    """A task in a request: its metrics by reference, or whole."""

    metrics: list[str | MetricInline] = []


class AgentEvalTask(_Task):
    """A task with its metrics in it."""

    metrics: list[MetricInline] = []


class Target(BaseModel):
    """What makes trials: an endpoint or a runner. Its members are the client's; secrets are named, never sent."""

    model_config = ConfigDict(frozen=True, extra="allow")

    kind: str = Field(min_length=1, max_length=64)

    @model_validator(mode="after")
    def _no_keys(self) -> Self:
        for at, text in _texts(self.model_dump(mode="json"), "target"):
            if looks_like_key(text):
                raise ValueError(f"{at} looks like a key; store it as a secret and write its name")
        return self

    @property
    def name(self) -> str | None:
        return self._of_endpoint("name")

    @property
    def url(self) -> str | None:
        return self._of_endpoint("url")

    def _of_endpoint(self, member: str) -> str | None:
        endpoint = (self.model_extra or {}).get(self.kind)
        found = endpoint.get(member) if isinstance(endpoint, dict) else None
        return found if isinstance(found, str) else None


def _texts(value: Any, at: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from _texts(member, f"{at}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, at)


class _Spec(Body):
    target: Target | None = None
    trials: Annotated[list[Trial], Field(max_length=TRIALS_MAX)] | None = None
    max_concurrent_tasks: int = Field(default=4, ge=1)
    fail_fast: bool = False
    labels: dict[str, str] = {}
    publication: dict[str, JsonValue] | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.target is None) == (self.trials is None):
            raise ValueError(
                "exactly one of `target` (which makes the trials) and `trials` (to be scored) must be given"
            )
        return self


class AgentEvalInputSpec(_Spec):
    """What a client asks: tasks in the request, or a stored taskset by reference."""

    tasks: TasksetRef | Annotated[list[AgentEvalTaskInput], Field(min_length=1, max_length=TASKS_MAX)]

    @model_validator(mode="after")
    def _told_apart(self) -> Self:
        if isinstance(self.tasks, list):
            twice = [task for task, n in Counter(task.id for task in self.tasks).items() if n > 1]
            if twice:
                raise ValueError(f"the task id '{twice[0]}' stands more than once")
        return self


class AgentEvalSpec(_Spec):
    """What is evaluated. `taskset_ref`: the pinned taskset that the tasks came from, if they came from one."""

    tasks: list[AgentEvalTask]
    taskset_ref: str | None = None


JobStatus = Literal["completed", "error"]


class AgentEvalJobInput(Body):
    """The body that submits an evaluation. Without a name it gets one."""

    name: Annotated[str, Field(pattern=r"^[\w\-.]+$", max_length=255)] | None = None
    description: str | None = Field(default=None, max_length=1000)
    project: str | None = None
    spec: AgentEvalInputSpec


class ErrorDetails(Body):
    message: str


class AgentEvalJob(Body):
    """An evaluation as it was asked and as it ended. `error_details` says why there is no result."""

    id: str
    name: str
    workspace: str
    project: str | None = None
    description: str | None = None
    spec: AgentEvalSpec
    status: JobStatus
    error_details: ErrorDetails | None = None
    created_at: datetime
    updated_at: datetime


class ResultSummary(Body):
    """The counts of a `summary.json`."""

    task_count: int
    trial_count: int
    score_count: int
    error_count: int
    metric_coverage: dict[str, dict[str, Coverage]] = {}


class AgentEvalResult(Body):
    """What can be asked of an evaluation without its bundle. Named as its job; `bundle_ref`: where the bundle lies."""

    id: str
    name: str
    workspace: str
    project: str | None = None
    scores: list[Aggregate | ScalarAggregate | RubricAggregate] = []
    summary: ResultSummary
    target_kind: str | None = None
    target_name: str | None = None
    target_url: str | None = None
    bundle_ref: str
    created_at: datetime
    updated_at: datetime


def new_run_id(now: datetime) -> str:
    """`agent-eval-<UTC yyyymmddHHMMSS>-<8 hex>`: the form of the bundle format's own ids."""
    return f"agent-eval-{now.astimezone(UTC):%Y%m%d%H%M%S}-{secrets.token_hex(4)}"


_RUN_ID = re.compile(r"agent-eval-[0-9]{14}-[0-9a-f]{8}")


def evaluation_key(run_id: str) -> str:
    """Where the bundle of an evaluation lies in the artifact store. Raises `ValueError` for what is no id of one."""
    if not _RUN_ID.fullmatch(run_id):
        raise ValueError(f"'{run_id}' is not the id of an evaluation")
    return f"evaluations/{run_id}/agent-eval-results"
