"""Logs on a deployment: a run's from a real Dagster instance, a task's from the store."""

from pathlib import Path

import pytest

from harbor_assets.cluster import logs as module
from harbor_assets.cluster.logs import ClusterLogs
from harbor_assets.domain.plans import trial_id
from harbor_assets.engine.logs import live_key
from tests.cluster.test_upkeep import Place, place  # noqa: F401 - the fixture
from tests.engine.test_execution import RUN


@pytest.fixture
def logs(place: Place) -> ClusterLogs:  # noqa: F811
    return ClusterLogs(runs=place.house.catalog, artifacts=place.house.artifacts, executions=place.executions)


def test_a_runs_log_is_what_dagster_recorded_and_only_grows(place: Place, logs: ClusterLogs):  # noqa: F811
    assert logs.read(place.run, None, 0).text == ""
    assert place.executions.start(RUN)
    before = logs.read(place.run, None, 0)
    assert before.text.startswith("==> execution 1: Dagster run ")
    assert not before.done
    assert " RUN_ENQUEUED run: " in before.text
    place.fail_run(t1="Job x failed: pod Evicted: no memory left")
    added = logs.read(place.run, None, before.next_offset)
    assert "STEP_FAILURE trial_results.trial[t00001]" in added.text
    assert "pod Evicted: no memory left" in added.text
    assert logs.read(place.run, None, 0).text == before.text + added.text
    assert logs.read(place.run, None, before.next_offset + len(added.text.encode())).text == ""


def test_a_runs_log_is_cut_with_a_word_about_it(place: Place, logs: ClusterLogs, monkeypatch: pytest.MonkeyPatch):  # noqa: F811
    monkeypatch.setattr(module, "RUN_LOG_MAX_BYTES", 200)
    monkeypatch.setattr(module, "PAGE", 1)
    assert place.executions.start(RUN)
    place.fail_run(t0="x" * 150, t1="y" * 150)
    whole = logs.read(place.run, None, 0).text
    assert "cut here" in whole
    assert logs.read(place.run, None, 0).text == whole


def test_a_tasks_log_is_there_while_its_worker_is_elsewhere(place: Place, logs: ClusterLogs, tmp_path: Path):  # noqa: F811
    assert logs.read(place.run, 2, 0).text == ""
    task = place.run.plan.task(2)
    place.house.artifacts.put_bytes(live_key(RUN, trial_id(task, 1)), b"began\n")
    live = logs.read(place.run, 2, 0)
    assert live.text == f"==> {trial_id(task, 1)}/trial.log\nbegan\n"
    assert not live.done
