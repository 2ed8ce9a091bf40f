"""One walk over a task folder: what is in it, and a signature that changes when any of it does. Nothing is opened."""

import hashlib
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from harbor_assets.domain.archives import MAX_ENTRIES, Entry, EntryKind


@dataclass(frozen=True, slots=True)
class Scan:
    """What a task folder held at `taken_ns` (nanoseconds since 1970).

    `entries` are sorted by path, the folder itself (`""`) first; what could not be read is in `unreadable` (path, why).
    `signature` covers path, kind, mode, and of files and links also size, inode, modification and status-change time.
    `newest_ns` is the latest status change of a file or link. Folders' own times are left out: a file that came and
    went changes nothing that is published.
    """

    folder: Path
    entries: tuple[Entry, ...]
    unreadable: tuple[tuple[str, str], ...]
    signature: str
    newest_ns: int
    taken_ns: int


def scan(folder: Path) -> Scan:
    """Walk `folder`, never through a link. Stops (with one entry too many) past the most an archive may hold.

    Raises OSError only if the folder itself cannot be read.
    """
    taken_ns = time.time_ns()
    root = folder.stat(follow_symlinks=False)
    found: list[tuple[Entry, os.stat_result]] = [(Entry("", "dir", stat.S_IMODE(root.st_mode)), root)]
    unreadable: list[tuple[str, str]] = []
    pending = [""]
    while pending and len(found) <= MAX_ENTRIES:
        parent = pending.pop()
        try:
            with os.scandir(folder / parent) as children:
                for child in children:
                    path = f"{parent}/{child.name}" if parent else child.name
                    status = child.stat(follow_symlinks=False)
                    entry = _entry(path, status, folder)
                    found.append((entry, status))
                    if entry.kind == "dir":
                        pending.append(path)
                    if len(found) > MAX_ENTRIES:
                        break
        except OSError as error:
            if not parent and not isinstance(error, FileNotFoundError):
                raise
            unreadable.append((parent, f"cannot be read: {error.strerror or error}"))
    found.sort(key=lambda pair: pair[0].path)
    signature, newest_ns = _signature(found)
    return Scan(folder, tuple(entry for entry, _ in found), tuple(unreadable), signature, newest_ns, taken_ns)


def _entry(path: str, status: os.stat_result, folder: Path) -> Entry:
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        return Entry(path, "link", mode, target=os.readlink(folder / path))  # noqa: PTH115 - keep what it says exactly
    kind: EntryKind = "file" if stat.S_ISREG(status.st_mode) else "dir" if stat.S_ISDIR(status.st_mode) else "other"
    return Entry(path, kind, mode, status.st_size if kind == "file" else 0)


def _signature(found: list[tuple[Entry, os.stat_result]]) -> tuple[str, int]:
    digest = hashlib.sha256()
    newest_ns = 0
    for entry, status in found:
        line = f"{entry.kind}\0{entry.path}\0{entry.mode:o}"
        if entry.kind != "dir":
            line += f"\0{status.st_size}\0{status.st_ino}\0{status.st_mtime_ns}\0{status.st_ctime_ns}\0{entry.target}"
            newest_ns = max(newest_ns, status.st_ctime_ns)
        digest.update(line.encode(errors="surrogateescape") + b"\n")
    return digest.hexdigest(), newest_ns
