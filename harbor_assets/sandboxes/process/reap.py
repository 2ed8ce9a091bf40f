"""Removes what a killed worker left. Every command calls it, so it costs a millisecond where there is nothing."""

import contextlib
import json
import os
import signal
import time
from pathlib import Path

from harbor_assets.sandboxes.process import limits, mask, net
from harbor_assets.sandboxes.process.inside.keeper import remove_tree
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
    folder = home.absolute() / "sandboxes"
    with contextlib.suppress(FileNotFoundError):
        left = [path for path in sorted(folder.iterdir()) if _is_left(path)]
        if left:
            _end_processes(left)
        for path in left:
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
    else:
        try:
            owner = Owner.parse(json.loads((path / "owner.json").read_text())["owner"])
        except FileNotFoundError:
            # A sandbox's folder appears with the file in it; its clean-up removes the file first.
            return path.is_dir()
        except (OSError, ValueError, KeyError, TypeError):
            owner = None
    return owner is not None and owner.dead


def _end_processes(folders: list[Path]) -> None:
    """Wait for the keepers of dead workers to end; kill those that hang."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while alive := [pid for folder in folders for pid in _processes(folder)]:
        if time.monotonic() > deadline:
            for pid in alive:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            return
        time.sleep(0.005)


def _processes(folder: Path) -> list[int]:
    """Keeper and init of a sandbox, if they live."""
    try:
        rows = [line.split() for line in (folder / "processes").read_text().splitlines()]
    except OSError:
        return []
    return [int(r[0]) for r in rows if len(r) == 2 and r[0].isdigit() and str(start_time(int(r[0]))) == r[1]]
