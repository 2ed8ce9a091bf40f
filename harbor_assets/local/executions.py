"""Workers on this machine: one detached process per run, which goes on when the terminal closes."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from harbor_assets.local import locks


class LocalExecutions:
    """Implements the engine's `Executions` with processes.

    `locks_folder`, `logs_folder` lie in the home; `environment` is what the worker gets to see; `reap` removes what
    dead workers' sandboxes left and says what it removed.
    """

    def __init__(
        self,
        *,
        locks_folder: Path,
        logs_folder: Path,
        environment: dict[str, str],
        reap: Callable[[], Sequence[str]],
    ) -> None:
        self._locks, self._logs, self._environment, self._reap = locks_folder, logs_folder, environment, reap

    def start(self, run_id: str) -> bool:
        """Start a worker; False if one is at work already. The lock is taken here and inherited."""
        fd = locks.hold(self._locks, run_id)
        if fd is None:
            return False
        try:
            self._logs.mkdir(parents=True, exist_ok=True)
            with (self._logs / f"{run_id}.log").open("ab") as log:
                subprocess.Popen(
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

    def clean(self) -> Sequence[str]:
        """Remove what dead workers left."""
        return self._reap()
