"""Executions and the life of a run, with a scripted runner, a real catalog and an artifact store in memory."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harbor_assets.catalog import open_catalog
from harbor_assets.domain.endings import Ending
from harbor_assets.domain.errors import Broken, StorageFull
from harbor_assets.domain.outcomes import Outcome, Reason, TrialOutcome
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.domain.plans import AgentSpec, PlannedTask, RunPlan, SandboxChoice
from harbor_assets.domain.runs import MAX_LOST_WORKERS
from harbor_assets.engine.execution import Ended
from harbor_assets.engine.lifecycle import RunEngine
from tests.fakes.artifacts import MemoryArtifacts

RUN = "run-0123456789abcdef"
HEX = "a" * 64
Script = Callable[[PlannedTask, int], Awaitable[Ending]]


def plan(tasks: int | tuple[PlannedTask, ...] = 3, **changes: object) -> RunPlan:
    base: dict[str, object] = {
        "run_id": RUN,
        "workspace": "w",
        "owner": "me",
        "created_at": datetime.now(UTC),
        "taskset_ref": f"w/s#{HEX}",
        "tasks": tasks
        if isinstance(tasks, tuple)
        else tuple(
            PlannedTask(
                index=i,
                name=f"s-t{i}",
                native_task_id=f"t{i}",
                ref=f"w/s-t{i}#{HEX}",
                fileset_ref=f"w/harbor-tasks#t{i}/{HEX}/task_archive",
                files_hash=HEX,
                trial_key=HEX,
            )
            for i in range(tasks)
        ),
        "agent": AgentSpec(name="oracle"),
        "sandbox": SandboxChoice(kind="process", why="test"),
        "n_concurrent": 2,
        "harbor_version": "0",
        "harbor_assets_version": "0",
    }
    return RunPlan.model_validate({**base, **changes})


class Runner:
    """Plays a script; leaves a folder with one file, as a trial does."""

    def __init__(self, script: Script) -> None:
        self.script, self.ran, self.now, self.peak = script, [], 0, 0

    async def run(self, plan: RunPlan, task: PlannedTask, k: int, *, source: Path, folder: Path) -> Ending:
        self.ran.append((task.index, k))
        self.now += 1
        self.peak = max(self.peak, self.now)
        folder.mkdir()
        (folder / "trial.log").write_text("began\n")
        try:
            return await self.script(task, k)
        finally:
            self.now -= 1


class Folders:
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def get(self, task: PlannedTask) -> Path:
        if self.error and task.index == 1:
            raise self.error
        return Path("/nowhere")


class Listener:
    def __init__(self) -> None:
        self.began: list[int] = []
        self.ended: dict[int, list[Outcome]] = {}

    def task_began(self, run_id: str, task: PlannedTask) -> None:
        self.began.append(task.index)

    def task_ended(self, run_id: str, task: PlannedTask, rows: Sequence[TrialOutcome]) -> None:
        self.ended[task.index] = [row.outcome for row in rows]


class Bundles:
    """Stands for merging, which has tests of its own."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.made = error, 0

    def make(self, *args: object, **kwargs: object) -> dict[str, object]:
        self.made += 1
        if self.error:
            raise self.error
        return {}


class House:
    def __init__(
        self,
        root: Path,
        script: Script,
        *,
        folders: Folders | None = None,
        poll_seconds: float = 0.02,
        **plan_changes: object,
    ) -> None:
        self.catalog = open_catalog(f"sqlite:///{root / 'catalog.db'}")
        self.catalog.add_run(plan(**plan_changes), request_digest=HEX)  # type: ignore[arg-type]
        self.runner, self.listener, self.artifacts = Runner(script), Listener(), MemoryArtifacts()
        self.bundles = Bundles()
        self.engine = RunEngine(
            runs=self.catalog,
            artifacts=self.artifacts,
            folders=folders or Folders(),
            runner=self.runner,
            bundles=self.bundles,  # type: ignore[arg-type]
            work=root / "work",
            poll_seconds=poll_seconds,
        )

    async def execute(self, stop: asyncio.Event | None = None) -> Ended:
        self.engine.begin(RUN)
        return await self.engine.execute(RUN, self.listener, stop or asyncio.Event())

    def settle(self) -> tuple[RunPhase, ResultState]:
        settled = self.engine.settle(RUN)
        run = self.engine.finish(RUN, settled)
        return run.phase, run.result_state

    def outcomes(self) -> list[str]:
        return [row.outcome.value for row in self.catalog.outcomes(RUN)]


