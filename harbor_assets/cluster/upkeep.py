"""Looking after a deployment's runs: those out of time are stopped, those that have ended are settled or go on.

Every function may be called at any time, by several processes at once, and be killed anywhere: it looks at what stands
in the catalog, Dagster and the cluster, and takes the next step from there.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime

from harbor_assets.cluster.client import ClusterClient
from harbor_assets.cluster.executions import ClusterExecutions
from harbor_assets.cluster.reaper import Reaped, remove_run
from harbor_assets.cluster.settlement import Order, given_up, order
from harbor_assets.domain.errors import Broken, HarborAssetsError, Refused
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.domain.runs import Run
from harbor_assets.engine.lifecycle import RunEngine, Settled
from harbor_assets.engine.ports import RunCatalog

log = logging.getLogger(__name__)

_PAGE = 1000  # active runs looked at; a deployment with more has other troubles first


class Upkeep:
    """What the sensors of a deployment call. Each method returns one line for everything it did."""

    def __init__(
        self, *, runs: RunCatalog, engine: RunEngine, executions: ClusterExecutions, client: ClusterClient
    ) -> None:
        self._runs, self._engine, self._executions, self._client = runs, engine, executions, client

    def stop_overdue(self) -> list[str]:
        """Stop runs that were cancelled, are out of time, or waited too long for a slot, whoever should have."""

        def work(run: Run) -> str | None:
            if not self._engine.over(run) or not self._executions.alive(run.id):
                return None
            self._executions.stop(run.id)
            return "stopped: cancelled" if run.cancel_requested_at else "stopped: out of time"

        return list(self._each(work))

    def attend(self) -> tuple[list[str], list[Order]]:
        """Look after runs whose execution has ended: let them go on where trials without an outcome may still be run,
        else order that they are settled. Returns what was done, and the orders.

        What the execution left in the cluster is deleted first, and nothing is decided until its pods are gone: a trial
        may end after its run did.
        """
        orders: list[Order] = []
        page = self._runs.list_runs(active=True, page_size=_PAGE)
        broken = [said for run_id in page.unreadable if (said := self._end_unreadable(run_id))]
        return [*self._each(lambda run: self._attend(run, orders)), *broken], orders

    def settle(self, run_id: str) -> tuple[Run, Settled]:
        """Account for every trial and merge the bundle. The run's end is not written yet: that is `finish`.

        Raises `Refused` for a run that has not ended, `StorageFull`, and what the catalog raises.
        """
        run = self._runs.get_run(run_id)
        if not run.phase.terminal and (self._executions.alive(run_id) or self._engine.has_work(run_id)):
            raise Refused(
                f"Run {run_id} has not ended; it is settled by itself when it has. Cancel it to end it now: "
                f"harbor-assets runs cancel {run_id}"
            )
        return run, self._engine.settle(run_id, self._executions.lost(run_id))

    def finish(self, run_id: str, settled: Settled) -> None:
        """Write the run's end, last of all."""
        self._engine.finish(run_id, settled)

    def reap(self, *, dry_run: bool = False) -> Reaped:
        """Remove what nobody needs any more: of runs that have ended, of runs that the catalog does not know, and the
        sandboxes of workers that are dead. With `dry_run` it only counts."""
        return self._executions.reap(dry_run=dry_run)

    def _attend(self, run: Run, orders: list[Order]) -> str | None:
        if self._executions.alive(run.id):
            return None
        if not self._engine.over(run) and self._executions.cancelled_elsewhere(run.id):
            run = self._runs.request_cancel(run.id, datetime.now(UTC))
        removed = remove_run(self._client, run.id)
        if removed.left:
            return str(removed)
        if self._engine.has_work(run.id):
            return "goes on as its next execution" if self._executions.start(run.id) else None
        tried = self._executions.settlements(run.id)
        if why := given_up(tried):
            settled = self._engine.settle(run.id, self._executions.lost(run.id), unmerged=why)
            self._engine.finish(run.id, settled)
            return f"{settled.phase}, result {settled.state}: {why}"
        if due := order(run.id, tried, datetime.now(UTC)):
            orders.append(due)
            return f"is to be settled, try {due.number}"
        return None

    def _end_unreadable(self, run_id: str) -> str | None:
        """A run whose plan cannot be read fails: nobody can say what it should have run."""
        try:
            self._executions.stop(run_id)
            if self._executions.alive(run_id) or remove_run(self._client, run_id).left:
                return None
            self._runs.get_run(run_id)
        except Broken as broken:
            with suppress(Broken):  # said again after the phase was written
                self._runs.finish(run_id, RunPhase.FAILED, ResultState.NONE, at=datetime.now(UTC), error=str(broken))
            return f"{run_id}: {broken}"
        except HarborAssetsError as error:
            return f"{run_id}: left for the next look: {error}"
        return None

    def _each(self, work: Callable[[Run], str | None]) -> Iterator[str]:
        """One run's trouble is not another's: it is said, and tried again at the next look."""
        page = self._runs.list_runs(active=True, page_size=_PAGE)
        for run in reversed(page.items):
            try:
                did = work(run)
            except HarborAssetsError as error:
                log.warning("%s: %s", run.id, error)
                did = f"left for the next look: {error}"
            except Exception as error:
                log.exception("%s is left for the next look", run.id)
                did = f"left for the next look: {type(error).__name__}: {error}"
            if did:
                yield f"{run.id}: {did}"
