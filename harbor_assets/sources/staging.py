"""Folders that appear complete or not at all: made under a name of their own, locked, then renamed."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = ".unpack-"
_GRACE_SECONDS = 60  # between making a staging folder and locking it


def remove_tree(folder: Path) -> None:
    """Remove a folder with all below, also where its own modes forbid that to an ordinary user."""
    with suppress(FileNotFoundError):
        folder.chmod(0o700)
        for parent, folders, _ in os.walk(folder):
            for name in folders:
                path = Path(parent, name)
                if not path.is_symlink():
                    path.chmod(0o700)
        shutil.rmtree(folder)


def sweep(parent: Path) -> int:
    """Remove what killed unpackings left in `parent`; returns how many."""
    count = 0
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime < _GRACE_SECONDS:
                continue
            with _locked(folder):
                remove_tree(folder)
                count += 1
    return count


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold `folder` as long as this process lives at most. Raises BlockingIOError if another does."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def staging(parent: Path) -> Iterator[Path]:
    """A new private folder in `parent`; whatever is still under its name at the end is removed."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    try:
        with _locked(folder):
            yield folder
    finally:
        if folder.exists():
            remove_tree(folder)
