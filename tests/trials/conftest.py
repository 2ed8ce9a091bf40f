"""Real Harbor trials in the process sandbox, judged: a task's folder in, its ending out."""

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harbor_assets.domain.endings import Ending
from harbor_assets.domain.plans import AgentSpec
from harbor_assets.sandboxes.choice import process_environment
from harbor_assets.sandboxes.process.inside.keeper import remove_tree
from harbor_assets.trials.harbor import HarborTrialRunner
from tests.fakes.accounts import make_plan


@dataclass(frozen=True)
class Ended:
    ending: Ending
    folder: Path


type RunTrial = Callable[..., Ended]


@pytest.fixture(scope="session")
def home() -> Iterator[Path]:
    """One home for all trials, so that masks and layers are made once."""
    path = Path(tempfile.mkdtemp(prefix="trial-tests-"))
    path.chmod(0o755)
    yield path
    left = list((path / "sandboxes").glob("*"))
    remove_tree(str(path))
    assert left == []


@pytest.fixture
def run_trial(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunTrial:
    monkeypatch.setenv("HARBOR_TELEMETRY", "0")

    def call(task: Path, *, agent: str = "oracle", env: dict[str, str] | None = None, **plan_fields: Any) -> Ended:
        plan = make_plan(["x"], agent=AgentSpec(name=agent, env=env or {}), **plan_fields)
        runner = HarborTrialRunner(lambda plan, _: process_environment(plan, home=home))
        folder = tmp_path / "trials" / f"{task.name}-{agent}-{os.urandom(2).hex()}"
        ending = asyncio.run(runner.run(plan, plan.tasks[0], 1, source=task, folder=folder))
        return Ended(ending, folder)

    return call
