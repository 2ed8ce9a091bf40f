"""Whose a sandbox, a cgroup or an interface is: the process that made it, named so that its death can be told."""

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True)
class Owner:
    """A process: its id, its start time (clock ticks since boot) and the pid namespace in which the id counts.

    As text `<pid>-<start>-<namespace>`: fit for names of folders and cgroups.
    """

    pid: int
    start: int
    namespace: int

    def __str__(self) -> str:
        return f"{self.pid}-{self.start}-{self.namespace}"

    @classmethod
    def me(cls) -> Self:
        """This process."""
        pid = os.getpid()
        return cls(pid, start_time(pid) or 0, _namespace())

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The owner a text begins with; None if it does not begin with one."""
        parts = text.split("-", 3)[:3]
        if len(parts) < 3 or not all(part.isascii() and part.isdigit() for part in parts):
            return None
        return cls(*map(int, parts))

    @property
    def dead(self) -> bool:
        """True if the process is certainly gone. Of another pid namespace nothing is certain."""
        return self.namespace == _namespace() and start_time(self.pid) != self.start


def start_time(pid: int) -> int | None:
    """When a living process started, in clock ticks since boot; None if there is no such process.

    A zombie keeps its start time but counts as dead: under a pid 1 that does not reap, a killed worker stays one.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rsplit(b")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


@lru_cache(maxsize=1)
def _namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino
