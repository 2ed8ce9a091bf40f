"""The service as the engine's publisher sees it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from harbor_assets.domain.tasks import Task, TaskInput, Taskset, TasksetInput
from harbor_assets.interfaces.sdk.archives import Archives, RemoteArchives, StoredArchives
from harbor_assets.interfaces.sdk.client import Client
from harbor_assets.interfaces.sdk.tasks import AsyncTasks, Tasks
from harbor_assets.interfaces.sdk.tasksets import AsyncTasksets, Tasksets


class Publishing:
    """The port `engine/publish.py` names: tasks, tasksets, and archives by their reference."""

    def __init__(self, client: Client) -> None:
        self._tasks = Tasks(client.loop, AsyncTasks(client.twin))
        self._tasksets = Tasksets(client.loop, AsyncTasksets(client.twin))
        backend = client.service.backend
        self._archives: Archives = RemoteArchives(client) if backend is None else StoredArchives(backend.artifacts)

    def get_tasks(self, workspace: str, names: Sequence[str]) -> Mapping[str, Task]:
        """The current records of those of `names` that exist."""
        return self._tasks.named(names, workspace=workspace)

    def put_task(self, workspace: str, name: str, body: TaskInput) -> tuple[Task, bool]:
        """Create or replace a task; True if a revision was cut."""
        return self._tasks.put(name, task=body, workspace=workspace)

    def put_taskset(self, workspace: str, name: str, body: TasksetInput) -> tuple[Taskset, bool]:
        """Create or replace a taskset; True if a revision was cut."""
        return self._tasksets.put(name, taskset=body, workspace=workspace)

    def has_archive(self, fileset_ref: str, files_hash: str) -> bool:
        """True if the archive lies in the artifact store; what is there is complete."""
        return self._archives.has(fileset_ref)

    def put_archive(self, fileset_ref: str, files_hash: str, path: Path) -> None:
        """Store an archive: straight into the artifact store where that is this machine's own, else by an upload."""
        self._archives.put(fileset_ref, files_hash, path)
