"""The images of tasksets, for whichever kind of sandbox a run of them would get here."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from harbor_assets.domain.digests import digest_of
from harbor_assets.domain.errors import NotFound
from harbor_assets.domain.images import (
    DOCKERFILE,
    BuildRequest,
    ImageNeed,
    ImageRecord,
    ImagesImpossible,
    ImageStatus,
    TaskImage,
    base_images,
    plan_images,
)
from harbor_assets.domain.plans import SandboxKind, SandboxWord
from harbor_assets.domain.tasks import Task
from harbor_assets.engine.images import ImageBuilds
from harbor_assets.engine.ports import ImageCatalog, SandboxChooser, TaskCatalog, TaskFolders

BuildsOf = Callable[[SandboxKind], ImageBuilds | None]


class TasksetImages:
    """Finds out which sandbox it is about, and asks that one's images. `builds_of`: None for kinds that need none."""

    def __init__(self, *, tasks: TaskCatalog, sandboxes: SandboxChooser, builds_of: BuildsOf) -> None:
        self._tasks, self._sandboxes, self._builds_of = tasks, sandboxes, builds_of

    def start(self, workspace: str, name: str, request: BuildRequest) -> ImageStatus:
        """See `ImageBuilds.start`. Raises `Refused` if that kind of sandbox cannot be had here, too."""
        kind = self._kind(workspace, name, request.revision, request.sandbox)
        builds = self._builds_of(kind)
        if builds is None:
            return self._none(workspace, name, request.revision, kind)
        return builds.start(workspace, name, request).model_copy(update={"sandbox": kind})

    def status(self, workspace: str, name: str, revision: str | None, sandbox: SandboxWord) -> ImageStatus:
        """See `ImageBuilds.status`."""
        kind = self._kind(workspace, name, revision, sandbox)
        builds = self._builds_of(kind)
        if builds is None:
            return self._none(workspace, name, revision, kind)
        return builds.status(workspace, name, revision).model_copy(update={"sandbox": kind})

    def log(self, key: str) -> bytes:
        """The log of an image's last build. Raises `NotFound`."""
        for kind in ("kubernetes", "docker", "podman"):
            if builds := self._builds_of(kind):
                return builds.log(key)
        raise NotFound("Nothing is built here, so there are no logs of builds")

    def _kind(self, workspace: str, name: str, revision: str | None, sandbox: SandboxWord) -> SandboxKind:
        taskset = self._tasks.get_taskset(workspace, name, revision)
        return self._sandboxes.choose(sandbox, lambda: self._tasks.get_pinned_tasks(taskset.tasks)).kind

    def _none(self, workspace: str, name: str, revision: str | None, kind: SandboxKind) -> ImageStatus:
        ref = self._tasks.get_taskset(workspace, name, revision).ref
        return ImageStatus(taskset_ref=ref, sandbox=kind, needed=False)


class ScopedImages:
    """An `ImageCatalog` that keeps the images of one engine apart from those of others in the same catalog: what one
    has built, another does not have."""

    def __init__(self, catalog: ImageCatalog, scope: str) -> None:
        self._catalog, self._scope = catalog, scope

    def put_task_images(self, files_hash: str, images: Sequence[TaskImage]) -> None:
        """See `ImageCatalog`."""
        self._catalog.put_task_images(self._scoped(files_hash), images)

    def task_images(self, files_hashes: Sequence[str]) -> dict[str, Sequence[TaskImage]]:
        """See `ImageCatalog`."""
        scoped = {self._scoped(files_hash): files_hash for files_hash in files_hashes}
        return {scoped[key]: images for key, images in self._catalog.task_images(list(scoped)).items()}

    def put_image(self, record: ImageRecord) -> None:
        """See `ImageCatalog`."""
        self._catalog.put_image(record.model_copy(update={"key": self._scoped(record.key)}))

    def images(self, keys: Sequence[str]) -> dict[str, ImageRecord]:
        """See `ImageCatalog`."""
        scoped = {self._scoped(key): key for key in keys}
        found = self._catalog.images(list(scoped))
        return {scoped[key]: record.model_copy(update={"key": scoped[key]}) for key, record in found.items()}

    def claim_image(self, key: str, holder: str, *, now: datetime, until: datetime) -> bool:
        """See `ImageCatalog`."""
        return self._catalog.claim_image(self._scoped(key), holder, now=now, until=until)

    def release_image(self, key: str, holder: str) -> None:
        """See `ImageCatalog`."""
        self._catalog.release_image(self._scoped(key), holder)

    def claimed_images(self, keys: Sequence[str], *, now: datetime) -> frozenset[str]:
        """See `ImageCatalog`."""
        scoped = {self._scoped(key): key for key in keys}
        return frozenset(scoped[key] for key in self._catalog.claimed_images(list(scoped), now=now))

    def ready_images(self, after: datetime | None = None, *, limit: int = 1000) -> Sequence[ImageRecord]:
        """Of every engine, with their keys as they are stored: see `ImageCatalog`."""
        return self._catalog.ready_images(after, limit=limit)

    def _scoped(self, key: str) -> str:
        return digest_of({"scope": self._scope, "key": key})


class BaseImages:
    """The images that tasks begin from: those they name, and those their Dockerfiles do."""

    def __init__(self, folders: TaskFolders) -> None:
        self._folders = folders

    def __call__(self, tasks: Sequence[Task]) -> Sequence[str]:
        """Each once; tasks that can have none are left out (building them says why). Raises as `TaskFolders`."""
        found: dict[str, None] = {}
        for task in tasks:
            folder = self._folders.get(task.harbor.source)
            with suppress(ImagesImpossible):
                for need in plan_images(task.harbor.config, lambda path, at=folder: (at / path).is_file()):
                    found |= dict.fromkeys(self._of(need, folder))
        return list(found)

    def _of(self, need: ImageNeed, folder: Path) -> Sequence[str]:
        if need.image is not None:
            return [need.image]
        assert need.context is not None
        return base_images((folder / need.context / DOCKERFILE).read_text(encoding="utf-8", errors="replace"))
