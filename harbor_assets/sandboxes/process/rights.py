"""What this process may do on the machine."""

import os
from functools import lru_cache
from pathlib import Path

SYS_ADMIN, NET_ADMIN, MKNOD = 21, 12, 27  # capabilities(7)


@lru_cache(maxsize=1)
def privileged() -> bool:
    """True for the machine's root with the right to mount. Anybody else works in a user namespace, with one user id."""
    return os.geteuid() == 0 and not in_user_namespace() and has(SYS_ADMIN)


def has(capability: int) -> bool:
    """Whether the capability is effective in this process."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return False
    for line in status.splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> capability & 1)
    return False


def in_user_namespace() -> bool:
    """True if user ids here are not the machine's own: root is then not the machine's root."""
    try:
        fields = Path("/proc/self/uid_map").read_text().split()
    except OSError:
        return False
    return fields != ["0", "0", "4294967295"]
