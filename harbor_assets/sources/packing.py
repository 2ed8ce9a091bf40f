"""Archives of task folders for the publisher: hashes of unchanged folders are known without opening a file."""

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

from harbor_assets.domain.errors import Refused
from harbor_assets.domain.suites import SourceTask
from harbor_assets.sources.archive import pack
from harbor_assets.sources.cache import StatusCache
from harbor_assets.sources.packager import package_digest
from harbor_assets.sources.scan import Scan, scan

_KIND = "hashes"
_PREFIX = "pack-"
_LEFT_SECONDS = 24 * 3600  # longer than any archive takes to pack and send


class FolderPacker:
    """Implements the publisher's `TaskPacker` over folders on this machine. `scratch` holds one archive at a time."""

    def __init__(self, scratch: Path, cache: StatusCache | None = None) -> None:
        self.harbor_version = version("harbor")
        self._scratch = scratch
        self._cache = cache
        for left in scratch.glob(f"{_PREFIX}*"):  # by a publisher that was killed
            with suppress(OSError):
                if time.time() - left.stat().st_mtime > _LEFT_SECONDS:
                    left.unlink()

    @contextmanager
    def open(self, task: SourceTask) -> Iterator["FolderArchive"]:
        """The task's archive, packed at most once. Raises `Refused` if the folder has changed since it was read."""
        file = self._scratch / f"{_PREFIX}{uuid.uuid4().hex}"
        try:
            yield FolderArchive(task, _scan_as_read(task), file, self._cache)
        finally:
            file.unlink(missing_ok=True)


class FolderArchive:
    """One task folder on its way into an archive."""

    def __init__(self, task: SourceTask, seen: Scan, file: Path, cache: StatusCache | None) -> None:
        self._task, self._seen, self._file, self._cache = task, seen, file, cache
        self._packed = False
        self.package_digest, self.files_hash = self._known() or self._compute()

    def path(self) -> Path:
        """The archive as a file, packed now if the hashes came from the cache."""
        if not self._packed and self._pack() != self.files_hash:
            raise Refused(
                f"The task folder {self._task.folder} gives other bytes than remembered; repeat with --rehash."
            )
        return self._file

    def _known(self) -> tuple[str, str] | None:
        text = self._cache.get(self._seen, _KIND) if self._cache else None
        return tuple(json.loads(text)) if text else None

    def _compute(self) -> tuple[str, str]:
        hashes = package_digest(self._seen), self._pack()
        _scan_as_read(self._task)  # both are of one state of the folder, the one that was checked
        if self._cache:
            self._cache.put(self._seen, _KIND, json.dumps(hashes))
        return hashes

    def _pack(self) -> str:
        self._packed = True
        return pack(self._seen.folder, self._file)


def _scan_as_read(task: SourceTask) -> Scan:
    try:
        seen = scan(Path(task.folder))
    except OSError as error:
        raise Refused(f"The task folder {task.folder} cannot be read: {error.strerror or error}.") from error
    if seen.signature != task.status:
        raise Refused(
            f"The task folder {task.folder} changed since it was read; repeat the command when it is at rest."
        )
    return seen
