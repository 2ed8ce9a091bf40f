"""One execution of a run: every task without an outcome, side by side up to the run's cap, each ending in one row.

The laptop's worker calls this for the whole run, a cluster's Job for its one task. It knows nothing of Dagster: a
listener is told what begins and ends.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from harbor_assets.domain.endings import Ending, cut, trial_error
from harbor_assets.domain.errors import HarborAssetsError, ServiceUnavailable, StorageFull
from harbor_assets.domain.outcomes import OUTCOME_OF, Outcome, Reason, TrialOutcome, Try
from harbor_assets.domain.plans import PlannedTask, RunPlan, trial_id
from harbor_assets.domain.retries import pause_before, tried_again
from harbor_assets.domain.runs import Run, bundle_key
from harbor_assets.engine import admission
from harbor_assets.engine.account import Lost, evidence_path, row, unfinished
from harbor_assets.engine.admission_ports import GatedRuns
from harbor_assets.engine.logs import LIVE, keep_live, live_key, mirror
from harbor_assets.engine.ports import Artifacts, TaskFolders, TrialRunner
from harbor_assets.engine.tries import forget_tries, keep_try, kept_try

log = logging.getLogger(__name__)

STOP_GRACE_SECONDS = (
    20.0  # a cancelled trial stops its sandbox in well under a second; past this it is left to the reaper
)

_LOST = "the worker was lost or stopped while this try was under way"
PATIENCE_SECONDS = 600.0  # a trial waits this long for its catalog or store: longer than a database restarts
PATIENCE_PAUSE_SECONDS = 2.0


class Ended(StrEnum):
    """Why an execution is over."""

    DONE = "done"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    STOPPED = "stopped"  # no trial may begin any more: `domain/admission.py`
    INTERRUPTED = "interrupted"  # a signal without a cancel: the next worker goes on


class Listener(Protocol):
    """Told what begins and ends, from the event loop's thread; must be quick."""

    def task_began(self, run_id: str, task: PlannedTask) -> None: ...

    def task_ended(self, run_id: str, task: PlannedTask, rows: Sequence[TrialOutcome]) -> None:
        """`rows` are fewer than the plan's attempts if the execution was stopped."""
        ...


def _now() -> datetime:
    return datetime.now(UTC)


