"""Removes what a killed worker left. Every command calls it, so it costs a millisecond where there is nothing."""

import contextlib
import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from harbor_assets.sandboxes.process import limits, mask, net
from harbor_assets.sandboxes.process.inside.keeper import OWNER_FILE, remove_tree
from harbor_assets.sandboxes.process.owner import Owner, start_time
from harbor_assets.sandboxes.process.rights import privileged

_PATIENCE_SECONDS = 2.0  # keepers clean up by themselves, mostly in milliseconds
_NEW = ".new-"  # a folder that is being made: the owner is in its name


def reap(home: Path) -> list[str]:
    """Remove folders, processes, cgroups, interfaces and the NAT table of dead workers; returns what it removed.

    Safe at any time beside live workers of this home or another, and beside a second `reap`. A zombie counts as dead.
    Best effort: what cannot be removed now is tried again by the next call.
    """
    gone: list[str] = []
    with contextlib.suppress(FileNotFoundError):
        for path in sorted((home.absolute() / "sandboxes").iterdir()):
            if _is_left(path):
                with _alone(path):
                    remove_tree(str(path))
                if not path.exists():
                    gone.append(f"sandbox {path.name}")
    gone += limits.reap()
    if privileged():
        gone += net.reap()
    mask.prune(home.absolute())
    return gone


def _is_left(path: Path) -> bool:
    if path.name.startswith(_NEW):
        owner = Owner.parse(path.name.removeprefix(_NEW))
        return owner is not None and owner.dead
    try:
        owner = Owner.parse(json.loads((path / OWNER_FILE).read_text())["owner"])
    except FileNotFoundError:
        # A sandbox's folder appears with the file in it, and loses it at the very end.
        return path.is_dir()
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return owner is not None and owner.dead


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until neither keeper nor init of a dead worker lives: they clean up, and could still make folders. Kill them
    if they hang."""
    try:
        lock = os.open(folder / OWNER_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield
        return
    try:
        if not _locked(lock, folder):
            for pid in _processes(folder):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            _locked(lock, folder)
        yield
    finally:
        os.close(lock)


def _locked(lock: int, folder: Path) -> bool:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while folder.exists():
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        else:
            return True
    return True


def _processes(folder: Path) -> list[int]:
    """Keeper and init of a sandbox, if they live."""
    try:
        rows = [line.split() for line in (folder / "processes").read_text().splitlines()]
    except OSError:
        return []
    return [int(r[0]) for r in rows if len(r) == 2 and r[0].isdigit() and str(start_time(int(r[0]))) == r[1]]