async def graded(task: PlannedTask, k: int) -> Ending:
    await asyncio.sleep(0.01)
    return Ending(Reason.GRADED, reward=1.0)


async def forever(task: PlannedTask, k: int) -> Ending:
    await asyncio.sleep(60)
    raise AssertionError("not stopped")


async def first_then_forever(task: PlannedTask, k: int) -> Ending:
    return await (graded if task.index == 0 else forever)(task, k)


def test_every_trial_ends_in_one_row_with_evidence(tmp_path: Path) -> None:
    house = House(tmp_path, graded, tasks=5, n_attempts=2)
    assert asyncio.run(house.execute()) is Ended.DONE
    rows = house.catalog.outcomes(RUN)
    assert [(r.index, r.k) for r in rows] == [(i, k) for i in range(5) for k in (1, 2)]
    assert house.runner.peak == 2
    assert house.listener.ended == {i: [Outcome.SCORED] * 2 for i in range(5)}
    for r in rows:
        assert r.evidence == f"evidence/harbor/{RUN}-task-{r.index}/s-t{r.index}__{r.index:05d}-{r.k}"
        assert house.artifacts.exists(f"runs/{RUN}/agent-eval-results/{r.evidence}/trial.log")
    assert house.settle() == (RunPhase.COMPLETED, ResultState.READY)
    assert not (tmp_path / "work" / RUN).exists()


def test_what_was_never_executed_has_no_try_and_no_duration(tmp_path: Path) -> None:
    house = House(tmp_path, graded, tasks=1)

    class NothingKept(Runner):
        async def run(self, plan: RunPlan, task: PlannedTask, k: int, *, source: Path, folder: Path) -> Ending:
            return Ending(Reason.WORK_NOT_KEPT, "nothing is kept")

    house.engine = RunEngine(
        runs=house.catalog,
        artifacts=house.artifacts,
        folders=Folders(),
        runner=NothingKept(graded),
        bundles=house.bundles,  # type: ignore[arg-type]
        work=tmp_path / "work",
        poll_seconds=0.02,
    )
    assert asyncio.run(house.execute()) is Ended.DONE
    (row,) = house.catalog.outcomes(RUN)
    assert (row.outcome, row.reason, row.tries) == (Outcome.NOT_STARTED, Reason.WORK_NOT_KEPT, ())
    assert house.settle() == (RunPhase.FAILED, ResultState.NONE)  # nothing was scored


def test_one_failed_trial_stops_no_other(tmp_path: Path) -> None:
    async def script(task: PlannedTask, k: int) -> Ending:
        return Ending(Reason.SANDBOX_LOST, "gone") if task.index == 1 else await graded(task, k)

    house = House(tmp_path, script)
    asyncio.run(house.execute())
    assert house.outcomes() == ["scored", "infra_failed", "scored"]
    assert house.settle() == (RunPhase.COMPLETED, ResultState.READY)


def test_a_task_whose_archive_is_broken_is_an_infrastructure_failure(tmp_path: Path) -> None:
    house = House(tmp_path, graded, folders=Folders(Broken("the archive is not what its hash says")))
    asyncio.run(house.execute())
    row = house.catalog.outcomes(RUN)[1]
    assert (row.outcome, row.reason, row.evidence) == (Outcome.INFRA_FAILED, Reason.TASK_UNREADABLE, None)
    assert house.outcomes()[0::2] == ["scored", "scored"]


def test_cancel_ends_what_is_under_way_and_what_had_not_begun(tmp_path: Path) -> None:
    house = House(tmp_path, first_then_forever, tasks=5)

    async def scenario() -> Ended:
        job = asyncio.create_task(house.execute())
        while len(house.runner.ran) < 3:  # the first has ended, two are under way
            await asyncio.sleep(0.01)
        house.catalog.request_cancel(RUN, datetime.now(UTC))
        return await asyncio.wait_for(job, 5)

    assert asyncio.run(scenario()) is Ended.CANCELLED
    assert house.outcomes() == ["scored", "cancelled", "cancelled"]  # the last two were never begun
    assert not house.engine.has_work(RUN)
    assert house.settle() == (RunPhase.CANCELLED, ResultState.READY)
    assert house.outcomes() == ["scored", *["cancelled"] * 4]
    rows = house.catalog.outcomes(RUN)
    assert [bool(r.evidence) for r in rows] == [True, True, True, False, False]