class Execution:
    """The trials of one execution. `work` is a folder of the run's own for trials under way.

    `poll_seconds`: how often the catalog is asked for a cancel. `only`: the index of the one task to run; else all.
    `mirror_seconds`: how often the log of a trial under way is stored for others to read; None where they see `work`.
    `lost`: why the last worker of the one task was lost, if anybody knows; asked where there was one.
    """

    def __init__(
        self,
        run: Run,
        *,
        runs: GatedRuns,
        artifacts: Artifacts,
        folders: TaskFolders,
        runner: TrialRunner,
        listener: Listener,
        work: Path,
        poll_seconds: float,
        only: int | None = None,
        mirror_seconds: float | None = None,
        lost: Callable[[], Lost | None] | None = None,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        self._only, self._mirror_seconds, self._lost = only, mirror_seconds, lost
        self._run, self._plan = run, run.plan
        self._runs, self._artifacts, self._folders, self._runner = runs, artifacts, folders, runner
        self._listener, self._work, self._poll, self._clock = listener, work, poll_seconds, clock
        self._ended: Ended | None = None
        self._stopped = False
        self._waiting = asyncio.Lock()  # of those that wait for the gate one asks, and the others for their turn
        self._started = run.started_at is not None

    async def run(self, stop: asyncio.Event) -> Ended:
        """Run what has no outcome yet. `stop` set from outside means a signal.

        Raises `StorageFull` and other faults of our own after the trials under way were stopped; their rows are
        missing then, and the next execution runs them.
        """
        rows = await patiently(self._runs.outcomes, self._run.id, self._only)
        todo: dict[int, list[int]] = {}
        for task, k in unfinished(self._plan, rows):
            if self._only not in (None, task.index):
                continue
            todo.setdefault(task.index, []).append(k)
        self._tries = await patiently(self._runs.tries, self._run.id, self._only)
        gate = asyncio.Semaphore(self._plan.n_concurrent)
        done = {r.index: [x for x in rows if x.index == r.index] for r in rows}
        jobs = [
            asyncio.create_task(self._task(gate, self._plan.task(index), ks, done.get(index, [])), name=f"task-{index}")
            for index, ks in todo.items()
        ]
        watchers = [asyncio.create_task(self._watch_stop(stop)), asyncio.create_task(self._watch_catalog())]
        try:
            await self._until_over(jobs, watchers)
        finally:
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)
        return self._ended or (Ended.STOPPED if self._stopped else Ended.DONE)

    async def _until_over(self, jobs: Sequence[asyncio.Task[None]], watchers: Sequence[asyncio.Task[None]]) -> None:
        pending: set[asyncio.Task[None]] = set(jobs)
        fault: BaseException | None = None
        while pending and not self._ended and not fault:
            ready, _ = await asyncio.wait({*pending, *watchers}, return_when=asyncio.FIRST_COMPLETED)
            pending -= ready
            fault = next((t.exception() for t in ready if not t.cancelled() and t.exception()), None)
        for job in pending:
            job.cancel()
        if pending:
            _, stuck = await asyncio.wait(pending, timeout=STOP_GRACE_SECONDS)
            for job in stuck:
                log.error("%s did not stop within %.0f s; it is left to the reaper", job.get_name(), STOP_GRACE_SECONDS)
        if fault:
            raise fault

    # --- what ends an execution early -----------------------------------------------------------------------------

    async def _watch_stop(self, stop: asyncio.Event) -> None:
        await stop.wait()
        # Who cancels a run on a cluster marks the catalog first, then ends our process: the mark decides what it is.
        asked, _ = await self._asked_to_end()
        self._ended = self._ended or asked or Ended.INTERRUPTED

    async def _watch_catalog(self) -> None:
        while True:
            asked, pause = await self._asked_to_end()
            if asked:
                self._ended = self._ended or asked
                return
            await asyncio.sleep(pause)

    async def _asked_to_end(self) -> tuple[Ended | None, float]:
        """What stands in the catalog, and how many seconds until it is worth looking again.

        A catalog that does not answer ends nothing: a database that restarts must not cost the trials under way.
        """
        try:
            marks = await asyncio.to_thread(self._runs.marks, self._run.id)
        except ServiceUnavailable as error:
            log.warning("the catalog did not say whether the run was cancelled: %s", error)
            return None, self._poll
        run = self._run.model_copy(update=marks.model_dump())
        until = run.deadline
        if run.cancel_requested_at:
            return Ended.CANCELLED, 0.0
        left = (until - self._clock()).total_seconds() if until else self._poll
        return (Ended.EXPIRED, 0.0) if left <= 0 else (None, min(self._poll, left))

    # --- one task -------------------------------------------------------------------------------------------------

    async def _task(
        self, gate: asyncio.Semaphore, task: PlannedTask, ks: Iterable[int], rows: list[TrialOutcome]
    ) -> None:
        async with gate:
            if not self._started:
                self._started = True
                await patiently(self._runs.mark_started, self._run.id, self._clock())
            if not await self._may_begin():
                return
            self._listener.task_began(self._run.id, task)
            try:
                for number, k in enumerate(ks):
                    if ended := await self._trial(task, k, admitted=number == 0):
                        rows.append(ended)
            finally:
                self._listener.task_ended(self._run.id, task, rows)

    async def _may_begin(self) -> bool:
        """Wait while the run is paused; False if it is stopped, and nothing begins any more."""
        answer = await self._ask()
        if not answer.may and answer.seconds is not None:
            async with self._waiting:
                while True:
                    answer = await self._ask()
                    if answer.may or answer.seconds is None:
                        break
                    await asyncio.sleep(min(answer.seconds, self._poll))
        self._stopped = self._stopped or not answer.may
        return answer.may

    async def _ask(self) -> admission.Answer:
        return await patiently(admission.ask, self._runs, self._run.id, self._clock())

    async def _trial(self, task: PlannedTask, k: int, *, admitted: bool) -> TrialOutcome | None:
        """None: the run was stopped before the trial came to an end that counts; settling accounts for it. `admitted`:
        its first try may begin without being asked for."""
        earlier = await self._keep_earlier_tries(task, k)
        while True:
            ended = [tried for tried in earlier if tried.reason is not None]
            pause = pause_before(len(ended)) if ended else 0.0
            if not admitted and not ended and not await self._may_begin():
                return None
            done = await self._try(task, k, earlier, pause, ask=bool(ended) and not admitted)
            if done is None:
                return None
            start, folder, ending = done
            admitted = False
            # What a try came to is kept before anybody is told: no cancel may come between.
            if self._ended or not self._again(task, ending, ended):
                outcome = await _to_its_end(self._finish(task, k, ending, folder, start, earlier))
                await self._tell(task, k, ending, start)
                return outcome
            log.warning("%s is tried again: %s", trial_id(task, k), ending.reason)
            number = len(earlier) + 1
            earlier.append(await _to_its_end(self._keep_ended_try(task, k, number, ending, folder, start)))
            await self._tell(task, k, ending, start)

    async def _tell(self, task: PlannedTask, k: int, ending: Ending, began: datetime) -> None:
        trial, now = trial_id(task, k), self._clock()
        await patiently(admission.tell, self._runs, self._run.id, trial, ending, began=began, now=now)

    def _again(self, task: PlannedTask, ending: Ending, earlier: Sequence[Try]) -> bool:
        plan = self._plan
        return task.image_problem is None and tried_again(
            ending, earlier, max_retries=plan.max_retries, infra_retries=plan.infra_retries
        )

    async def _try(
        self, task: PlannedTask, k: int, earlier: Sequence[Try], pause: float, *, ask: bool
    ) -> tuple[datetime, Path, Ending] | None:
        """One try of a trial after a `pause` in seconds: when it began, its folder, how it ended. `ask`: whether it may
        begin is asked after the pause, in which the run may have been paused or stopped; None if it may not."""
        start, folder = self._clock(), self._work / f"try-{len(earlier) + 1}" / trial_id(task, k)
        try:
            await asyncio.sleep(pause)
            if ask and not await self._may_begin():
                return None
            start = self._clock()
            path = evidence_path(self._run.id, task, k)
            await patiently(self._runs.add_try, self._run.id, task.index, k, start, path)
            ending = await self._attempt(task, k, folder)
            if OUTCOME_OF[ending.reason] is Outcome.INFRA_FAILED:
                # Who ends a run marks the catalog, then takes its sandboxes away: the loss may be seen before the mark.
                self._ended = self._ended or (await self._asked_to_end())[0]
                ending = self._stopped_ending() or ending
        except asyncio.CancelledError:
            stopped = self._stopped_ending()
            if stopped is not None:  # else a signal: no outcome, the next execution runs this trial again
                await _to_its_end(self._finish(task, k, stopped, folder, start, earlier))
            raise
        return start, folder, ending

    async def _attempt(self, task: PlannedTask, k: int, folder: Path) -> Ending:
        if problem := task.image_problem:  # known since the run was accepted: no sandbox could begin
            kind = "ImagePullError" if problem.reason == "image_pull" else "ImageBuildError"
            return Ending(Reason(problem.reason), cut(problem.message), error=trial_error(kind, problem.message))
        try:
            source = await asyncio.to_thread(self._folders.get, task)
        except StorageFull:
            raise
        except HarborAssetsError as error:
            kind = type(error).__name__
            return Ending(Reason.TASK_UNREADABLE, cut(str(error)), error=trial_error(kind, str(error)))
        await asyncio.to_thread(folder.parent.mkdir, parents=True, exist_ok=True)
        if self._mirror_seconds is None:
            return await self._runner.run(self._plan, task, k, source=source, folder=folder)
        live = live_key(self._run.id, trial_id(task, k))
        ended = asyncio.Event()
        mirroring = asyncio.create_task(mirror(self._artifacts, folder / LIVE, live, self._mirror_seconds, ended))
        try:
            return await self._runner.run(self._plan, task, k, source=source, folder=folder)
        finally:
            ended.set()
            await mirroring

    def _stopped_ending(self) -> Ending | None:
        if self._ended is Ended.CANCELLED:
            return Ending(Reason.CANCELLED_BY_USER, "the run was cancelled while this trial was under way")
        if self._ended is Ended.EXPIRED:
            return Ending(Reason.RUN_DEADLINE, "the run's time was up while this trial was under way")
        return None

    async def _finish(
        self, task: PlannedTask, k: int, ending: Ending, folder: Path, start: datetime, earlier: Sequence[Try]
    ) -> TrialOutcome:
        """Evidence first, then the row: a row whose evidence is missing would be worse than a trial run twice."""
        evidence = evidence_path(self._run.id, task, k) if folder.is_dir() else None
        if evidence:
            key = f"{bundle_key(self._run.id)}/{evidence}"
            left_out = await patiently(self._artifacts.put_tree, key, folder)
            if left_out:
                ending = replace(ending, details={**ending.details, "evidence_left_out": left_out})
        tries = tuple(earlier)
        if ending.reason is not Reason.WORK_NOT_KEPT or evidence:  # else nothing was there to be executed
            tries += (_ended_try(start, self._clock(), ending, evidence),)
        outcome = row(self._plan, task, k, ending, tries=tries, evidence=evidence)
        await patiently(self._runs.add_outcome, outcome)
        if evidence and self._mirror_seconds is not None:
            await patiently(self._artifacts.remove, live_key(self._run.id, trial_id(task, k)))
        if earlier:
            await patiently(forget_tries, self._artifacts, self._run.id, trial_id(task, k))
        return outcome

    async def _keep_ended_try(
        self, task: PlannedTask, k: int, number: int, ending: Ending, folder: Path, start: datetime
    ) -> Try:
        """The record of a try that is followed by another: its folder beside the evidence of the one that will count,
        and what is known of it where the next worker finds it, should this one be lost."""
        path = None
        if folder.is_dir():
            path = evidence_path(self._run.id, task, k, earlier_try=number)
            await patiently(self._artifacts.put_tree, f"{bundle_key(self._run.id)}/{path}", folder)
        error = ending.error or trial_error(str(ending.reason), ending.message or "")
        ended = _ended_try(start, self._clock(), ending, path).model_copy(
            update={"error": error, "reason": ending.reason}
        )
        await patiently(keep_try, self._artifacts, self._run.id, trial_id(task, k), number, ended)
        return ended

    async def _keep_earlier_tries(self, task: PlannedTask, k: int) -> list[Try]:
        """Tries of earlier workers. Those that ended are as they were recorded; what lost ones left is kept beside the
        evidence of the try that counts."""
        trial = trial_id(task, k)
        kept, begun = [], self._tries.get((task.index, k), ())
        why = (await patiently(self._lost)) if begun and self._lost else None
        for number, (start, _) in enumerate(begun, start=1):
            if ended := await patiently(kept_try, self._artifacts, self._run.id, trial, number):
                kept.append(ended)
                continue
            left = self._work / f"try-{number}" / trial_id(task, k)
            path = evidence_path(self._run.id, task, k, earlier_try=number)
            key = f"{bundle_key(self._run.id)}/{path}"
            if left.is_dir():
                await asyncio.to_thread(self._artifacts.put_tree, key, left)
            elif self._mirror_seconds is not None and number == len(begun):
                # The lost worker's disk went with it; its log as far as it was stored is of its last try.
                await asyncio.to_thread(
                    keep_live, self._artifacts, live_key(self._run.id, trial_id(task, k)), f"{key}/{LIVE}"
                )
            there = await asyncio.to_thread(lambda key=key: next(iter(self._artifacts.list(key)), None))
            said = why.message if why and number == len(begun) else _LOST
            error = trial_error("WorkerLost", said)
            kept.append(Try(start=start, error=error, leftovers=path if there else None))
        return kept


