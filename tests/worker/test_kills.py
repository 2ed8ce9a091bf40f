"""A worker may die at any moment: the next command, whichever, lets the run go on to the right end."""

import os
import signal
from pathlib import Path

import pytest

from harbor_assets.catalog import open_catalog
from harbor_assets.local.dying import FAULT_VARIABLE, MOMENTS
from tests.suites import make
from tests.worker.conftest import Home, alive, eventually, partitions, processes_naming


@pytest.fixture
def two_tasks(tmp_path: Path) -> Path:
    return make.make_suite(tmp_path / "suite", 2)


@pytest.fixture
def one_slow(tmp_path: Path) -> Path:
    """One quick task, and one whose solution waits for longer than any test."""
    make.make_task(tmp_path / "suite", "a-quick")
    make.make_task(tmp_path / "suite", "b-slow", solve="echo waiting; sleep 600", agent={"timeout_sec": 900.0})
    return tmp_path / "suite"


def all_green(home: Home, run_id: str, tasks: int) -> None:
    found = partitions(home, run_id)
    assert found["ok"] == [f"{run_id}|{i:05d}" for i in range(tasks)]
    assert found["failed"] == []
    assert found["in_progress"] == []
    assert all(run[0] in ("SUCCESS", "FAILURE") for run in found["runs"]), found["runs"]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_whose_worker_killed_itself_goes_on(home: Home, two_tasks: Path, moment: str) -> None:
    run_id = home.submit(two_tasks, **{FAULT_VARIABLE: moment})
    eventually(lambda: (home.folder / "logs" / f"{run_id}.log").exists() and home.worker(run_id) is None, "the death")
    watched = home.run("runs", "status", run_id, "--watch")
    assert watched.code == 0, watched
    assert home.outcomes(run_id) == ["scored", "scored"]
    status = home.status(run_id)["run"]
    assert (status["phase"], status["result_state"], status["executions"]) == ("completed", "ready", 2)
    all_green(home, run_id, 2)
    assert home.run("runs", "results", run_id).code == 0


def _under_way(home: Home, run_id: str) -> int:
    """The worker's pid, once the quick trial has ended and the slow one is in its sandbox."""

    def ready() -> bool:
        rows = home.outcomes(run_id)
        log = next((home.folder / "work" / run_id).glob("try-*/*b-slow*/trial.log"), None)
        return rows == ["scored"] and log is not None

    eventually(ready, "one trial scored, the other under way")
    pid = home.worker(run_id)
    assert pid
    return pid


def _nothing_left(home: Home) -> None:
    left = [p.name for p in (home.folder / "sandboxes").iterdir()] if (home.folder / "sandboxes").exists() else []
    assert left == []
    assert str(home.folder) not in Path("/proc/self/mounts").read_text()
    eventually(lambda: not processes_naming(str(home.folder)), "no process names the home")


def _sessions(home: Home, run_id: str) -> list[tuple[str, str | None, dict[str, float]]]:
    """What stands in the run's Evaluation: test case, error and scores of each session."""
    with open_catalog(f"sqlite:///{home.folder / 'catalog.db'}") as catalog:
        found = catalog.list_sessions("default", f"oracle-{run_id}").items
        return [(each.test_case_name, each.error_type, each.evaluator_scores) for each in found]


def test_kill_nine_while_trials_run(home: Home, one_slow: Path) -> None:
    assert home.run("experiments", "create", "nightly").code == 0
    run_id = home.submit(one_slow, "--experiment", "nightly")
    pid = _under_way(home, run_id)
    quick = ("a-quick", None, {"harbor_reward.reward": 1.0})
    eventually(lambda: _sessions(home, run_id) == [quick], "the quick one is published while the other is at work")
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not alive(pid))
    # any next command finds it: here a list
    listed = home.run("runs", "list", "--json")
    assert [row["phase"] for row in listed.json["data"]] == ["running"]
    second = eventually(lambda: home.worker(run_id), "a new worker")
    assert second != pid
    assert home.outcomes(run_id) == ["scored"]  # the finished one is not run again
    assert home.run("runs", "cancel", run_id).code == 0
    assert home.run("runs", "status", run_id, "--watch").code == 5
    assert home.outcomes(run_id) == ["scored", "cancelled"]
    rows = home.run("runs", "results", run_id, "--json").json
    assert rows["outcomes"]["counts"]["cancelled"] == 1
    assert _sessions(home, run_id) == [quick, ("b-slow", "cancelled_by_user", {})]
    _nothing_left(home)


