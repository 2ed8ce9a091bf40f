"""Workers on this machine: one detached process per run, which goes on when the terminal closes."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from harbor_assets.local import locks
from harbor_assets.local.last_words import last_words

# What a worker writes before its first trial is done: a new home's Dagster files 0.7 MB, a run 0.2, a trial 0.05.
MIN_FREE_BYTES = 4 << 20
MEGABYTE = 1 << 20


class LocalExecutions:
    """Implements the engine's `Executions` with processes.

    `locks_folder`, `logs_folder` lie in `home`; `environment` is what the worker gets to see; `reap` removes what
    dead workers' sandboxes left and says what it removed.
    """

    def __init__(
        self,
        *,
        home: Path,
        locks_folder: Path,
        logs_folder: Path,
        environment: dict[str, str],
        reap: Callable[[], Sequence[str]],
    ) -> None:
        self._home, self._locks, self._logs = home, locks_folder, logs_folder
        self._environment, self._reap = environment, reap
        self._children: dict[str, subprocess.Popen[bytes]] = {}  # run -> its worker, if this process started it

    def start(self, run_id: str) -> bool:
        """Start a worker; False if one is at work already. The lock is taken here and inherited."""
        fd = locks.hold(self._locks, run_id)
        if fd is None:
            return False
        try:
            self._logs.mkdir(parents=True, exist_ok=True)
            with (self._logs / f"{run_id}.log").open("ab") as log:
                self._children[run_id] = subprocess.Popen(
                    [sys.executable, "-P", "-m", "harbor_assets.worker", run_id, str(fd)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # a closed terminal or Ctrl-C must not reach it
                    pass_fds=(fd,),
                    cwd="/",  # hold no folder of the user's
                    env={**self._environment, "PYTHONUNBUFFERED": "1"},
                )
        finally:
            os.close(fd)
        return True

    def alive(self, run_id: str) -> bool:
        """True while a worker holds the run's lock."""
        return locks.held(self._locks, run_id)

    def blocked(self) -> str | None:
        """See `engine.ports.Executions`."""
        disk = os.statvfs(self._home)
        free = (disk.f_bfree if os.geteuid() == 0 else disk.f_bavail) * disk.f_frsize
        if free >= MIN_FREE_BYTES:
            return None
        return (
            f"No space left below {self._home}: {free / MEGABYTE:.1f} MB are free, a run needs {MIN_FREE_BYTES >> 20}. "
            "Free some, then repeat."
        )

    def last_words(self, run_id: str) -> str | None:
        """See `engine.ports.Executions`."""
        child = self._children.pop(run_id, None)
        return last_words(self._logs / f"{run_id}.log", child.poll() if child else None)

    def clean(self) -> Sequence[str]:
        """Remove what dead workers left."""
        return self._reap()
