"""Publish a suite: its tasks' archives and revisions, then a taskset pinned to them. Only what changed moves.

Order makes an interruption harmless: an archive is stored before the task that names it, the taskset comes last. What
was published by then stays, and is found unchanged by the next attempt.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harbor_assets.domain.archives import fileset_ref
from harbor_assets.domain.errors import Refused
from harbor_assets.domain.names import name_problem
from harbor_assets.domain.suites import TASKSET_SUFFIX, SourceTask, Suite
from harbor_assets.domain.tasks import (
    ArchiveSource,
    HarborHash,
    HarborTask,
    Task,
    TaskInput,
    Taskset,
    TasksetInput,
    taskset_digest,
)


class PublishTarget(Protocol):
    """The service as a publisher sees it; the SDK's client implements it. All methods may raise `StorageFull` or
    `ServiceUnavailable`."""

    def get_tasks(self, workspace: str, names: Sequence[str]) -> Mapping[str, Task]:
        """The current records of those of `names` that exist."""
        ...

    def put_task(self, workspace: str, name: str, body: TaskInput) -> tuple[Task, bool]:
        """Create or replace; True if a revision was cut."""
        ...

    def put_taskset(self, workspace: str, name: str, body: TasksetInput) -> tuple[Taskset, bool]:
        """Create or replace; True if a revision was cut."""
        ...

    def has_archive(self, fileset_ref: str, files_hash: str) -> bool:
        """True if the archive lies there complete."""
        ...

    def put_archive(self, fileset_ref: str, files_hash: str, path: Path) -> None:
        """Store an archive whose bytes have `files_hash`. An interrupted call leaves none."""
        ...


class PackedTask(Protocol):
    """A task folder as an archive. Valid while its context is open."""

    @property
    def package_digest(self) -> str:
        """Harbor's own content digest of the folder (64 hex)."""
        ...

    @property
    def files_hash(self) -> str:
        """SHA-256 of the archive's bytes (64 hex). Known without packing where the folder has not changed."""
        ...

    def path(self) -> Path:
        """The archive as a file; packed now if it was not yet."""
        ...


class TaskPacker(Protocol):
    """Makes archives of source tasks."""

    harbor_version: str

    def open(self, task: SourceTask) -> AbstractContextManager[PackedTask]:
        """Raises `Refused` if the folder is not what was read any more, or cannot be archived; `StorageFull`."""
        ...


@dataclass(frozen=True, slots=True)
class PublishedTask:
    """A revision was cut."""

    task: Task

    def __str__(self) -> str:
        return f"Published task {self.task.ref}"


@dataclass(frozen=True, slots=True)
class UnchangedTask:
    """The stored revision is the same. `restored`: its archive had been lost and was stored again."""

    task: Task
    restored: bool = False

    def __str__(self) -> str:
        return f"Unchanged task {self.task.ref}" + (" (its archive was missing and is stored again)" * self.restored)


@dataclass(frozen=True, slots=True)
class PublishedTaskset:
    """The end: `count` of the `total` children of the source are in the taskset. `cut`: it is a new revision."""

    taskset: Taskset
    cut: bool
    count: int
    total: int

    def __str__(self) -> str:
        said = "Published" if self.cut else "Unchanged"
        return f"{said} taskset {self.taskset.ref} ({self.count} of {self.total} tasks)"


type PublishEvent = PublishedTask | UnchangedTask | PublishedTaskset


@dataclass(frozen=True, slots=True)
class Published:
    """What came of a publication: every task with whether a revision was cut, by index, and the taskset."""

    tasks: tuple[tuple[Task, bool], ...]
    taskset: Taskset
    cut: bool
    total: int


def publish_suite(
    suite: Suite,
    tasks: Sequence[SourceTask],
    *,
    workspace: str,
    target: PublishTarget,
    packer: TaskPacker,
    report: Callable[[PublishEvent], None] = lambda event: None,
) -> Published:
    """Publish `tasks` (a selection of `suite`) and a taskset of exactly them; `report` is told of each as it happens.

    A task whose package digest and files hash are the stored ones is left alone, with all that others added to it. A
    changed task keeps the metadata, metrics and views that were added to it. Raises what `target` and `packer` raise.
    """
    if not tasks:
        raise Refused(f"There is no task of '{suite.name}' to publish; select at least one.")
    if problem := name_problem(workspace):
        raise Refused(f"The workspace '{workspace}' {problem}; choose another.")
    stored = target.get_tasks(workspace, [task.stored_name for task in tasks])
    published: list[tuple[Task, bool]] = []
    for task in tasks:
        with packer.open(task) as packed:
            known = stored.get(task.stored_name)
            if known and _is_same(known.harbor, task, packed):
                restored = _ensure_archive(target, known.harbor.source, packed)
                event = UnchangedTask(known, restored)
            else:
                spec = _definition(task, packed, workspace, packer.harbor_version, known)
                _ensure_archive(target, spec.source, packed)
                body = TaskInput(spec=spec, metadata=known.metadata if known else [])
                record, cut = target.put_task(workspace, task.stored_name, body)
                event = PublishedTask(record) if cut else UnchangedTask(record)
        published.append((event.task, isinstance(event, PublishedTask)))
        report(event)
    members = sorted(task.ref for task, _ in published)
    digest = taskset_digest(members, description=None, files_ref=None, metadata=())
    name = f"{suite.name}-{digest[:TASKSET_SUFFIX]}"
    taskset, cut = target.put_taskset(workspace, name, TasksetInput(tasks=members))
    report(PublishedTaskset(taskset, cut, len(tasks), suite.total))
    return Published(tuple(published), taskset, cut, suite.total)


def _is_same(spec: HarborTask, task: SourceTask, packed: PackedTask) -> bool:
    return (
        spec.native_task_id == task.native_task_id
        and spec.harbor_hash.digest == packed.package_digest
        and spec.source.files_hash == packed.files_hash
    )


def _ensure_archive(target: PublishTarget, source: ArchiveSource, packed: PackedTask) -> bool:
    """True if the archive had to be stored."""
    if target.has_archive(source.fileset_ref, source.files_hash):
        return False
    target.put_archive(source.fileset_ref, source.files_hash, packed.path())
    return True


def _definition(
    task: SourceTask, packed: PackedTask, workspace: str, harbor_version: str, known: Task | None
) -> HarborTask:
    return HarborTask(
        native_task_id=task.native_task_id,
        source=ArchiveSource(
            fileset_ref=fileset_ref(workspace, Path(task.folder).name, packed.files_hash),
            files_hash=packed.files_hash,
        ),
        harbor_hash=HarborHash(digest=packed.package_digest, harbor_version=harbor_version),
        instruction=task.instruction,
        config=task.config,
        views=known.spec.views if known else {},
        metrics=known.spec.metrics if known else [],
    )
