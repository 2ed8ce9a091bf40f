"""The life of an accepted run: taken up, executed, settled, finished. Every part may be killed and done again."""

import asyncio
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from harbor_assets.domain.endings import Ending
from harbor_assets.domain.errors import HarborAssetsError, NotReady, StorageFull
from harbor_assets.domain.outcomes import Outcome, Reason, TrialOutcome, Try
from harbor_assets.domain.phases import ResultState, RunPhase, TaskPhase, result_state, run_phase, task_phase
from harbor_assets.domain.plans import RunPlan, trial_id
from harbor_assets.domain.runs import MAX_LOST_WORKERS, Run, bundle_key
from harbor_assets.engine.account import Lost, ending_of, lost_tries, never_ran, row, unfinished
from harbor_assets.engine.admission_ports import GatedRuns
from harbor_assets.engine.bundles import BundleMaker
from harbor_assets.engine.execution import Ended, Execution, Listener, patiently, plan_work
from harbor_assets.engine.inspection import Finding, Inspection
from harbor_assets.engine.ports import Archived, Artifacts, TaskFolders, TrialRunner
from harbor_assets.engine.publication import Published, Publisher
from harbor_assets.engine.publishing import Publishing
from harbor_assets.engine.ranking import Ranked, Rankings
from harbor_assets.engine.tries import kept_try

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Settled:
    """What settling decided. Not yet written as the run's phase: that is `finish`, the last act of all.

    `error` says why merging failed, `stopped` why trials of it never began, `unpublished` why the run's Evaluation is
    not whole, `ranked` what was written to the leaderboard (None: there is none, or no bundle).
    """

    phase: RunPhase
    state: ResultState
    ended_at: datetime
    error: str | None = None
    ranked: Ranked | None = None
    unpublished: str | None = None
    stopped: str | None = None


def _now() -> datetime:
    return datetime.now(UTC)


