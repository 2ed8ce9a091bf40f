"""A task's folder as a build context: what its key is made of, and what is sent to the builder.

Nothing outside the folder is read: links travel as links, and files are opened without following one.
"""

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harbor_assets.domain.images import ContextEntry

CHUNK = 32 * 1024  # fsutil's own
MTIME_NS = 315_619_200 * 10**9  # 1980-01-02: content alone decides an image, and zip files hold nothing older
# Go's os.FileMode, in which fsutil sends modes (https://pkg.go.dev/io/fs#FileMode)
_GO_FOLDER, _GO_LINK, _GO_SETUID, _GO_SETGID, _GO_STICKY = 1 << 31, 1 << 27, 1 << 23, 1 << 22, 1 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing in the folder; `path` is relative to it, with `/`."""

    path: str
    mode: int
    size: int
    target: str | None = None  # of a link

    @property
    def folder(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def file(self) -> bool:
        return stat.S_ISREG(self.mode)

    @property
    def go_mode(self) -> int:
        """The mode as Go writes it."""
        mode = stat.S_IMODE(self.mode) & 0o777
        mode |= _GO_FOLDER if self.folder else 0
        mode |= _GO_LINK if self.target is not None else 0
        for bit, go in ((stat.S_ISUID, _GO_SETUID), (stat.S_ISGID, _GO_SETGID), (stat.S_ISVTX, _GO_STICKY)):
            mode |= go if self.mode & bit else 0
        return mode


def entries(root: Path, left_out: Callable[[str], bool] = lambda _: False) -> list[Entry]:
    """Everything in the folder but what `left_out` says, folders of what is kept included, in the order fsutil demands:
    by path, segment by segment. Devices, sockets and pipes are not there for a build."""
    found = list(_walk(root, ""))
    kept = {entry.path for entry in found if not left_out(entry.path)}
    for path in list(kept):
        while path := path.rpartition("/")[0]:
            kept.add(path)
    return [entry for entry in found if entry.path in kept]


def _walk(root: Path, below: str) -> Iterator[Entry]:
    for item in sorted(os.scandir(root / below), key=lambda item: os.fsencode(item.name)):
        path = f"{below}/{item.name}" if below else item.name
        status = item.stat(follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            # A link's own permissions mean nothing and differ between systems.
            yield Entry(path, stat.S_IFLNK | 0o777, 0, os.readlink(root / path))  # noqa: PTH115 pathlib tidies it
        elif stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
            yield Entry(path, status.st_mode, status.st_size if stat.S_ISREG(status.st_mode) else 0)
            if stat.S_ISDIR(status.st_mode):
                yield from _walk(root, path)


def read(root: Path, path: str) -> Iterator[bytes]:
    """A file's bytes in pieces. Raises OSError if it is a link by now."""
    handle = os.open(root / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        while piece := file.read(CHUNK):
            yield piece


def key_entries(root: Path) -> Iterator[ContextEntry]:
    """What the key of a context is made of: everything, also what a .dockerignore leaves out (it may change)."""
    for entry in entries(root):
        mode = stat.S_IMODE(entry.mode)
        if entry.folder:
            yield ContextEntry(entry.path, "folder", mode, ())
        elif entry.target is not None:
            yield ContextEntry(entry.path, "link", mode, (os.fsencode(entry.target),))
        else:
            yield ContextEntry(entry.path, "file", mode, read(root, entry.path))
