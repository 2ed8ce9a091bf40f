"""What of a folder can be stored, and how a folder of any depth is removed. The folder may be an agent's work: its
names, links, modes and depth are whatever a program could make."""

import contextlib
import os
import secrets
import stat
from dataclasses import dataclass, field
from pathlib import Path

from harbor_assets.artifacts.keys import INCOMING, KEY_MAX_BYTES, segment_problem


@dataclass(slots=True)
class Tree:
    """A folder's content. Paths are relative POSIX ones; parents stand before what is in them.

    `left_out` are links, special files, names that cannot be keys and what cannot be read; a folder counts once.
    """

    files: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def survey(source: Path, key: str) -> Tree:
    """Look through `source`, to be stored at `key`. Makes its own files and folders readable. Raises `OSError`."""
    tree = Tree()
    longest = KEY_MAX_BYTES - len(key.encode()) - 1
    pending = [""]
    while pending:
        folder = pending.pop()
        for entry in _entries(source / folder):
            path = f"{folder}/{entry.name}" if folder else entry.name
            if segment_problem(entry.name) or len(path.encode()) > longest:
                tree.left_out.append(path)
            elif entry.is_dir(follow_symlinks=False) and _usable(entry.path, os.R_OK | os.W_OK | os.X_OK):
                tree.folders.append(path)
                pending.append(path)
            elif entry.is_file(follow_symlinks=False) and _usable(entry.path, os.R_OK):
                tree.files.append(path)
            else:
                tree.left_out.append(path)
    return tree


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _usable(path: str, access: int) -> bool:
    if os.access(path, access, follow_symlinks=False):
        return True
    with contextlib.suppress(PermissionError):  # another user's
        Path(path).chmod(0o700 if access & os.X_OK else 0o600)
    return os.access(path, access, follow_symlinks=False)


def remove(path: Path) -> None:
    """Remove a file or a folder, however deep. Nothing if it is not there. Raises `OSError`.

    Folders below are moved up beside the one being emptied, so that neither recursion nor a path's length ends it.
    """
    try:
        if not stat.S_ISDIR(path.lstat().st_mode):
            path.unlink()
            return
    except FileNotFoundError:
        return
    pending = [path]
    while pending:
        folder = pending.pop()
        for entry in _entries(_opened(folder)):
            if entry.is_dir(follow_symlinks=False):
                beside = path.with_name(f"{INCOMING}{secrets.token_hex(8)}")
                pending.append(_opened(Path(entry.path)).rename(beside))
            else:
                Path(entry.path).unlink()
        folder.rmdir()


def _opened(folder: Path) -> Path:
    with contextlib.suppress(PermissionError):
        folder.chmod(0o700)
    return folder
