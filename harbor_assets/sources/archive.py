"""Task archives: packed so that equal folders give equal bytes, and unpacked as if a stranger had made them.

Source of the form: the API's archive contract (docs/decisions.md, "Digests"): gzip without name and time, a PAX
tar, entries sorted by path with the folder first, owners and times zero, modes kept, nothing left out.
"""

import gzip
import hashlib
import os
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from harbor_assets.domain.archives import Entry, tree_problems
from harbor_assets.domain.errors import NO_SPACE, Problem, Refused, StorageFull
from harbor_assets.sources.scan import scan

CHUNK = 1 << 20
GZIP_LEVEL = 9  # gzip's own default; another level would give equal folders other bytes
_PROBLEMS_SHOWN = 20


def pack(folder: Path, dest: Path | BinaryIO | None) -> str:
    """Write the archive of a task folder to `dest` (None: nowhere) and return its files hash (64 hex of the bytes).

    Streams: memory does not grow with the task. A `dest` path appears only when complete. Raises `Refused` for what an
    archive may not hold and for a folder that changes meanwhile, `StorageFull` when there is no space.
    """
    folder = folder.absolute()
    with no_space(f"the archive of {folder.name} was written"):
        if isinstance(dest, Path):
            with _appearing(dest) as file:
                return _pack(folder, file)
        return _pack(folder, dest)


@contextmanager
def _appearing(dest: Path) -> Iterator[BinaryIO]:
    descriptor, name = tempfile.mkstemp(prefix=f".{dest.name}.", dir=dest.parent)
    beside = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        beside.replace(dest)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def no_space(doing: str) -> Iterator[None]:
    """Turn "disk full" and "quota full" into `StorageFull`."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise StorageFull(f"There was no space left while {doing}; free some, then repeat the command.") from error
        raise


class _Hashing:
    """The writable end of an archive: hashes what passes, and keeps it if there is somewhere to keep it."""

    def __init__(self, sink: BinaryIO | None) -> None:
        self._sink = sink
        self.sha256 = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        if self._sink is not None:
            self._sink.write(data)
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""


def _pack(folder: Path, sink: BinaryIO | None) -> str:
    try:
        before = scan(folder)
    except OSError as error:
        raise Refused(f"The task folder {folder} cannot be read: {error.strerror or error}.") from error
    problems = [*before.unreadable, *tree_problems(folder.name, before.entries)]
    if problems:
        shown = [Problem(path or ".", reason) for path, reason in problems[:_PROBLEMS_SHOWN]]
        raise Refused(f"The task folder {folder} cannot be archived ({len(problems)} problems):", shown)
    out = _Hashing(sink)
    with gzip.GzipFile("", "wb", GZIP_LEVEL, out, mtime=0) as tar:  # pyright: ignore[reportArgumentType]
        size = 0
        for entry in before.entries:
            header = _header(folder.name, entry)
            tar.write(header)
            size += len(header) + (_copy(folder, entry, tar) if entry.kind == "file" else 0)
        end = 2 * tarfile.BLOCKSIZE
        tar.write(bytes(end + -(size + end) % tarfile.RECORDSIZE))
    if scan(folder).signature != before.signature:
        raise _changed(folder)
    return out.sha256.hexdigest()


def _header(root: str, entry: Entry) -> bytes:
    info = tarfile.TarInfo(f"{root}/{entry.path}" if entry.path else root)
    info.mode, info.mtime = entry.mode, 0
    if entry.kind == "file":
        info.size = entry.size
    elif entry.kind == "dir":
        info.type = tarfile.DIRTYPE
    else:
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, entry.target, 0o777
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


def _copy(folder: Path, entry: Entry, tar: gzip.GzipFile) -> int:
    """Exactly the bytes the header promises, padded; the file as scanned or nothing, never what a link leads to now."""
    try:
        with open_regular(folder / entry.path) as file:
            left = entry.size
            while left and (data := file.read(min(CHUNK, left))):
                tar.write(data)
                left -= len(data)
            if left or file.read(1):
                raise _changed(folder)
    except FileNotFoundError as error:
        raise _changed(folder) from error
    except OSError as error:
        if error.errno in NO_SPACE:
            raise
        raise Refused(f"{folder / entry.path} cannot be read: {error.strerror or error}.") from error
    padding = -entry.size % tarfile.BLOCKSIZE
    tar.write(bytes(padding))
    return entry.size + padding


def open_regular(path: Path) -> BinaryIO:
    """Open a file that was seen to be regular, without waiting for a pipe or following a link put there since.

    Raises FileNotFoundError where it is no regular file any more.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(path)
    return os.fdopen(descriptor, "rb", buffering=0)


def _changed(folder: Path) -> Refused:
    return Refused(f"The task folder {folder} changed while it was being read; repeat the command when it is at rest.")
