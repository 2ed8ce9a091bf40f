"""Tasks in the wild, each as a real trial in the process sandbox."""

from collections.abc import Callable
from pathlib import Path

import pytest

from harbor_assets.domain.outcomes import Reason
from tests.suites import make, wild
from tests.trials.conftest import RunTrial

type Maker = Callable[[Path], Path]


def flags(*names: str) -> tuple[str, ...]:
    return names


@pytest.mark.req_root
@pytest.mark.parametrize(
    ("maker", "reward", "flagged"),
    [
        (wild.steps_by_mean, 0.75, ()),
        (wild.steps_by_last, 0.5, ()),
        (wild.steps_given_up, 0.75, flags("steps_not_run")),
        (wild.steps_with_files, 1.0, ()),
        (wild.separate, 1.0, ()),
        (wild.separate_environment, 1.0, ()),
        (wild.separate_dockerfile, 1.0, ()),
        (wild.collect, 1.0, ()),
        (wild.collect_fails, 1.0, flags("collect_hook_failed")),
        (wild.users, 1.0, ()),
        (wild.healthy_late, 1.0, ()),
        (wild.variables, 1.0, ()),
        (wild.docker_image, 1.0, ()),
        (wild.old_schema, 1.0, ()),
        (wild.pip_tools, 1.0, ()),
    ],
)
def test_what_can_be_run_gets_its_reward(
    run_trial: RunTrial,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    maker: Maker,
    reward: float,
    flagged: tuple[str, ...],
) -> None:
    if maker is wild.pip_tools and not any(Path(folder, "pip").exists() for folder in ("/usr/bin", "/usr/local/bin")):
        pytest.skip("this machine's own Python has no pip")
    monkeypatch.setenv("WILD_GIVEN_VARIABLE", "given")
    ending = run_trial(maker(tmp_path)).ending
    assert (ending.reason, ending.reward, ending.flags) == (Reason.GRADED, reward, flagged), ending.message


@pytest.mark.req_root
@pytest.mark.parametrize(
    ("maker", "reason", "said"),
    [
        (wild.steps_without_a_reward, Reason.REWARD_NOT_A_NUMBER, "step 'second': reward.txt holds 'passed'"),
        (wild.steps_that_cannot_be_set_up, Reason.SANDBOX_START, "setup.sh exited with code 7: no such service"),
        (wild.steps_that_are_not_healthy, Reason.SANDBOX_START, "HealthcheckError"),
        (wild.never_healthy, Reason.SANDBOX_START, "after 2 consecutive retries: false"),
    ],
)
def test_what_cannot_be_graded_is_no_score(
    run_trial: RunTrial, tmp_path: Path, maker: Maker, reason: Reason, said: str
) -> None:
    ending = run_trial(maker(tmp_path)).ending
    assert (ending.reason, ending.reward) == (reason, None)
    assert said in (ending.message or "")


@pytest.mark.req_root
@pytest.mark.parametrize(
    ("maker", "reason", "reward", "flagged", "said"),
    [
        (wild.solution_fails, Reason.GRADED, 0.0, flags("solution_exit_9"), "solve.sh ended with exit code 9"),
        (
            wild.no_solution,
            Reason.GRADED_AFTER_AGENT_ERROR,
            0.0,
            flags("solution_missing"),
            "no solution/solve.sh",
        ),
        (
            make.memory_hog,
            Reason.GRADED_AFTER_MEMORY_LIMIT,
            1.0,
            flags("solution_exit_137", "memory_limit_hit"),
            "limit of 64 MB",
        ),
        (wild.memory_hog_in_tests, Reason.GRADED, 1.0, flags("memory_limit_hit"), "a process was killed"),
        (wild.disk_hog, Reason.GRADED, 0.0, flags("solution_exit_1", "disk_limit_hit"), "the task's disk was full"),
        (wild.ghost_agent, Reason.GRADED, 0.0, flags("solution_exit_126", "user_missing"), "no user 'ghost'"),
        (wild.ghost_verifier, Reason.REWARD_MISSING, None, flags("user_missing"), "no user 'ghost'"),
    ],
)
def test_a_suite_checker_is_told_why(
    run_trial: RunTrial,
    tmp_path: Path,
    maker: Maker,
    reason: Reason,
    reward: float | None,
    flagged: tuple[str, ...],
    said: str,
) -> None:
    ending = run_trial(maker(tmp_path)).ending
    assert (ending.reason, ending.reward, ending.flags) == (reason, reward, flagged), ending.message
    assert said in (ending.message or "")


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
