"""The store in a folder: plain files, each put in place by one rename."""

import contextlib
import errno
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import BinaryIO, NoReturn

from harbor_assets.artifacts import disk, tree
from harbor_assets.artifacts.keys import INCOMING, check_key
from harbor_assets.domain.errors import (
    NO_SPACE,
    HarborAssetsError,
    HomeUnusable,
    NotFound,
    Refused,
    ServiceUnavailable,
    StorageFull,
)

SWEEP_AGE_SECONDS = 3600.0  # nothing is written this long without a byte being added
_PLACE_ATTEMPTS = 50  # removals may take the parent folder away between its making and the rename, again and again


class FolderArtifacts:
    """`Artifacts` in the folder `root`, which is made by the first write.

    A file is written under a name of its own, synced, then renamed. A tree on the same file system is renamed as it is
    (so it is moved); from another one it is copied beside first. A tree that is already there is exchanged in one step
    where the file system can, else it is away for the moment between two renames.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    def exists(self, key: str) -> bool:
        """See `Artifacts`; true for an object and for a tree."""
        with self._told():
            mode = self._mode(self._path(key))
            return mode is not None and (S_ISREG(mode) or S_ISDIR(mode))

    def size(self, key: str) -> int:
        """See `Artifacts`."""
        with self._told():
            path = self._path(key)
            mode = self._mode(path)
            if mode is None or not S_ISREG(mode):
                raise _not_found(key)
            return path.lstat().st_size

    def open(self, key: str) -> AbstractContextManager[BinaryIO]:
        """See `Artifacts`."""
        with self._told():
            path = self._path(key)
            mode = self._mode(path)
            if mode is None or not S_ISREG(mode):
                raise _not_found(key)
            return path.open("rb")

    def put_bytes(self, key: str, data: bytes) -> None:
        """See `Artifacts`."""
        self._put(key, lambda stream: stream.write(data))

    def put_file(self, key: str, source: Path) -> None:
        """See `Artifacts`. Raises `Refused` if `source` cannot be read."""
        try:
            opened = source.open("rb")
        except OSError as error:
            raise Refused(f"{source} cannot be stored: {error.strerror}") from error
        with opened:
            self._put(key, lambda stream: shutil.copyfileobj(opened, stream, 1 << 20))

    def put_tree(self, key: str, source: Path) -> int:
        """See `Artifacts`. Raises `Refused` if `source` is not a folder."""
        target = self._path(key)
        if not S_ISDIR(self._mode(source) or 0):
            raise Refused(f"{source} cannot be stored as {key!r}: it is not a folder")
        with self._told():
            self._make_root()
            found = tree.survey(source, key)
            try:
                self._move(source, found, target)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                self._copy(source, found, target)
            return len(found.left_out)

    def list(self, key: str) -> Iterator[tuple[str, int]]:
        """See `Artifacts`."""
        with self._told():
            top = self._path(key)
            mode = self._mode(top)
            found: list[tuple[str, int]] = []
            pending = [""] if mode is not None and S_ISDIR(mode) else []
            while pending:
                folder = pending.pop()
                with os.scandir(top / folder) as entries:
                    for entry in entries:
                        path = f"{folder}/{entry.name}" if folder else entry.name
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(path)
                        elif entry.is_file(follow_symlinks=False):
                            found.append((path, entry.stat(follow_symlinks=False).st_size))
        return iter(sorted(found))

    def remove(self, key: str) -> None:
        """See `Artifacts`. It is gone at once; its space is given back after that."""
        with self._told():
            path = self._path(key)
            if self._mode(path) is None:
                return
            away = self._incoming()
            with contextlib.suppress(FileNotFoundError):
                path.rename(away)
            tree.remove(away)
            for parent in path.parents:  # a folder is there only for what is in it
                if parent == self.root:
                    break
                try:
                    parent.rmdir()
                except OSError:
                    break

    def url(self, key: str) -> str:
        """See `Artifacts`: the path."""
        return str(self._path(key))

    def sweep(self, older_than_seconds: float = SWEEP_AGE_SECONDS) -> int:
        """Remove what killed writes left; returns how many. What was touched more recently may still be written."""
        removed = 0
        with self._told():
            if not self.root.is_dir():
                return 0
            for path in sorted(self.root.glob(f"{INCOMING}*")):
                with contextlib.suppress(FileNotFoundError):  # finished or removed just now
                    if time.time() - _touched(path) > older_than_seconds:
                        tree.remove(path)
                        removed += 1
        return removed

    def _path(self, key: str) -> Path:
        return self.root / check_key(key)

    @staticmethod
    def _mode(path: Path) -> int | None:
        try:
            return path.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _make_root(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)

    def _incoming(self) -> Path:
        return self.root / f"{INCOMING}{secrets.token_hex(8)}"

    def _put(self, key: str, fill: Callable[[BinaryIO], object]) -> None:
        target = self._path(key)
        with self._told(), self._beside() as incoming:
            with incoming.open("xb") as stream:
                fill(stream)
                stream.flush()
                os.fsync(stream.fileno())
            self._place(incoming, target, key)

    @contextmanager
    def _beside(self) -> Iterator[Path]:
        """A path on the store's file system for what is being written; removed if it is still there at the end."""
        self._make_root()
        incoming = self._incoming()
        try:
            yield incoming
        finally:
            with contextlib.suppress(OSError):  # `sweep` comes again
                tree.remove(incoming)

    def _move(self, source: Path, found: tree.Tree, target: Path) -> None:
        for path in found.left_out:
            tree.remove(source / path)
        disk.finish(source, found)
        self._place(source, target, str(target))

    def _copy(self, source: Path, found: tree.Tree, target: Path) -> None:
        with self._beside() as incoming:
            incoming.mkdir()
            for path in found.folders:
                (incoming / path).mkdir()
            for path in found.files:
                shutil.copyfile(source / path, incoming / path, follow_symlinks=False)
            disk.finish(incoming, found)
            self._place(incoming, target, str(target))

    def _place(self, incoming: Path, target: Path, shown: str) -> None:
        """Rename `incoming` to `target`, which holds the old or the new at every moment."""
        for attempt in range(_PLACE_ATTEMPTS):
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                incoming.replace(target)
            except (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError) as error:
                if self._in_the_way(incoming, target):
                    raise Refused(
                        f"{shown} cannot be stored: a file stands where a folder is needed, or the other way"
                    ) from error
                if attempt + 1 == _PLACE_ATTEMPTS:
                    raise
                continue
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise
                self._exchange(incoming, target)
            with contextlib.suppress(FileNotFoundError):  # placed, and removed by another just now
                disk.sync(target.parent)
            return

    def _in_the_way(self, incoming: Path, target: Path) -> bool:
        """True if the target or a folder above it is of the wrong kind, which no repetition changes."""
        there, mine = self._mode(target), self._mode(incoming)
        if there is not None and mine is not None and S_ISDIR(there) != S_ISDIR(mine):
            return True
        above = (self._mode(parent) for parent in target.parents if parent != self.root)
        return any(mode is not None and not S_ISDIR(mode) for mode in above)

    def _exchange(self, incoming: Path, target: Path) -> None:
        # Under a name of its own first: a caller killed here must not find the old content where its new one was.
        new, old = self._incoming(), self._incoming()
        incoming.rename(new)
        if disk.exchange(new, target):
            old = new
        else:
            target.rename(old)
            new.rename(target)
        tree.remove(old)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except HarborAssetsError:
            raise
        except OSError as error:
            self._tell(error)

    def _tell(self, error: OSError) -> NoReturn:
        what = f"The artifact store {self.root}"
        if error.errno in NO_SPACE:
            raise StorageFull(f"{what} has no space left; free some, then repeat the command.") from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
            raise HomeUnusable(
                f"{what} cannot be used: {error.strerror}: {error.filename}; see that it is a folder that can be "
                "read and written, or choose another with HARBOR_ASSETS_ARTIFACTS_URL."
            ) from error
        raise ServiceUnavailable(f"{what} did not answer: {error.strerror}: {error.filename}; try again.") from error


def _not_found(key: str) -> NotFound:
    return NotFound(f"There is no artifact {key!r}.")


def _touched(path: Path) -> float:
    newest = path.lstat().st_mtime
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            newest = max(newest, (Path(folder) / name).lstat().st_mtime)
    return newest