def _ended_try(start: datetime, end: datetime, ending: Ending, leftovers: str | None) -> Try:
    """What is kept of a try that came to its end, apart from what the row says of the last."""
    spent = ending.measurements
    return Try(
        start=start,
        end=end,
        cost=spent.cost_usd,
        error=ending.error,
        leftovers=leftovers,
        reward=ending.uncounted if ending.reward is None else ending.reward,
        prompt_tokens=spent.prompt_tokens,
        completion_tokens=spent.completion_tokens,
        cache_read_tokens=spent.cache_read_tokens,
    )


async def patiently[**P, T](work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do it again while a service does not answer: a trial that took minutes or hours is not given up for that."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return await asyncio.to_thread(work, *args, **kwargs)
        except ServiceUnavailable as error:
            if time.monotonic() >= until:
                raise
            log.warning("waiting: %s", error)
            await asyncio.sleep(PATIENCE_PAUSE_SECONDS)


async def _to_its_end[T](work: Coroutine[Any, Any, T]) -> T:
    """Finish a short piece of work although this task is cancelled meanwhile; then pass the cancel on."""
    task, cancel = asyncio.create_task(work), None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancel = error
    if cancel:
        task.result()  # a fault of ours goes before the cancel
        raise cancel
    return task.result()


def plan_work(root: Path, plan: RunPlan) -> Path:
    """The folder of a run's trials under way."""
    return root / plan.run_id
