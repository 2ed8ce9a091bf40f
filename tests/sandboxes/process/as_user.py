"""Runs a command as an ordinary user: `python as_user.py COMMAND...`, started as root.

Interpreter and project may lie where such a user cannot go (below /root, say). So they are shown in a mount namespace
of its own, where every such folder on the way is replaced by a passable one; nothing is changed outside. There a tmpfs
can also be mounted on folders (`AS_USER_MOUNT`).
"""

import os
import sys
from pathlib import Path

from harbor_assets.sandboxes.process.inside import calls

UID = 65534  # nobody


def make_passable(needed: list[Path]) -> None:
    """Replace every folder that others may not enter, on the way to `needed`, by one that holds just what is needed."""
    barred = next((p for path in needed for p in reversed(path.parents) if not p.stat().st_mode & 0o1), None)
    if barred is None:
        return
    below = [path for path in needed if path.is_relative_to(barred)]
    held = [os.open(path, os.O_PATH) for path in below]
    calls.mount("tmpfs", str(barred), "tmpfs", 0, "mode=755")
    for path, fd in zip(below, held, strict=True):
        path.mkdir(parents=True, exist_ok=True)
        calls.mount(f"/proc/self/fd/{fd}", str(path), "", calls.BIND | calls.REC)
        os.close(fd)
    make_passable(needed)


def main(argv: list[str]) -> None:
    os.unshare(os.CLONE_NEWNS)
    calls.mount("", "/", "", calls.REC | calls.PRIVATE)
    make_passable([Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), Path(__file__).resolve().parents[3]])
    for path in os.environ.get("AS_USER_MOUNT", "").split():
        calls.mount("tmpfs", path, "tmpfs")
    os.setgroups([])
    os.setresgid(UID, UID, UID)
    os.setresuid(UID, UID, UID)
    os.environ["HOME"] = "/nonexistent"
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main(sys.argv[1:])