def test_a_sandbox_taken_away_by_a_cancel_is_cancelled(tmp_path: Path) -> None:
    """Who ends a run on a cluster marks it, then takes its sandboxes away: the loss may be seen before the mark."""

    async def taken_away(task: PlannedTask, k: int) -> Ending:
        await asyncio.sleep(0.2)  # the catalog was asked at the beginning, and will not be again
        house.catalog.request_cancel(RUN, datetime.now(UTC))
        return Ending(Reason.SANDBOX_LOST, "the pod was deleted")

    house = House(tmp_path, taken_away, tasks=1, poll_seconds=60.0)
    assert asyncio.run(asyncio.wait_for(house.execute(), 10)) is Ended.CANCELLED
    assert house.outcomes() == ["cancelled"]
    assert house.settle() == (RunPhase.CANCELLED, ResultState.NONE)


def test_the_deadline_counts_from_the_first_slot(tmp_path: Path) -> None:
    house = House(tmp_path, first_then_forever, timeout_seconds=1)
    assert asyncio.run(asyncio.wait_for(house.execute(), 10)) is Ended.EXPIRED
    assert house.settle() == (RunPhase.EXPIRED, ResultState.READY)
    assert house.outcomes() == ["scored", "expired", "expired"]


def test_a_signal_leaves_no_outcome_and_the_next_execution_goes_on(tmp_path: Path) -> None:
    house = House(tmp_path, first_then_forever, tasks=2)

    async def scenario() -> Ended:
        stop = asyncio.Event()
        job = asyncio.create_task(house.execute(stop))
        while house.outcomes() != ["scored"]:
            await asyncio.sleep(0.01)
        stop.set()
        return await asyncio.wait_for(job, 5)

    assert asyncio.run(scenario()) is Ended.INTERRUPTED
    assert house.outcomes() == ["scored"]
    assert house.engine.has_work(RUN)
    house.runner.script, house.runner.ran = graded, []
    assert asyncio.run(house.execute()) is Ended.DONE
    assert house.runner.ran == [(1, 1)]
    run = house.catalog.get_run(RUN)
    assert (run.executions, run.lost_workers) == (2, 0)
    row = house.catalog.outcomes(RUN)[1]
    assert len(row.tries) == 2
    assert row.tries[0].error is not None
    assert row.tries[0].leftovers == f"{row.evidence}.try-1"
    assert house.artifacts.exists(f"runs/{RUN}/agent-eval-results/{row.tries[0].leftovers}/trial.log")


def test_three_lost_workers_without_progress_settle_the_run(tmp_path: Path) -> None:
    house = House(tmp_path, graded)
    for _ in range(MAX_LOST_WORKERS):
        house.engine.begin(RUN)  # and dies
        assert house.engine.has_work(RUN)
    house.engine.begin(RUN)
    assert not house.engine.has_work(RUN)
    assert house.settle() == (RunPhase.FAILED, ResultState.NONE)
    assert house.outcomes() == ["not_started"] * 3


def test_a_full_disk_stops_the_execution_and_loses_nothing(tmp_path: Path) -> None:
    async def script(task: PlannedTask, k: int) -> Ending:
        if task.index == 1:
            await asyncio.sleep(0.3)  # the first task ends before
            raise StorageFull("full")
        return await first_then_forever(task, k)

    house = House(tmp_path, script)
    with pytest.raises(StorageFull):
        asyncio.run(asyncio.wait_for(house.execute(), 5))
    assert house.outcomes() == ["scored"]
    assert house.engine.has_work(RUN)


def test_merging_that_fails_is_a_result_state_of_its_own(tmp_path: Path) -> None:
    house = House(tmp_path, graded)
    asyncio.run(house.execute())
    house.bundles.error = ValueError("odd")
    assert house.settle() == (RunPhase.COMPLETED, ResultState.FAILED)
    assert "odd" in (house.catalog.get_run(RUN).error or "")


def test_a_full_disk_while_merging_is_tried_again(tmp_path: Path) -> None:
    house = House(tmp_path, graded)
    asyncio.run(house.execute())
    house.bundles.error = StorageFull("full")
    with pytest.raises(StorageFull):
        house.settle()
    assert not house.catalog.get_run(RUN).phase.terminal
    house.bundles.error = None
    assert house.settle() == (RunPhase.COMPLETED, ResultState.READY)


def test_settling_twice_changes_nothing(tmp_path: Path) -> None:
    house = House(tmp_path, graded)
    asyncio.run(house.execute())
    first = house.engine.settle(RUN)
    assert house.engine.settle(RUN) == first
    house.engine.finish(RUN, first)
    before = house.catalog.get_run(RUN)
    assert house.catalog.request_cancel(RUN, datetime.now(UTC) + timedelta(hours=1)) == before
