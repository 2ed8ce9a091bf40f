"""Tasks in the wild, each as a real trial in the process sandbox."""

from pathlib import Path

import pytest

from harbor_assets.domain.outcomes import Reason
from tests.suites import make, wild
from tests.trials.conftest import RunTrial


@pytest.mark.req_root
@pytest.mark.parametrize("case", wild.CASES, ids=lambda case: case.maker.__name__)
def test_a_task_ends_as_it_should(
    run_trial: RunTrial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: wild.Case
) -> None:
    pips = [Path(folder, "pip") for folder in ("/usr/bin", "/usr/local/bin")]
    if case.maker is wild.pip_tools and not any(pip.exists() for pip in pips):
        pytest.skip("this machine's own Python has no pip")
    monkeypatch.setenv(*wild.GIVEN)
    case.check(run_trial(case.maker(tmp_path)).ending)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("link", "reward.txt is a link, which is not followed"),
        ("link-outside", "reward.txt is a link that may lead outside"),
        ("pipe", "reward.txt is neither a file nor a folder nor a link"),
        ("folder", "reward.txt is a folder"),
        ("folder-json", "reward.json is a folder"),
    ],
)
def test_a_reward_that_is_no_file_is_named(run_trial: RunTrial, tmp_path: Path, kind: str, said: str) -> None:
    ending = run_trial(wild.odd_reward(tmp_path, kind)).ending
    assert ending.reason is Reason.REWARD_UNREADABLE
    assert (ending.message or "").startswith(f"{said}; the tests have to write a plain file")


@pytest.mark.parametrize("agent", ["oracle", "nop"])
def test_only_the_oracle_is_asked_for_a_solution(run_trial: RunTrial, tmp_path: Path, agent: str) -> None:
    ended = run_trial(wild.no_solution(tmp_path), agent=agent).ending
    assert ended.flags == (("solution_missing",) if agent == "oracle" else ())


def test_long_output_is_cut_and_counted(run_trial: RunTrial, tmp_path: Path) -> None:
    ended = run_trial(make.big_output(tmp_path, megabytes=70))
    assert ended.ending.flags == ("output_cut",)
    kept = 64 << 20
    for name in ("agent/oracle.txt", "verifier/test-stdout.txt"):
        assert kept - 1024 < (ended.folder / name).stat().st_size <= kept


def test_an_agents_variables_reach_it_and_nobody_else_and_a_secret_stays_out_of_its_files(
    run_trial: RunTrial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALS_KEY", "hunter2-hunter2")
    task = make.make_task(
        tmp_path,
        "variables",
        solve='said="$LOG_LEVEL $API_KEY"\necho $said\n[ "$said" = "debug hunter2-hunter2" ] && touch /app/answer.txt',
        test='[ -f /app/answer.txt ] && [ -z "$API_KEY$LOG_LEVEL" ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt',
    )
    ended = run_trial(task, env={"LOG_LEVEL": "debug", "API_KEY": "${EVALS_KEY}"})
    assert ended.ending.reward == 1
    written = [path.read_bytes() for path in ended.folder.rglob("*") if path.is_file()]
    assert any(b"${EVALS_KEY}" in text for text in written)
    assert not any(b"hunter2" in text for text in written)


def test_a_multiplier_gives_the_agent_more_time(run_trial: RunTrial, tmp_path: Path) -> None:
    slow = make.make_task(tmp_path, "slow", agent={"timeout_sec": 1.0}, solve=f"sleep 2\n{make.SOLVE}")
    assert run_trial(slow).ending.reason is Reason.GRADED_AFTER_AGENT_TIMEOUT
    assert run_trial(slow, agent_timeout_multiplier=10.0).ending.reason is Reason.GRADED
