"""Locks between processes of one home: `flock` on a file, which the kernel drops with the process, whatever killed it.

A worker inherits the descriptor of its run's lock from the command that started it, so there is no moment at which a
second command could take the run for lost.
"""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PROBE_RETRIES = 5  # another command that only looks holds the lock for microseconds
_PROBE_PAUSE_SECONDS = 0.01


def _open(folder: Path, name: str) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    return os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _try(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def hold(folder: Path, name: str) -> int | None:
    """Take the lock and keep its descriptor; None if another process has it."""
    fd = _open(folder, name)
    for attempt in range(_PROBE_RETRIES):
        if _try(fd, fcntl.LOCK_EX):
            return fd
        if attempt + 1 < _PROBE_RETRIES:
            time.sleep(_PROBE_PAUSE_SECONDS)
    os.close(fd)
    return None


def held(folder: Path, name: str) -> bool:
    """True while some process has the lock. Looking never makes the lock file."""
    try:
        fd = os.open(folder / name, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _try(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


@contextmanager
def lock(folder: Path, name: str) -> Iterator[None]:
    """Wait for the lock and hold it for the block."""
    fd = _open(folder, name)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def write_owner(fd: int, pid: int) -> None:
    """Note who holds the lock, for people who look into the file; nothing depends on it."""
    os.ftruncate(fd, 0)
    os.pwrite(fd, str(pid).encode(), 0)
