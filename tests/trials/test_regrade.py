"""Verifying again, in real trials: what an earlier trial left goes to new tests, and no agent runs."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from harbor_assets.domain.endings import Ending
from harbor_assets.domain.kept import KEPT, Kept
from harbor_assets.domain.outcomes import Reason
from harbor_assets.domain.plans import AgentSpec
from harbor_assets.sandboxes.choice import process_environment
from harbor_assets.trials.harbor import HarborTrialRunner
from tests.fakes.accounts import make_plan
from tests.suites import make, wild
from tests.trials.conftest import RunTrial

SOLVE = r"""mkdir -p /app/out/empty
echo 42 > /app/out/answer
printf '#!/bin/sh\necho ran\n' > /app/out/tool
chmod 750 /app/out/tool"""
APART: dict[str, Any] = {"verifier": {"environment_mode": "separate"}, "top": {"artifacts": ["/app/out"]}}

pytestmark = pytest.mark.req_root


def task(root: Path, name: str, test: str, **more: Any) -> Path:
    options: dict[str, Any] = {"native_id": "tests/regraded", "solve": SOLVE, **APART, **more}
    return make.make_task(root, name, test=f"{test}\necho $r > /logs/verifier/reward.txt", **options)


def regrade(home: Path, source: Path, recorded: Path) -> tuple[Ending, Path]:
    plan = make_plan(["x"], agent=AgentSpec(name="oracle"))
    runner = HarborTrialRunner(lambda plan, _: process_environment(plan, home=home))
    folder = recorded.with_name(f"again-{os.urandom(2).hex()}")
    ending = asyncio.run(runner.regrade(plan, plan.tasks[0], 1, source=source, recorded=recorded, folder=folder))
    return ending, folder


def test_kept_work_is_graded_by_other_tests_without_an_agent(run_trial: RunTrial, home: Path, tmp_path: Path) -> None:
    wrong = run_trial(task(tmp_path, "wrong", 'r=0; [ "$(cat /app/out/answer)" = 41 ] && r=1'))
    assert (wrong.ending.reason, wrong.ending.reward) == (Reason.GRADED, 0.0)
    kept = Kept.model_validate_json((wrong.folder / KEPT).read_bytes())
    assert kept.files["artifacts/app/out/tool"].mode == 0o750
    assert "artifacts/app/out/empty" in kept.folders
    right = task(
        tmp_path,
        "right",
        'r=0; [ "$(cat /app/out/answer)" = 42 ] && [ "$(/app/out/tool)" = ran ] && [ -d /app/out/empty ] && r=1',
        solve="exit 1",
    )
    ending, folder = regrade(home, right, wrong.folder)
    assert (ending.reason, ending.reward) == (Reason.GRADED, 1.0)
    assert (folder / KEPT).is_file()  # what was verified again can be once more
    assert regrade(home, right, folder)[0].reward == 1.0


def test_a_verifier_that_ran_out_of_time_is_made_good(run_trial: RunTrial, home: Path, tmp_path: Path) -> None:
    slow = {"environment_mode": "separate", "timeout_sec": 1.0}
    late = run_trial(task(tmp_path, "late", "sleep 30", verifier=slow))
    assert late.ending.reason is Reason.VERIFIER_TIMEOUT
    assert regrade(home, task(tmp_path, "quick", "r=0.5"), late.folder)[0].reward == 0.5
    ending, _ = regrade(home, task(tmp_path, "still", "sleep 30", verifier=slow), late.folder)
    assert ending.reason is Reason.VERIFIER_TIMEOUT


def test_what_became_of_the_agent_stays_beside_the_new_reward(run_trial: RunTrial, home: Path, tmp_path: Path) -> None:
    tired = run_trial(task(tmp_path, "tired", "r=0", solve=f"{SOLVE}\nsleep 30", agent={"timeout_sec": 2.0}))
    assert tired.ending.reason is Reason.GRADED_AFTER_AGENT_TIMEOUT
    ending, _ = regrade(home, task(tmp_path, "new", "r=1"), tired.folder)
    assert (ending.reason, ending.reward) == (Reason.GRADED_AFTER_AGENT_TIMEOUT, 1.0)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"verifier": {}, "top": {}}, "works in the agent's own sandbox"),
        ({"top": {"artifacts": ["/app/out", "/app/log"]}}, "/app/log: never collected"),
        ({"native_id": "tests/another"}, "Task name mismatch"),
    ],
)
def test_what_was_not_kept_is_no_score(
    run_trial: RunTrial, home: Path, tmp_path: Path, more: dict[str, Any], said: str
) -> None:
    first = run_trial(task(tmp_path, "first", "r=1"))
    ending, _ = regrade(home, task(tmp_path, "other", "r=1", **more), first.folder)
    assert (ending.reason, ending.reward) == (Reason.WORK_NOT_KEPT, None)
    assert said in (ending.message or "")


def test_work_that_a_shared_verifier_graded_is_verified_by_one_of_its_own(
    run_trial: RunTrial, home: Path, tmp_path: Path
) -> None:
    shared = run_trial(task(tmp_path, "shared", "r=0", verifier={}))
    assert shared.ending.reward == 0.0
    assert regrade(home, task(tmp_path, "apart", "r=0; [ -f /app/out/answer ] && r=1"), shared.folder)[0].reward == 1.0


def test_a_trial_without_artifacts_lists_none(run_trial: RunTrial, tmp_path: Path) -> None:
    plain = run_trial(make.make_task(tmp_path, "plain"))
    assert plain.ending.reward == 1.0
    assert not (plain.folder / KEPT).exists()


def test_tasks_in_steps_are_verified_step_by_step(run_trial: RunTrial, home: Path, tmp_path: Path) -> None:
    steps = wild.in_steps(
        tmp_path,
        "steps",
        {"first": "1.0", "second": "0.5"},
        verifier={"environment_mode": "separate"},
        top={"artifacts": ["/app/done.txt"]},
    )
    first = run_trial(steps)
    assert first.ending.reward == 0.75, first.ending.message
    ending, folder = regrade(home, steps, first.folder)
    assert (ending.reason, ending.reward) == (Reason.GRADED, 0.75)
    assert sorted(path.name for path in (folder / "steps").iterdir()) == ["first", "second"]