class RunEngine:
    """What a worker does with a run.

    `work` is the folder of trials under way, `poll_seconds` how often a cancel is looked for, `queue_timeout_seconds`
    how long a run may wait for its first slot before it expires (None: for ever), `mirror_seconds` how often the log of
    a trial under way is stored for others to read (None: they see `work`).
    """

    def __init__(
        self,
        *,
        runs: GatedRuns,
        artifacts: Artifacts,
        folders: TaskFolders,
        runner: TrialRunner,
        bundles: BundleMaker,
        rankings: Rankings | None = None,
        publisher: Publisher | None = None,
        work: Path,
        poll_seconds: float,
        queue_timeout_seconds: float | None = None,
        mirror_seconds: float | None = None,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        self._queue_timeout, self._mirror_seconds = queue_timeout_seconds, mirror_seconds
        self._runs, self._artifacts, self._folders, self._runner = runs, artifacts, folders, runner
        self._rankings, self._publisher = rankings, publisher
        self._bundles, self._work, self._poll, self._clock = bundles, work, poll_seconds, clock

    def begin(self, run_id: str) -> Run:
        """Take the run up: counts this execution, and the worker before it if that was lost."""
        run = self._runs.begin_execution(run_id)
        self._announce(run)
        return run

    def has_work(self, run_id: str) -> bool:
        """True if trials are left that may still be run: no cancel, no stop, no deadline passed, no crash loop."""
        run = self._runs.get_run(run_id)
        if run.phase.terminal or run.admission.stop or self.over(run) or run.lost_workers >= MAX_LOST_WORKERS:
            return False
        return next(unfinished(run.plan, self._runs.outcomes(run_id)), None) is not None

    async def execute(self, run_id: str, listener: Listener, stop: asyncio.Event) -> Ended:
        """Run what has no outcome yet, until done, cancelled, out of time, or `stop` is set by a signal."""
        run = self._runs.get_run(run_id)
        with self._publishing(run, listener) as publishing:
            ended = await self._execution(run, publishing).run(stop)
        if ended is Ended.INTERRUPTED:
            await asyncio.to_thread(self._runs.release, run_id)
        return ended

    async def execute_task(
        self,
        run_id: str,
        index: int,
        listener: Listener,
        stop: asyncio.Event,
        *,
        lost: Callable[[], Lost | None] | None = None,
    ) -> Ended:
        """Run those trials of one task that have no outcome yet, one after another: what a cluster's Job does.

        `lost` says why the task's last worker was lost; it is asked if there was one. Raises KeyError if the run has no
        task with that index.
        """
        run = await patiently(self._runs.get_run, run_id)
        return await self._execution(run, listener, only=run.plan.task(index).index, lost=lost).run(stop)

    def take_slot(self, run_id: str) -> list[int]:
        """The run got its first slot, from which its deadline counts: the indexes of its tasks that have work left."""
        if not self.has_work(run_id):
            return []
        self._announce(self._runs.get_run(run_id))
        run = self._runs.mark_started(run_id, self._clock())
        return sorted({task.index for task, _ in unfinished(run.plan, self._runs.outcomes(run_id))})

    def _announce(self, run: Run) -> None:
        """Make the run's Evaluation if the submit could not. Its trials do not wait for what it needs."""
        if self._publisher is None or run.started_at is not None or run.phase.terminal:
            return  # there is one, or somebody deleted it on purpose
        try:
            self._publisher.begin(run.plan)
        except HarborAssetsError as error:
            log.warning("%s has no Evaluation yet: %s", run.id, error)

    def _publishing(self, run: Run, listener: Listener) -> AbstractContextManager[Listener]:
        if self._publisher is None:
            return nullcontext(listener)
        return Publishing(self._publisher, run, listener)

    def publish_trials(self, run_id: str, index: int) -> Published | None:
        """Publish the ended trials of one task of a run that goes on; None if the run is published nowhere, or has
        ended: then all of it is published."""
        run = self._runs.get_run(run_id)
        if self._publisher is None or run.plan.publication is None or run.phase.terminal:
            return None
        return self._publisher.publish_trials(run, self._runs.outcomes(run_id, index))

    def _execution(
        self,
        run: Run,
        listener: Listener,
        only: int | None = None,
        lost: Callable[[], Lost | None] | None = None,
    ) -> Execution:
        return Execution(
            run,
            runs=self._runs,
            artifacts=self._artifacts,
            folders=self._folders,
            runner=self._runner,
            listener=listener,
            work=plan_work(self._work, run.plan),
            poll_seconds=self._poll,
            only=only,
            mirror_seconds=self._mirror_seconds,
            lost=lost,
            clock=self._clock,
        )

    def outcomes(self, run_id: str, index: int | None = None) -> Sequence[TrialOutcome]:
        """The rows so far; those of one task where `index` says so."""
        return self._runs.outcomes(run_id, index)

    def why_stopped(self, run_id: str) -> str | None:
        """Why no trial of the run may begin any more; None: one may."""
        stop = self._runs.admission(run_id).stop
        return stop.message if stop else None

    def place(self, run_id: str, path: str) -> str:
        """Where a person finds a file or folder of the run's bundle: a path for a folder store, else the URL."""
        return self._artifacts.url(f"{bundle_key(run_id)}/{path}".rstrip("/"))

    def inspect(self, run_id: str, names: Sequence[str] | None = None) -> Iterator[Finding]:
        """What is found when the run's merged bundle is read back: see `engine/inspection.py`."""
        run = self._runs.get_run(run_id)
        return Inspection(run, self._runs.outcomes(run_id), self._artifacts).find(names)

    def task_files(self, task: Archived) -> list[tuple[str, int]]:
        """(path, bytes) of a task's files, sorted."""
        folder = self._folders.get(task)
        found = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
        return sorted((path.relative_to(folder).as_posix(), path.stat().st_size) for path in found)

    # --- settle ---------------------------------------------------------------------------------------------------

    def settle(self, run_id: str, lost: Mapping[int, Lost] | None = None, *, unmerged: str | None = None) -> Settled:
        """Account for every planned trial and merge the bundle. Idempotent, and safe to be killed anywhere.

        `lost` says, by task index, what became of task workers that left no outcome; `unmerged` why no bundle is made.

        Raises `StorageFull` so that the next worker tries again; after too many lost ones the run ends with result
        state `failed` instead.
        """
        run = self._runs.get_run(run_id)
        rows = self._account(run, lost or {})
        phases = _task_phases(rows)
        phase = run_phase(
            phases,
            cancelled=any(r.outcome is Outcome.CANCELLED for r in rows),
            expired=any(r.outcome is Outcome.EXPIRED for r in rows),
        )
        ended_at = run.ended_at or max((t.end for r in rows for t in r.tries if t.end), default=self._clock())
        error = unmerged
        ranked: Ranked | None = None
        try:
            if unmerged is None:
                self._bundles.make(run, rows, phase=phase, ended_at=ended_at)
                if self._rankings is not None:
                    ranked = self._rankings.settled(run_id)
        except Exception as failure:
            if isinstance(failure, StorageFull) and run.lost_workers < MAX_LOST_WORKERS:
                raise
            log.exception("merging the results of %s failed", run_id)
            error = f"merging failed: {type(failure).__name__}: {failure}"
        unpublished = self._publisher.settled(run, rows, phase=phase, ended_at=ended_at) if self._publisher else None
        stop = run.admission.stop
        cut_short = stop is not None and any(r.reason is Reason.RUN_STOPPED for r in rows)
        return Settled(
            phase=phase,
            state=result_state(phases, merged=error is None),
            ended_at=ended_at,
            error=error,
            ranked=ranked,
            unpublished=unpublished,
            stopped=f"the run was stopped: {stop.message}" if stop and cut_short else None,
        )

    def settle_again(self, run_id: str) -> tuple[Settled, RunPlan, Sequence[TrialOutcome]]:
        """Merge an ended run's bundle once more: what it says, with plan and rows.

        Raises `NotReady` for a run that goes on: settling it would end every trial that has no outcome yet.
        """
        run = self._runs.get_run(run_id)
        if not run.phase.terminal:
            raise NotReady(
                f"Run {run_id} is {run.phase}; its bundle is merged when it has ended. "
                f"Follow it with: harbor-assets runs status {run_id} --watch"
            )
        return self.settle(run_id), run.plan, self._runs.outcomes(run_id)

    def finish(self, run_id: str, settled: Settled) -> Run:
        """Write the terminal phase, last of all, and drop the run's scratch folder."""
        error = "; ".join(said for said in (settled.error, settled.stopped, settled.unpublished) if said) or None
        run = self._runs.finish(run_id, settled.phase, settled.state, at=settled.ended_at, error=error)
        shutil.rmtree(plan_work(self._work, run.plan), ignore_errors=True)
        return run

    def over(self, run: Run) -> bool:
        """True if nothing of the run may go on: cancelled, out of time, or too long without a slot."""
        return run.cancel_requested_at is not None or self._late(run)

    def _account(self, run: Run, lost: Mapping[int, Lost]) -> Sequence[TrialOutcome]:
        rows = self._runs.outcomes(run.id)
        missing = list(unfinished(run.plan, rows))
        if not missing:
            return rows
        all_tries = self._runs.tries(run.id)
        queued = run.started_at is None and self._queue_end(run) is not None
        for task, k in missing:
            begun = [start for start, _ in all_tries.get((task.index, k), ())]
            trial = trial_id(task, k)
            ended = [kept_try(self._artifacts, run.id, trial, number) for number in range(1, len(begun) + 1)]
            if stopped := self._last_word(run, ended):
                tries = lost_tries(begun, None, ended)
                self._runs.add_outcome(row(run.plan, task, k, stopped, tries=tries, evidence=tries[-1].leftovers))
                continue
            ending = never_ran(
                cancelled=run.cancel_requested_at is not None,
                expired=self._late(run),
                queued=queued,
                deadline=run.deadline or self._queue_end(run),
                lost_workers=run.lost_workers,
                begun=bool(begun),
                lost=lost.get(task.index),
                stopped=run.admission.stop.message if run.admission.stop else None,
            )
            self._runs.add_outcome(row(run.plan, task, k, ending, tries=lost_tries(begun, lost.get(task.index), ended)))
        return self._runs.outcomes(run.id)

    def _last_word(self, run: Run, tries: Sequence[Try | None]) -> Ending | None:
        """How a trial of a stopped run ended that would have been tried again: as its last try did."""
        last = tries[-1] if tries else None
        if run.admission.stop is None or self.over(run) or last is None or last.reason is None:
            return None
        return ending_of(last, last.reason)

    def _queue_end(self, run: Run) -> datetime | None:
        return run.created_at + timedelta(seconds=self._queue_timeout) if self._queue_timeout is not None else None

    def _late(self, run: Run) -> bool:
        until = run.deadline or self._queue_end(run)
        return until is not None and self._clock() >= until


def _task_phases(rows: Sequence[TrialOutcome]) -> list[TaskPhase]:
    by_task: dict[int, list[Outcome]] = {}
    for r in rows:
        by_task.setdefault(r.index, []).append(r.outcome)
    return [task_phase(outcomes) for outcomes in by_task.values()]
