"""kill -9 at each boundary of a trial's end, of a real process on a real catalog and store: what had a row keeps it,
what had none is run again, and nothing is there twice."""

import asyncio
import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harbor_assets.artifacts.folder import FolderArtifacts
from harbor_assets.catalog import open_catalog
from harbor_assets.domain.endings import Ending, trial_error
from harbor_assets.domain.outcomes import Measurements, Reason
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.domain.plans import PlannedTask
from harbor_assets.engine.execution import Ended
from harbor_assets.engine.lifecycle import RunEngine
from tests.engine.test_execution import HEX, RUN, Bundles, Folders, Listener, Runner, plan

TASKS = 4


class House:
    """Everything on disk, so that another process finds what this one left."""

    def __init__(self, root: Path) -> None:
        self.catalog = open_catalog(f"sqlite:///{root / 'catalog.db'}")
        self.artifacts = FolderArtifacts(root / "artifacts")
        self.runner, self.listener = Runner(_loses_one), Listener()
        self.engine = RunEngine(
            runs=self.catalog,
            artifacts=self.artifacts,
            folders=Folders(),
            runner=self.runner,
            bundles=Bundles(),  # type: ignore[arg-type]  # merging that is killed has tests of its own
            work=root / "work",
            poll_seconds=0.05,
        )

    def rows(self) -> dict[int, str]:
        return {row.index: row.model_dump_json() for row in self.catalog.outcomes(RUN)}


_lost = set[int]()


async def _loses_one(task: PlannedTask, k: int) -> Ending:
    """The third task loses its first sandbox, and so has a try that is followed by another."""
    if task.index == 2 and not _lost:
        _lost.add(task.index)
        spent = Measurements(cost_usd=0.25)
        return Ending(Reason.SANDBOX_LOST, "gone", error=trial_error("SandboxLost", "gone"), measurements=spent)
    return Ending(Reason.GRADED, reward=1.0)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def after(real: Callable[..., Any], number: int) -> Callable[..., Any]:
    """As `real`, and the last thing its process does at the call of that number."""
    calls = 0

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        found = real(*args, **kwargs)
        if calls == number:
            _die()
        return found

    return call


def before(real: Callable[..., Any], number: int) -> Callable[..., Any]:
    """As `real`, but dead at the call of that number."""
    calls = 0

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            _die()
        return real(*args, **kwargs)

    return call


def in_a_process(work: Callable[[], object]) -> int:
    """How it ended: minus the signal, or 0 if it came to its end."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


BOUNDARIES = {
    "after add_try": ("catalog", "add_try", after),
    "in put_tree": ("artifacts", "put_tree", before),
    "after put_tree, before add_outcome": ("catalog", "add_outcome", before),
    "after add_outcome": ("catalog", "add_outcome", after),
    "before the task's event": ("listener", "task_ended", before),
    "after the task's event": ("listener", "task_ended", after),
}


@pytest.mark.parametrize("number", [1, 3, 4])
@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_worker_killed_there_loses_no_row_and_doubles_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, boundary: str, number: int
) -> None:
    monkeypatch.setattr("harbor_assets.engine.execution.pause_before", lambda retry: 0.0)
    _lost.clear()
    with open_catalog(f"sqlite:///{tmp_path / 'catalog.db'}") as catalog:
        catalog.add_run(plan(tasks=TASKS, n_concurrent=1, infra_retries=1), request_digest=HEX)

    def first() -> None:
        house = House(tmp_path)
        part, method, how = BOUNDARIES[boundary]
        holder = getattr(house, part)
        setattr(holder, method, how(getattr(holder, method), number))
        house.engine.begin(RUN)
        asyncio.run(house.engine.execute(RUN, house.listener, asyncio.Event()))

    assert in_a_process(first) == -signal.SIGKILL
    _lost.add(2)
    house = House(tmp_path)
    kept, begun = house.rows(), house.catalog.tries(RUN)
    if house.engine.has_work(RUN):
        house.engine.begin(RUN)
        assert asyncio.run(house.engine.execute(RUN, house.listener, asyncio.Event())) is Ended.DONE
    assert {index for index, _ in house.runner.ran} == set(range(TASKS)) - kept.keys(), "just what had no row"
    rows, tries = house.catalog.outcomes(RUN), house.catalog.tries(RUN)
    assert [(row.index, row.k, row.reason) for row in rows] == [(i, 1, Reason.GRADED) for i in range(TASKS)]
    for row in rows:
        key = (row.index, 1)
        assert len(row.tries) == len(tries[key]) >= len(begun.get(key, ()))
        assert house.artifacts.exists(f"runs/{RUN}/agent-eval-results/{row.evidence}/trial.log")
    assert house.engine.settle(RUN).phase is RunPhase.COMPLETED  # and killed before its end is written
    run = house.engine.finish(RUN, house.engine.settle(RUN))
    assert (run.phase, run.result_state) == (RunPhase.COMPLETED, ResultState.READY)
    assert {index: text for index, text in house.rows().items() if index in kept} == kept


@pytest.mark.parametrize("number", [1, 2, TASKS])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_an_account_that_was_killed_midway_is_gone_on_with(tmp_path: Path, number: int) -> None:
    """Settling writes a row for each trial that nobody ran."""
    with open_catalog(f"sqlite:///{tmp_path / 'catalog.db'}") as catalog:
        catalog.add_run(plan(tasks=TASKS), request_digest=HEX)
        catalog.request_cancel(RUN, datetime.now(UTC))

    def first() -> None:
        house = House(tmp_path)
        house.catalog.add_outcome = after(house.catalog.add_outcome, number)  # type: ignore[method-assign]
        house.engine.settle(RUN)

    assert in_a_process(first) == -signal.SIGKILL
    house = House(tmp_path)
    kept = house.rows()
    assert len(kept) == number
    assert house.engine.settle(RUN).phase is RunPhase.CANCELLED
    assert len(house.rows()) == TASKS
    assert {index: text for index, text in house.rows().items() if index in kept} == kept
