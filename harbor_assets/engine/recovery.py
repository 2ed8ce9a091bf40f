"""Letting runs go on that lost their worker, and saying why they lost it or why they cannot go on."""

from dataclasses import dataclass

from harbor_assets.domain.errors import Broken, HarborAssetsError, StorageFull
from harbor_assets.domain.runs import Run
from harbor_assets.engine.ports import Executions, RunCatalog

MAX_FALSE_STARTS = 2  # workers that died before they took their run up: a third would die of the same


@dataclass(frozen=True, slots=True)
class TakenUp:
    """A run that has a worker again. `why`: how it lost the one before, as far as anybody knows."""

    run_id: str
    why: str | None = None


@dataclass(frozen=True, slots=True)
class HeldUp:
    """A run that has no worker and cannot be given one now; `error` says why and what to do."""

    run_id: str
    error: HarborAssetsError


@dataclass(frozen=True, slots=True)
class Recovered:
    """What became of the runs without a worker."""

    taken_up: tuple[TakenUp, ...] = ()
    held_up: tuple[HeldUp, ...] = ()


class Recovery:
    """Looks for runs that are not terminal and have no worker. One object serves one process, and remembers which
    workers it started: one that dies before it takes its run up is counted nowhere else, since it may be the catalog
    that it cannot write."""

    def __init__(self, runs: RunCatalog, executions: Executions) -> None:
        self._runs, self._executions = runs, executions
        self._false_starts: dict[str, tuple[int, int]] = {}  # run -> (its executions then, workers started since)

    def recover(self) -> Recovered:
        """Start a worker for each run that lost its own; remove what dead workers left. Safe to call at any time, by
        several commands at once."""
        active = self._runs.list_runs(active=True, page_size=1000).items
        lost = [run for run in active if not self._executions.alive(run.id)]
        self._executions.clean()
        if not lost:
            return Recovered()
        if blocked := self._executions.blocked():
            return Recovered(held_up=tuple(HeldUp(run.id, StorageFull(blocked)) for run in lost))
        taken, held = [], []
        for run in lost:
            why = self._executions.last_words(run.id)
            if self._is_stuck(run):
                held.append(HeldUp(run.id, Broken(f"{run.id} cannot go on, its worker cannot start: {why}")))
            elif self._executions.start(run.id):
                taken.append(TakenUp(run.id, why))
        return Recovered(tuple(taken), tuple(held))

    def _is_stuck(self, run: Run) -> bool:
        """Whether workers that were started for the run died before they took it up. Counts the one to come."""
        executions, started = self._false_starts.get(run.id, (run.executions, 0))
        if executions != run.executions:
            started = 0
        self._false_starts[run.id] = (run.executions, started + 1)
        return started >= MAX_FALSE_STARTS
