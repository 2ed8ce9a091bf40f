"""Tasks and tasksets as the catalog holds them, and what their revisions' digests are made of.

The shapes and the digest payloads are the API's contract; a change here changes every digest.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator

from harbor_assets.domain.archives import archive_key
from harbor_assets.domain.bundle import SemanticView
from harbor_assets.domain.digests import digest_of
from harbor_assets.domain.errors import Problem, Refused
from harbor_assets.domain.names import Ref

Hex64 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
MetricRef = Annotated[str, Field(pattern=r"^[\w\-.]+(/[\w\-.]+)?$", examples=["default/answer-exact-match"])]
InlineMetric = dict[str, JsonValue]  # its shape is checked where metrics are stored
# Of one body. Each is a row, written while no other writer can: on SQLite these many take about a second.
METADATA_MAX = 10_000
TAGS_MAX = 1_000


def _leads_nowhere_else(ref: str) -> str:
    try:
        archive_key(ref)
    except Refused as refused:
        raise ValueError(refused.message) from None
    return ref


FilesetRef = Annotated[
    str, Field(pattern=r"^[\w\-.]+/[\w\-.]+#[\w\-./]+$"), AfterValidator(_leads_nowhere_else)
]  # workspace/fileset#path


class Body(BaseModel):
    """Base of the API's bodies: immutable, and unknown members are refused by name."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Annotation(Body):
    """One entry of a record's `metadata`."""

    key: str
    value: JsonValue


class ArchiveSource(Body):
    """Where a Harbor task's archive lies and what its exact bytes hash to."""

    kind: Literal["fileset-archive"] = "fileset-archive"
    fileset_ref: FilesetRef
    files_hash: Hex64
    archive_format: Literal["tar-gzip-v1"] = "tar-gzip-v1"


class HarborHash(Body):
    """The producer's own fingerprint of the task folder (Harbor's packager). Recorded, never verified."""

    digest: Hex64
    method: Literal["harbor-packager-content-v1"] = "harbor-packager-content-v1"
    harbor_version: str = Field(min_length=1, max_length=128)
    source_commit: str | None = Field(default=None, max_length=128)


class TaskInputs(BaseModel):
    """What an agent is given: `instruction` is the only text it sees; whatever else is here, templates can name."""

    model_config = ConfigDict(frozen=True, extra="allow")

    instruction: str | None = None


class EvaluatorTask(Body):
    """The definition of a task whose content is these fields and whose score is what its metrics say.

    `metrics`: references to stored metrics, and in a request also metrics themselves.
    """

    kind: Literal["evaluator"] = "evaluator"
    intent: str
    inputs: TaskInputs = TaskInputs()
    reference: dict[str, JsonValue] = {}
    metrics: list[MetricRef | InlineMetric] = []
    views: dict[str, SemanticView] = {}


class HarborTask(Body):
    """The definition of a Harbor task. `instruction` and `config` are read from the archive.

    `metrics` are additional to Harbor's own reward, which is never listed.
    """

    kind: Literal["harbor"] = "harbor"
    native_task_id: str = Field(min_length=1)
    source: ArchiveSource
    harbor_hash: HarborHash
    instruction: str | None = None
    config: dict[str, JsonValue] = {}
    views: dict[str, SemanticView] = {}
    metrics: list[MetricRef | InlineMetric] = []


TaskDefinition = Annotated[EvaluatorTask | HarborTask, Field(discriminator="kind")]


def _unique_keys(metadata: Sequence[Annotation]) -> None:
    keys = [item.key for item in metadata]
    if len(set(keys)) != len(keys):
        raise ValueError("metadata keys must be unique")


class TaskInput(Body):
    """The body that creates or replaces a task."""

    spec: TaskDefinition
    metadata: list[Annotation] = Field(default=[], max_length=METADATA_MAX)
    tags: list[str] = Field(default=[], max_length=TAGS_MAX)

    @model_validator(mode="after")
    def _check(self) -> Self:
        _unique_keys(self.metadata)
        return self

    def qualified(self, workspace: str) -> Self:
        """The body as it is stored: every metric by `workspace/name`; a bare name takes `workspace`.

        Raises `Refused` for metrics that are not references: whoever stores the task stores those first.
        """
        refs = [str(Ref.parse(_reference(metric), workspace=workspace)) for metric in self.spec.metrics]
        return self if refs == self.spec.metrics else self.with_metrics(refs)

    def with_metrics(self, refs: Sequence[str]) -> Self:
        """The body with these references in place of its metrics."""
        return self.model_copy(update={"spec": self.spec.model_copy(update={"metrics": list(refs)})})

    def digest(self) -> str:
        """The revision's digest: everything but `tags` and a Harbor task's `config`. Metrics must be qualified."""
        spec = self.spec.model_dump(mode="json", exclude={"config"} if isinstance(self.spec, HarborTask) else None)
        return digest_of({"metadata": [item.model_dump(mode="json") for item in self.metadata], "spec": spec})