def test_a_signal_is_no_loss_and_the_next_command_goes_on(home: Home, one_slow: Path) -> None:
    run_id = home.submit(one_slow)
    pid = _under_way(home, run_id)
    os.kill(pid, signal.SIGTERM)
    eventually(lambda: not alive(pid), "the worker ends by itself")
    assert not processes_naming(f"{home.folder}/sandboxes")
    status = home.status(run_id)["run"]  # takes it up again
    assert (status["phase"], status["counts"]) == ("running", {"scored": 1})
    eventually(lambda: home.worker(run_id), "a new worker")
    home.run("runs", "cancel", run_id)
    assert home.run("runs", "status", run_id, "--watch").code == 5


def test_cancel_stops_trials_within_seconds_and_leaves_nothing(home: Home, one_slow: Path) -> None:
    run_id = home.submit(one_slow)
    _under_way(home, run_id)
    assert home.run("runs", "cancel", run_id).code == 0
    assert home.run("runs", "status", run_id, "--watch").code == 5
    status = home.status(run_id)["run"]
    took = _seconds(status["cancel_requested_at"], status["ended_at"])
    assert took < 20, f"{took} s from the cancel to the end"
    assert (status["phase"], status["result_state"]) == ("cancelled", "ready")
    found = partitions(home, run_id)
    assert (found["ok"], found["failed"]) == ([f"{run_id}|00000"], [])
    assert [run[0] for run in found["runs"]] == ["CANCELED"]
    _nothing_left(home)


def test_the_deadline_ends_a_run(home: Home, one_slow: Path) -> None:
    run_id = home.submit(one_slow, HARBOR_ASSETS_RUN_TIMEOUT_SECONDS="6")
    assert home.run("runs", "status", run_id, "--watch").code == 6
    assert home.outcomes(run_id) == ["scored", "expired"]
    _nothing_left(home)


def test_a_cancel_while_the_worker_is_dead_still_ends_the_run(home: Home, two_tasks: Path) -> None:
    run_id = home.submit(two_tasks, **{FAULT_VARIABLE: "started"})
    eventually(lambda: (home.folder / "logs" / f"{run_id}.log").exists() and home.worker(run_id) is None, "the death")
    from harbor_assets.catalog import open_catalog

    with open_catalog(f"sqlite:///{home.folder / 'catalog.db'}") as catalog:
        from datetime import UTC, datetime

        catalog.request_cancel(run_id, datetime.now(UTC))
    assert home.run("runs", "status", run_id, "--watch").code == 5
    assert home.outcomes(run_id) == ["cancelled", "cancelled"]
    assert home.status(run_id)["run"]["result_state"] == "none"


def test_failed_tasks_are_red_and_others_green(home: Home, tmp_path: Path) -> None:
    suite = tmp_path / "suite"
    make.make_task(suite, "a-good")
    make.reward_files(suite, "missing", "b-bad")
    run_id = home.submit(suite)
    assert home.run("runs", "status", run_id, "--watch").code == 3
    found = partitions(home, run_id)
    assert (found["ok"], found["failed"]) == ([f"{run_id}|00000"], [f"{run_id}|00001"])
    assert found["runs"] == [["FAILURE", "1", "completed"]]


def test_the_worker_holds_its_home_in_its_environment(home: Home, one_slow: Path) -> None:
    run_id = home.submit(one_slow)
    pid = eventually(lambda: home.worker(run_id))
    environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    assert f"HARBOR_ASSETS_HOME={home.folder}".encode() in environ
    home.run("runs", "cancel", run_id)
    assert home.run("runs", "status", run_id, "--watch").code == 5


def _seconds(start: str, end: str) -> float:
    from datetime import datetime

    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
