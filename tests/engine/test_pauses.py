"""Runs that are paused while their infrastructure fails, and stopped when that stays so or the provider refuses."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harbor_assets.domain.endings import Ending, trial_error
from harbor_assets.domain.outcomes import Measurements, Outcome, Reason
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.domain.plans import PlannedTask
from harbor_assets.domain.run_views import run_summary
from harbor_assets.domain.waiting import WaitReason
from harbor_assets.engine.execution import Ended
from tests.engine.test_execution import RUN, House, graded

GONE = Ending(Reason.SANDBOX_LOST, "the engine does not answer", measurements=Measurements(cost_usd=0.5))
REFUSED = Ending(
    Reason.PROVIDER_REFUSED, "AuthenticationError: invalid key", error=trial_error("AuthenticationError", "invalid key")
)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harbor_assets.engine.execution.pause_before", lambda retry: 0.0)
    monkeypatch.setattr("harbor_assets.domain.admission._PAUSE_SECONDS", 0.05)


def reasons(house: House) -> list[Reason]:
    return [row.reason for row in house.catalog.outcomes(RUN)]


async def _when(look: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not look():
            await asyncio.sleep(0.01)


def test_an_outage_costs_no_trial_its_outcome_and_the_run_goes_on_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harbor_assets.domain.admission._PAUSE_SECONDS", 1.0)
    monkeypatch.setattr("harbor_assets.engine.execution.pause_before", lambda retry: 0.2)  # the others fail meanwhile
    down = True

    async def play(task: PlannedTask, k: int) -> Ending:
        return GONE if down and task.index else await graded(task, k)

    house = House(tmp_path, play, tasks=12, n_concurrent=4, infra_retries=30)

    async def scenario() -> Ended:
        nonlocal down
        job = asyncio.create_task(house.execute())
        await _when(lambda: house.catalog.admission(RUN).hold)
        await _when(lambda: house.runner.now == 0)
        ran = len(house.runner.ran)
        await asyncio.sleep(0.2)
        assert len(house.runner.ran) <= ran + 2
        run = house.catalog.get_run(RUN)
        waiting = run_summary(run, {}).waiting
        assert waiting
        assert waiting.reason is WaitReason.PAUSED
        assert "the engine does not answer" in waiting.message
        down = False
        return await asyncio.wait_for(job, 10)

    assert asyncio.run(scenario()) is Ended.DONE
    assert reasons(house) == [Reason.GRADED] * 12
    tries = sum(len(row.tries) for row in house.catalog.outcomes(RUN))
    assert tries < 12 + 3 * 30, "not everybody's retries were used up, of 11 times 30"
    assert house.catalog.admission(RUN).hold is None
    assert house.settle() == (RunPhase.COMPLETED, ResultState.READY)


def test_a_run_whose_sandboxes_never_start_is_given_up_and_says_why(tmp_path: Path) -> None:
    async def play(task: PlannedTask, k: int) -> Ending:
        return GONE

    house = House(tmp_path, play, tasks=10, n_concurrent=4, infra_retries=2)
    assert asyncio.run(asyncio.wait_for(house.execute(), 10)) is Ended.STOPPED
    assert len(house.runner.ran) < 20, "of 10 times 3"
    assert not house.engine.has_work(RUN)
    assert house.settle() == (RunPhase.FAILED, ResultState.NONE)
    run = house.catalog.get_run(RUN)
    assert run.error
    assert run.error.startswith("the run was stopped: sandbox_lost: the same failure again and again")
    rows = house.catalog.outcomes(RUN)
    begun = [row for row in rows if row.tries]
    assert {row.reason for row in begun} == {Reason.SANDBOX_LOST}
    assert all(tried.cost == 0.5 for row in begun for tried in row.tries)
    assert {row.reason for row in rows if not row.tries} == {Reason.RUN_STOPPED}
    for row in begun:
        assert house.artifacts.exists(f"runs/{RUN}/agent-eval-results/{row.evidence}/trial.log")


def test_a_provider_that_refuses_ends_the_run_and_what_was_scored_stays(tmp_path: Path) -> None:
    async def play(task: PlannedTask, k: int) -> Ending:
        return await graded(task, k) if task.index == 0 else REFUSED

    house = House(tmp_path, play, tasks=6, n_concurrent=1, max_retries=3)
    assert asyncio.run(asyncio.wait_for(house.execute(), 10)) is Ended.STOPPED
    assert house.runner.ran == [(0, 1), (1, 1), (2, 1)]
    before = house.catalog.outcomes(RUN)[0].model_dump_json()
    assert house.settle() == (RunPhase.COMPLETED, ResultState.READY)
    assert reasons(house) == [Reason.GRADED, *[Reason.PROVIDER_REFUSED] * 2, *[Reason.RUN_STOPPED] * 3]
    rows = house.catalog.outcomes(RUN)
    assert rows[0].model_dump_json() == before
    assert {row.outcome for row in rows[3:]} == {Outcome.NOT_STARTED}
    assert rows[3].message == (
        "the run was stopped before this trial began: provider_refused: AuthenticationError: invalid key"
    )
    assert house.catalog.get_run(RUN).error == (
        "the run was stopped: provider_refused: AuthenticationError: invalid key"
    )


def test_a_signal_while_the_gate_is_told_takes_no_row_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a trial came to is kept first: it may have cost an agent's whole work."""
    house = House(tmp_path, graded, tasks=1)

    async def scenario() -> Ended:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()

        def slow(*args: object, **kwargs: object) -> None:
            loop.call_soon_threadsafe(stop.set)
            time.sleep(0.3)

        monkeypatch.setattr("harbor_assets.engine.admission.tell", slow)
        return await asyncio.wait_for(house.execute(stop), 10)

    assert asyncio.run(scenario()) is Ended.INTERRUPTED
    assert reasons(house) == [Reason.GRADED]


def test_workers_of_single_tasks_share_the_gate(tmp_path: Path) -> None:
    """As a cluster's Jobs do: each knows but its own task."""

    async def play(task: PlannedTask, k: int) -> Ending:
        return REFUSED

    house = House(tmp_path, play, tasks=4)
    house.engine.begin(RUN)
    ended = [asyncio.run(house.engine.execute_task(RUN, i, house.listener, asyncio.Event())) for i in range(4)]
    assert ended == [Ended.DONE, Ended.DONE, Ended.STOPPED, Ended.STOPPED]
    assert house.listener.began == [0, 1], "a task that never began is not told of"
    assert house.engine.why_stopped(RUN)


def test_a_cancel_ends_a_paused_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harbor_assets.domain.admission._PAUSE_SECONDS", 600.0)

    async def play(task: PlannedTask, k: int) -> Ending:
        return GONE

    house = House(tmp_path, play, tasks=8, n_concurrent=4, infra_retries=90)  # none ends before the others failed once

    async def scenario() -> Ended:
        from datetime import UTC, datetime

        job = asyncio.create_task(house.execute())
        await _when(lambda: house.catalog.admission(RUN).hold)
        house.catalog.request_cancel(RUN, datetime.now(UTC))
        return await asyncio.wait_for(job, 10)

    assert asyncio.run(scenario()) is Ended.CANCELLED
    assert house.settle()[0] is RunPhase.CANCELLED
    assert set(reasons(house)) == {Reason.CANCELLED_BY_USER}
