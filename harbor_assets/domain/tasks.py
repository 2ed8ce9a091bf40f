"""Tasks and tasksets as the catalog holds them, and what their revisions' digests are made of.

The shapes and the digest payloads are the API's contract; a change here changes every digest.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from harbor_assets.domain.digests import digest_of

Hex64 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


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
    fileset_ref: str = Field(pattern=r"^[\w\-.]+/[\w\-.]+#[\w\-./]+$")
    files_hash: Hex64
    archive_format: Literal["tar-gzip-v1"] = "tar-gzip-v1"


class HarborHash(Body):
    """The producer's own fingerprint of the task folder (Harbor's packager). Recorded, never verified."""

    digest: Hex64
    method: Literal["harbor-packager-content-v1"] = "harbor-packager-content-v1"
    harbor_version: str = Field(min_length=1, max_length=128)
    source_commit: str | None = Field(default=None, max_length=128)


class HarborTask(Body):
    """The definition of a Harbor task. `instruction` and `config` are read from the archive."""

    kind: Literal["harbor"] = "harbor"
    native_task_id: str = Field(min_length=1)
    source: ArchiveSource
    harbor_hash: HarborHash
    instruction: str | None = None
    config: dict[str, JsonValue] = {}
    views: dict[str, JsonValue] = {}
    metrics: list[str] = []


def _unique_keys(metadata: Sequence[Annotation]) -> None:
    keys = [item.key for item in metadata]
    if len(set(keys)) != len(keys):
        raise ValueError("metadata keys must be unique")


class TaskInput(Body):
    """The body that creates or replaces a task."""

    spec: HarborTask
    metadata: list[Annotation] = []
    tags: list[str] = []

    @model_validator(mode="after")
    def _check(self) -> Self:
        _unique_keys(self.metadata)
        return self

    def digest(self) -> str:
        """The revision's digest: everything but `tags` and the spec's `config`."""
        spec = self.spec.model_dump(mode="json", exclude={"config"})
        return digest_of({"metadata": [item.model_dump(mode="json") for item in self.metadata], "spec": spec})


class TasksetInput(Body):
    """The body that creates or replaces a taskset. Members are pinned by the server when stored."""

    tasks: list[str]
    description: str | None = Field(default=None, max_length=1000)
    files_ref: str | None = None
    metadata: list[Annotation] = []
    tags: list[str] = []

    @model_validator(mode="after")
    def _check(self) -> Self:
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


class Task(Record):
    """A task as of one revision. `content_hash` of the revision is in `digest`."""

    spec: HarborTask
    digest: Hex64 = Field(exclude=True)  # not a member of the API's answer; recomputed on every read

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
