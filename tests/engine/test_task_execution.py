"""One task at a time, as a cluster's Job runs it, and what becomes of tasks whose workers were lost."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harbor_assets.domain.endings import Ending
from harbor_assets.domain.errors import ServiceUnavailable
from harbor_assets.domain.outcomes import Outcome, Reason
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.domain.plans import PlannedTask
from harbor_assets.engine import execution
from harbor_assets.engine.account import Lost
from harbor_assets.engine.execution import Ended
from tests.engine.test_execution import RUN, House, forever, graded


async def task(house: House, index: int, stop: asyncio.Event | None = None) -> Ended:
    return await house.engine.execute_task(RUN, index, house.listener, stop or asyncio.Event())


def test_only_that_task_runs_and_its_trials_one_after_another(tmp_path: Path) -> None:
    house = House(tmp_path, graded, n_attempts=3)
    assert asyncio.run(task(house, 1)) is Ended.DONE
    assert house.runner.ran == [(1, 1), (1, 2), (1, 3)]
    assert house.runner.peak == 1
    assert house.listener.ended == {1: [Outcome.SCORED] * 3}
    with pytest.raises(KeyError):
        asyncio.run(task(house, 7))


def test_the_slot_starts_the_clock_and_names_what_is_left(tmp_path: Path) -> None:
    house = House(tmp_path, graded)
    asyncio.run(task(house, 1))
    assert house.engine.take_slot(RUN) == [0, 2]
    started = house.catalog.get_run(RUN).started_at
    assert started
    assert house.engine.take_slot(RUN) == [0, 2]
    assert house.catalog.get_run(RUN).started_at == started
    house.catalog.request_cancel(RUN, datetime.now(UTC))
    assert house.engine.take_slot(RUN) == []


@pytest.mark.parametrize(("marked", "ended"), [(True, Ended.CANCELLED), (False, Ended.INTERRUPTED)])
def test_a_signal_is_a_cancel_only_if_the_catalog_says_so(tmp_path: Path, marked: bool, ended: Ended) -> None:
    house = House(tmp_path, forever)
    house.engine._poll = 60.0  # the signal comes long before the next look

    async def scenario() -> Ended:
        stop = asyncio.Event()
        job = asyncio.create_task(task(house, 0, stop))
        while not house.runner.ran:
            await asyncio.sleep(0.01)
        if marked:
            house.catalog.request_cancel(RUN, datetime.now(UTC))
        stop.set()
        return await asyncio.wait_for(job, 5)

    assert asyncio.run(scenario()) is ended
    assert house.outcomes() == (["cancelled"] if marked else [])


def test_a_catalog_that_restarts_costs_no_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "PATIENCE_PAUSE_SECONDS", 0.01)
    house = House(tmp_path, graded, tasks=1)
    marks, add_outcome, away = house.catalog.marks, house.catalog.add_outcome, [3, 3]

    def unavailable(number: int, then):  # type: ignore[no-untyped-def]
        def call(*args: object) -> object:
            if house.runner.ran and away[number] > 0:
                away[number] -= 1
                raise ServiceUnavailable("restarting")
            return then(*args)

        return call

    async def slow(task: PlannedTask, k: int) -> Ending:
        await asyncio.sleep(0.2)
        return Ending(Reason.GRADED, reward=1.0)

    house.runner.script = slow
    house.catalog.marks = unavailable(0, marks)  # type: ignore[method-assign]
    house.catalog.add_outcome = unavailable(1, add_outcome)  # type: ignore[method-assign]
    assert asyncio.run(task(house, 0)) is Ended.DONE
    assert away == [0, 0]
    assert house.outcomes() == ["scored"]
    assert house.runner.ran == [(0, 1)]


def test_a_begun_task_that_lost_its_worker_is_told_from_one_nobody_began(tmp_path: Path) -> None:
    house = House(tmp_path, graded, tasks=4)
    asyncio.run(task(house, 0))
    start = datetime.now(UTC)
    for index in (1, 2):
        house.catalog.add_try(RUN, index, 1, start, "somewhere")
    settled = house.engine.settle(RUN, {2: Lost(Reason.WORKER_LOST, "container OOMKilled, exit code 137")})
    rows = house.catalog.outcomes(RUN)
    assert [row.reason for row in rows] == [
        Reason.GRADED,
        Reason.WORKER_LOST,
        Reason.WORKER_LOST,
        Reason.NEVER_STARTED,
    ]
    assert rows[2].message == "container OOMKilled, exit code 137"
    assert [t.start for t in rows[2].tries] == [start]
    assert rows[2].tries[0].error is not None
    assert rows[3].tries == ()
    assert (settled.phase, settled.state) == (RunPhase.COMPLETED, ResultState.READY)


def test_a_try_that_is_run_again_says_why_its_worker_was_lost(tmp_path: Path) -> None:
    house = House(tmp_path, graded, tasks=2)
    start = datetime.now(UTC)
    for minutes in (2, 1):
        house.catalog.add_try(RUN, 0, 1, start - timedelta(minutes=minutes), "")
    asked: list[int] = []

    def lost() -> Lost:
        asked.append(1)
        return Lost(Reason.EVICTED, "the node was drained")

    for index in (0, 1):
        asyncio.run(house.engine.execute_task(RUN, index, house.listener, asyncio.Event(), lost=lost))
    assert len(asked) == 1  # nothing was lost of the second task
    row = house.catalog.outcomes(RUN)[0]
    assert [t.error and t.error.message for t in row.tries] == [
        "the worker was lost or stopped while this try was under way",
        "the node was drained",
        None,
    ]


def test_a_run_without_a_slot_expires_from_the_queue(tmp_path: Path) -> None:
    house = House(tmp_path, graded)
    house.engine._queue_timeout = 60.0
    assert house.engine.has_work(RUN)
    house.engine._clock = lambda: datetime.now(UTC) + timedelta(seconds=61)
    assert not house.engine.has_work(RUN)
    assert house.settle() == (RunPhase.EXPIRED, ResultState.NONE)
    assert {row.reason for row in house.catalog.outcomes(RUN)} == {Reason.QUEUE_TIMEOUT}