def _reference(metric: str | InlineMetric) -> str:
    if isinstance(metric, str):
        return metric
    raise Refused("A metric inside a task cannot be stored here; create it first, then write its name")


class TasksetInput(Body):
    """The body that creates or replaces a taskset. Members are pinned by the server when stored.

    They are given by reference (`name`, `workspace/name`, `...#tag`, `...#digest`) or by the ids of their records,
    which mean the current revisions. None at all is an empty list of either.
    """

    tasks: list[str] | None = None
    task_ids: list[str] | None = None
    description: str | None = Field(default=None, max_length=1000)
    files_ref: FilesetRef | None = None
    metadata: list[Annotation] = Field(default=[], max_length=METADATA_MAX)
    tags: list[str] = Field(default=[], max_length=TAGS_MAX)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.tasks is None) == (self.task_ids is None):
            raise ValueError("exactly one of `tasks` and `task_ids` must be given; an empty list counts")
        _unique_keys(self.metadata)
        return self


def taskset_digest(
    pinned: Sequence[str], *, description: str | None, files_ref: str | None, metadata: Sequence[Annotation]
) -> str:
    """The digest of a taskset of pinned members (`ws/name#digest`); their order does not matter."""
    return digest_of(
        {
            "description": description,
            "files_ref": files_ref,
            "metadata": [item.model_dump(mode="json") for item in metadata],
            "tasks": sorted(pinned),
        }
    )


class Record(Body):
    """What tasks and tasksets have in common as the catalog answers them. `revision` counts from 1."""

    id: str
    name: str
    workspace: str
    project: str | None = None
    metadata: list[Annotation] = []
    revision: int = Field(ge=1)
    tags: dict[str, int] = {}
    created_at: datetime
    updated_at: datetime


class Sort(StrEnum):
    """How lists of records are ordered; `-` is descending. Equal ones by name."""

    CREATED, CREATED_DOWN = "created_at", "-created_at"
    UPDATED, UPDATED_DOWN = "updated_at", "-updated_at"
    NAME, NAME_DOWN = "name", "-name"


class Project(Body):
    """A name in a workspace under which tasks and tasksets can be put."""

    name: str
    workspace: str
    created_at: datetime


class Revision(Body):
    """One revision of a task or taskset; `tags` are the names that point at it now, sorted."""

    revision: int = Field(ge=1)
    content_hash: Hex64
    tags: list[str] = []
    created_at: datetime


class Task(Record):
    """A task as of one revision. `content_hash` of the revision is in `digest`."""

    spec: TaskDefinition
    digest: Hex64 = Field(exclude=True)  # not a member of the API's answer; recomputed on every read

    @property
    def harbor(self) -> HarborTask:
        """The definition, for what only Harbor tasks can do. Raises `Refused` for another kind of task."""
        if not isinstance(self.spec, HarborTask):
            raise Refused(f"The task {self.workspace}/{self.name}", [_not_harbor(self)])
        return self.spec

    @property
    def ref(self) -> str:
        """The pinned reference `workspace/name#digest`."""
        return f"{self.workspace}/{self.name}#{self.digest}"


class Taskset(Record):
    """A taskset as of one revision; `tasks` are pinned references sorted as strings."""

    tasks: list[str]
    description: str | None = None
    files_ref: str | None = None
    digest: Hex64 = Field(exclude=True)

    @property
    def ref(self) -> str:
        """The pinned reference `workspace/name#digest`."""
        return f"{self.workspace}/{self.name}#{self.digest}"


def not_harbor(tasks: Iterable[Task]) -> list[Problem]:
    """A problem for each task that Harbor cannot run."""
    return [_not_harbor(task) for task in tasks if not isinstance(task.spec, HarborTask)]


def _not_harbor(task: Task) -> Problem:
    return Problem(task.name, f"is of kind '{task.spec.kind}', which has no environment to run in; choose Harbor tasks")
