"""The verifier alone, once more, in real trials: the agent worked once, and only what the tests need is repeated."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harbor_assets.domain.outcomes import Reason
from harbor_assets.sandboxes.errors import SandboxDiskFull, SandboxLost, SandboxStartError
from harbor_assets.sandboxes.process.environment import ProcessEnvironment
from harbor_assets.trials import again
from tests.suites import make
from tests.trials.conftest import RunTrial

ONCE = 'echo worked >> /app/work\n[ "$(wc -l < /app/work)" = 1 ]'
GRADE = 'r=0; [ "$(cat /app/work)" = worked ] && r=1\necho $r > /logs/verifier/reward.txt'

pytestmark = pytest.mark.req_root


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(again, "pause_before", lambda retry: 0.0)


type Failing = Callable[..., list[str]]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    """Let the tests' way into the sandbox fail; returns what was tried."""

    def call(*errors: Exception) -> list[str]:
        tried: list[str] = []
        upload = ProcessEnvironment.upload_dir

        async def upload_dir(self: Any, source_dir: Any, target_dir: str) -> None:
            if str(target_dir) == "/tests":
                tried.append(str(source_dir))
                if len(tried) <= len(errors):
                    raise errors[len(tried) - 1]
            await upload(self, source_dir, target_dir)

        monkeypatch.setattr(ProcessEnvironment, "upload_dir", upload_dir)
        return tried

    return call


def task(root: Path, **more: Any) -> Path:
    return make.make_task(root, "again", solve=ONCE, test=GRADE, **more)


def apart(root: Path) -> Path:
    return task(root, verifier={"environment_mode": "separate"}, top={"artifacts": ["/app/work"]})


@pytest.mark.parametrize("made", [task, apart])
def test_tests_that_could_not_be_brought_in_are_run_again_and_the_agent_is_not(
    run_trial: RunTrial, tmp_path: Path, failing: Failing, made: Callable[[Path], Path]
) -> None:
    tried = failing(OSError("no way in"), OSError("still none"))
    ended = run_trial(made(tmp_path), max_retries=2)
    assert (ended.ending.reason, ended.ending.reward) == (Reason.GRADED, 1.0)
    assert len(tried) == 3
    assert ended.ending.flags == ("verifier_again",)
    assert "the verifier alone was run 3 times, after AddTestsDirError" in (ended.ending.message or "")


def test_not_more_often_than_asked_for(run_trial: RunTrial, tmp_path: Path, failing: Failing) -> None:
    tried = failing(*[OSError("no way in")] * 9)
    ending = run_trial(task(tmp_path), max_retries=1).ending
    assert (ending.reason, len(tried), ending.flags) == (Reason.VERIFIER_ERROR, 2, ("verifier_again",))
    tried.clear()
    ending = run_trial(task(tmp_path)).ending
    assert (ending.reason, len(tried), ending.flags) == (Reason.VERIFIER_ERROR, 1, ())


@pytest.mark.parametrize(
    ("error", "reason"), [(SandboxLost("gone"), Reason.SANDBOX_LOST), (SandboxDiskFull("full"), Reason.STORAGE)]
)
def test_work_that_went_with_its_sandbox_is_not_graded(
    run_trial: RunTrial, tmp_path: Path, failing: Failing, error: Exception, reason: Reason
) -> None:
    tried = failing(error)
    ending = run_trial(task(tmp_path), max_retries=3, infra_retries=3).ending
    assert (ending.reason, len(tried)) == (reason, 1)


@pytest.mark.parametrize("error", [SandboxLost("gone"), SandboxStartError("never was")])
def test_a_verifiers_own_sandbox_that_was_lost_is_replaced_under_the_deployments_number(
    run_trial: RunTrial, tmp_path: Path, failing: Failing, error: Exception
) -> None:
    tried = failing(error)
    ended = run_trial(apart(tmp_path), infra_retries=1)
    assert (ended.ending.reason, ended.ending.reward, len(tried)) == (Reason.GRADED, 1.0, 2)
    tried.clear()
    assert run_trial(apart(tmp_path), infra_retries=0, max_retries=5).ending.reward is None
    assert len(tried) == 1


def test_what_a_verifier_said_and_one_out_of_time_are_not_asked_again(run_trial: RunTrial, tmp_path: Path) -> None:
    silent = make.make_task(tmp_path, "silent", test="echo x >> /app/runs; cat /app/runs")
    ended = run_trial(silent, max_retries=3)
    assert ended.ending.reason is Reason.REWARD_MISSING
    assert (ended.folder / "verifier" / "test-stdout.txt").read_text() == "x\n"
    slow = make.make_task(tmp_path, "slow", verifier={"timeout_sec": 0.5}, test="sleep 30")
    ending = run_trial(slow, max_retries=3).ending
    assert (ending.reason, ending.flags) == (Reason.VERIFIER_TIMEOUT, ())


def test_what_an_earlier_run_printed_is_kept(
    run_trial: RunTrial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harbor.verifier.verifier import Verifier

    verify, runs = Verifier.verify, []

    async def broken(self: Any) -> Any:
        found = await verify(self)
        runs.append(found)
        if len(runs) == 1:
            raise ConnectionError("lost on the way back")
        return found

    monkeypatch.setattr(Verifier, "verify", broken)
    noisy = make.make_task(tmp_path, "noisy", solve=ONCE, test=f"date +%N >> /tmp/runs; wc -l < /tmp/runs\n{GRADE}")
    ended = run_trial(noisy, max_retries=1)
    assert ended.ending.reward == 1.0
    assert (ended.folder / "verifier-earlier" / "1" / "test-stdout.txt").read_text().strip() == "1"
    assert (ended.folder / "verifier" / "test-stdout.txt").read_text().strip() == "2"
