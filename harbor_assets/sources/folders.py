"""Task folders unpacked from their archives: once per content, verified, kept for the next run.

Layout below the root: `<files hash>/<folder name>/...`, made complete in one step, and `<files hash>.json`, written
last: the folder's signature when its content was known to be right. An equal signature means that no file was touched.
"""

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

from harbor_assets.domain.archives import archive_key
from harbor_assets.domain.errors import Broken, HomeUnusable, Refused
from harbor_assets.engine.ports import Archived, Artifacts
from harbor_assets.sources.archive import no_space, pack
from harbor_assets.sources.scan import scan
from harbor_assets.sources.staging import staging, sweep
from harbor_assets.sources.unpack import unpack

_BLOCK = 1 << 20  # bytes read at once: an archive may have gigabytes


class ArchiveTaskFolders:
    """Implements the port `TaskFolders`. `root` is made for this user alone: archives keep setuid bits."""

    def __init__(self, artifacts: Artifacts, root: Path) -> None:
        self._artifacts = artifacts
        self._root = root
        self._swept = False

    def get(self, task: Archived, *, archived: bool = False) -> Path:
        """See `TaskFolders.get`. Safe with other threads and processes at the same time: the first one to finish wins.

        A kept folder that was touched is compared with the archive's hash, and replaced if its content differs.
        """
        try:
            kept = self._kept(task.files_hash)
            if kept:
                if archived:
                    self._check_archive(task)
                return kept
            self._prepare()
            with self._artifacts.open(archive_key(task.fileset_ref)) as archive:
                folder = unpack(archive, self._root / task.files_hash, task.files_hash)
            self._mark(task.files_hash, folder)
        except OSError as error:
            raise HomeUnusable(
                f"Tasks cannot be unpacked to {self._root}: {error.strerror or error}; set HARBOR_ASSETS_HOME to a "
                "folder this user can write."
            ) from error
        return folder

    def _check_archive(self, task: Archived) -> None:
        digest = hashlib.sha256()
        with self._artifacts.open(archive_key(task.fileset_ref)) as archive:
            while block := archive.read(_BLOCK):
                digest.update(block)
        if digest.hexdigest() != task.files_hash:
            raise Broken(f"The task archive is not the one of hash {task.files_hash}: it has {digest.hexdigest()}.")

    def _prepare(self) -> None:
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._root.chmod(0o700)
        if not self._swept:
            self._swept = True
            sweep(self._root)

    def _kept(self, files_hash: str) -> Path | None:
        holder = self._root / files_hash
        try:
            (folder,) = holder.iterdir()
            signature = scan(folder).signature
        except (FileNotFoundError, NotADirectoryError, ValueError):
            folder, signature = None, None
        if folder and signature == self._marked(files_hash):
            return folder
        if folder and _content_hash(folder) == files_hash:
            self._mark(files_hash, folder)
            return folder
        if holder.exists():
            self._prepare()
            # Renamed first: whoever looks meanwhile finds nothing and unpacks anew, never half of the old one.
            with staging(self._root) as aside, suppress(FileNotFoundError):
                holder.rename(aside / files_hash)
        return None

    def _marker(self, files_hash: str) -> Path:
        return self._root / f"{files_hash}.json"

    def _marked(self, files_hash: str) -> str | None:
        try:
            return json.loads(self._marker(files_hash).read_text())["signature"]
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _mark(self, files_hash: str, folder: Path) -> None:
        with no_space(f"a task was unpacked to {self._root}"):
            beside = self._marker(files_hash).with_suffix(f".{os.getpid()}-{os.urandom(4).hex()}")
            try:
                beside.write_text(json.dumps({"signature": scan(folder).signature}))
                beside.replace(self._marker(files_hash))
            finally:
                beside.unlink(missing_ok=True)


def _content_hash(folder: Path) -> str | None:
    try:
        return pack(folder, None)
    except (Refused, Broken):
        return None
