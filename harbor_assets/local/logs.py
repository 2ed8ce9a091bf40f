"""Reading logs of runs on this machine, while they are written and after."""

from pathlib import Path

from harbor_assets.domain.plans import PlannedTask, trial_id
from harbor_assets.domain.runs import Run
from harbor_assets.domain.views import LogChunk
from harbor_assets.engine.execution import plan_work
from harbor_assets.engine.logs import LIVE, Piece, TaskLogs, chunk, file_piece
from harbor_assets.engine.ports import Artifacts, RunCatalog


class LocalLogs:
    """Implements the engine's `Logs` over the home's log folder, the trials under way, and the stored evidence."""

    def __init__(self, *, logs_folder: Path, work_folder: Path, runs: RunCatalog, artifacts: Artifacts) -> None:
        self._logs, self._work = logs_folder, work_folder
        self._tasks = TaskLogs(runs=runs, artifacts=artifacts, live=self._live)

    def read(self, run: Run, task: int | None, offset: int) -> LogChunk:
        """See `engine.ports.Logs`."""
        if task is not None:
            return self._tasks.read(run, task, offset)
        return chunk([file_piece(self._logs / f"{run.id}.log")], offset, ended=run.phase.terminal)

    def _live(self, run: Run, task: PlannedTask, k: int) -> Piece | None:
        tries = sorted(plan_work(self._work, run.plan).glob(f"try-*/{trial_id(task, k)}/{LIVE}"), key=_try_number)
        return file_piece(tries[-1]) if tries else None


def _try_number(path: Path) -> int:
    return int(path.parent.parent.name.removeprefix("try-"))
