"""Steps on a file system that the standard library does not have: a synced tree, an exchange of two folders."""

import contextlib
import errno
import os
from pathlib import Path

from harbor_assets.artifacts.tree import Tree

_SYNC_THREADS = 8  # a journal commits for all that wait at once: a tree of 15 files takes 2 ms instead of 9
_FOLDER_MODE, _FILE_MODE = 0o755, 0o644  # the home itself is private; nobody's setuid bit is kept


def exchange(one: Path, other: Path) -> bool:
    """Swap two paths in one step; False if this system or file system cannot."""
    import ctypes  # only where something is replaced

    at_fdcwd, rename_exchange = -100, 2  # <fcntl.h>, <linux/fs.h>
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):  # not Linux, or a C library older than glibc 2.28
        return False
    if renameat2(at_fdcwd, os.fsencode(one), at_fdcwd, os.fsencode(other), rename_exchange) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.EXDEV):  # EXDEV: overlayfs, for a folder of its lower layer
        return False
    raise OSError(number, os.strerror(number), str(other))


def finish(top: Path, found: Tree) -> None:
    """Give everything below `top` the store's modes, and see that it is on the disk before it is shown."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_SYNC_THREADS) as pool:
        for _ in pool.map(_finish_file, (top / path for path in found.files)):
            pass
        for _ in pool.map(_finish_folder, (top / path for path in ["", *found.folders])):
            pass


def _finish_file(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with contextlib.suppress(PermissionError):  # another user's, and readable: it can still be moved
            os.fchmod(fd, _FILE_MODE)
        os.fsync(fd)
    finally:
        os.close(fd)


def _finish_folder(path: Path) -> None:
    with contextlib.suppress(PermissionError):
        path.chmod(_FOLDER_MODE)
    sync(path)


def sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
