"""The service as a publisher sees it, in memory, with revisions cut as the API's contract says."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from harbor_assets.domain.errors import Refused
from harbor_assets.domain.tasks import HarborTask, Task, TaskInput, Taskset, TasksetInput, taskset_digest


class MemoryPublishTarget:
    """`PublishTarget` as dicts, which a test may look at and change. `calls` names what was written, in order.

    `fail` is raised by the write whose name (`"put_task suite-x"`) it is keyed by, before anything is stored.
    """

    def __init__(self) -> None:
        self.tasks: dict[tuple[str, str], Task] = {}
        self.tasksets: dict[tuple[str, str], Taskset] = {}
        self.archives: dict[tuple[str, str], bytes] = {}
        self.calls: list[str] = []
        self.fail: dict[str, Exception] = {}

    def get_tasks(self, workspace: str, names: Sequence[str]) -> Mapping[str, Task]:
        return {name: self.tasks[workspace, name] for name in names if (workspace, name) in self.tasks}

    def put_task(self, workspace: str, name: str, body: TaskInput) -> tuple[Task, bool]:
        self._write(f"put_task {name}")
        assert isinstance(body.spec, HarborTask)
        source = body.spec.source
        if (source.fileset_ref, source.files_hash) not in self.archives:
            raise Refused(f"the archive {source.fileset_ref} of task '{name}' is not stored")
        known, digest = self.tasks.get((workspace, name)), body.digest()
        if known and known.digest == digest:
            return known, False
        task = Task(
            id=f"task-{len(self.tasks)}",
            name=name,
            workspace=workspace,
            metadata=body.metadata,
            revision=known.revision + 1 if known else 1,
            created_at=datetime.now(UTC),
            updated_at=datetime.now(UTC),
            spec=body.spec,
            digest=digest,
        )
        self.tasks[workspace, name] = task
        return task, True

    def put_taskset(self, workspace: str, name: str, body: TasksetInput) -> tuple[Taskset, bool]:
        self._write(f"put_taskset {name}")
        pinned = {task.ref for task in self.tasks.values()}
        if missing := [ref for ref in body.tasks or () if ref not in pinned]:
            raise Refused(f"taskset members do not exist: {', '.join(missing)}")
        digest = taskset_digest(
            body.tasks or (), description=body.description, files_ref=body.files_ref, metadata=body.metadata
        )
        known = self.tasksets.get((workspace, name))
        if known and known.digest == digest:
            return known, False
        taskset = Taskset(
            id=f"taskset-{len(self.tasksets)}",
            name=name,
            workspace=workspace,
            metadata=body.metadata,
            revision=known.revision + 1 if known else 1,
            created_at=datetime.now(UTC),
            updated_at=datetime.now(UTC),
            tasks=sorted(body.tasks or ()),
            description=body.description,
            files_ref=body.files_ref,
            digest=digest,
        )
        self.tasksets[workspace, name] = taskset
        return taskset, True

    def has_archive(self, fileset_ref: str, files_hash: str) -> bool:
        return (fileset_ref, files_hash) in self.archives

    def put_archive(self, fileset_ref: str, files_hash: str, path: Path) -> None:
        self._write(f"put_archive {fileset_ref}")
        self.archives[fileset_ref, files_hash] = path.read_bytes()

    def _write(self, call: str) -> None:
        if call in self.fail:
            raise self.fail[call]
        self.calls.append(call)
