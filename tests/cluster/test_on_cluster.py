"""Evaluations on a real cluster, with scripted trials. Every trial below is told by its Job's own name."""

import pytest

from tests.cluster.harness.deployment import Deployment

pytestmark = pytest.mark.req_k8s

TERMINATE = "mutation($id: String!) { terminateRun(runId: $id) { __typename ... on PythonError { message } } }"


def indexes(status: dict, outcome: str) -> list[int]:  # type: ignore[type-arg]
    return [o["index"] for o in status["outcomes"] if o["outcome"] == outcome]


def test_twelve_tasks_at_a_cap_of_four(deployed: Deployment) -> None:
    run_id = deployed.submit(12, n_concurrent=4, script={"seconds": 3})
    most, seen = deployed.watch(run_id)
    status = deployed.wait(run_id)
    assert (status["phase"], status["state"], status["executions"]) == ("completed", "ready", 1)
    assert indexes(status, "scored") == list(range(12))
    assert status["tries"] == [1] * 12
    assert 2 <= most <= 4
    tasks = {name: labels for name, labels in seen.items() if "-task-" in name}
    assert set(tasks) <= {f"{run_id}-task-{i}" for i in range(12)}
    for name, labels in tasks.items():
        assert labels["harbor/task"] == name.rpartition("-")[2]
        assert labels["harbor/run-id"] == run_id
        assert labels["app.kubernetes.io/part-of"] == "harbor-assets"
    keys = [f"{run_id}|{i:05d}" for i in range(12)]
    assert deployed.ask("partitions", run=run_id) == {"ok": keys, "failed": [], "in_progress": [], "bundle": True}
    assert [d["status"] for d in status["dagster"]] == ["SUCCESS"]
    assert status["dagster"][0]["phase"] == "completed"
    deployed.nothing_left(run_id)
    files = deployed.ask("bundle", run=run_id)
    assert {"run.json", "summary.json", "report.html"} <= set(files)
    assert sum(path.endswith("/trial.log") for path in files) == 12


def test_the_run_workers_death_repeats_nothing(deployed: Deployment) -> None:
    run_id = deployed.submit(4, n_concurrent=2, script={"seconds": 8})
    deployed.eventually(lambda: deployed.running(run_id))
    deployed.kill_nine(deployed.worker(run_id))
    status = deployed.wait(run_id)
    assert (status["phase"], status["executions"]) == ("completed", 1)
    assert indexes(status, "scored") == [0, 1, 2, 3]
    assert status["tries"] == [1] * 4
    assert [d["status"] for d in status["dagster"]] == ["SUCCESS"]
    deployed.nothing_left(run_id)


def test_a_trial_worker_killed_without_a_word_runs_again(deployed: Deployment) -> None:
    run_id = deployed.submit(3, n_concurrent=3, script={"seconds": 6, "seconds_1": 30})
    deployed.eventually(lambda: deployed.begun(run_id) == 3)
    (pod,) = (name for name in deployed.running(run_id) if "-task-1-" in name)
    deployed.kill_nine(pod)
    status = deployed.wait(run_id)
    assert (status["phase"], status["executions"]) == ("completed", 2)
    assert indexes(status, "scored") == [0, 1, 2]
    assert [o["tries"] for o in status["outcomes"]] == [1, 2, 1]
    keys = deployed.ask("partitions", run=run_id)
    assert (len(keys["ok"]), keys["failed"], keys["in_progress"]) == (3, [], [])
    deployed.nothing_left(run_id)


def test_a_trial_worker_that_always_dies_is_told_with_its_reason(deployed: Deployment) -> None:
    run_id = deployed.submit(2, script={"seconds": 1, "memory_1": 1500})
    status = deployed.wait(run_id)
    assert (status["phase"], status["state"]) == ("completed", "ready")
    lost = status["outcomes"][1]
    assert (lost["outcome"], lost["reason"]) == ("infra_failed", "worker_lost")
    assert "OOMKilled" in lost["message"]
    assert lost["tries"] >= 3
    keys = deployed.ask("partitions", run=run_id)
    assert (keys["ok"], keys["failed"]) == ([f"{run_id}|00000"], [f"{run_id}|00001"])
    deployed.nothing_left(run_id)


@pytest.mark.alone
def test_a_refused_job_is_one_tasks_trouble(deployed: Deployment) -> None:
    with deployed.quota({"count/jobs.batch": 4}):  # run worker, plan, two tasks
        run_id = deployed.submit(3, n_concurrent=3, script={"seconds": 10})
        deployed.eventually(lambda: deployed.api(run_id)["run"]["executions"] == 2)
        assert indexes(deployed.status(run_id), "scored") == [0, 1]
        events = deployed.ask("events", run=run_id)
        refused = [e for e in events if e[1] == "STEP_FAILURE"]
        assert [e[2] for e in refused] == ["trial_results.trial[t00002]"]
    status = deployed.wait(run_id)  # the next execution had room for it
    assert indexes(status, "scored") == [0, 1, 2]
    deployed.nothing_left(run_id)


def test_cancel_keeps_what_has_ended_and_tells_trials_under_way(deployed: Deployment) -> None:
    run_id = deployed.submit(5, n_concurrent=3, script={"seconds": 120, "seconds_0": 1})
    deployed.eventually(lambda: deployed.rows(run_id))
    deployed.cli("runs", "cancel", run_id)
    status = deployed.wait(run_id)
    assert (status["phase"], status["state"]) == ("cancelled", "ready")
    assert indexes(status, "cancelled") == [1, 2, 3, 4]
    assert [bool(o["evidence"]) for o in status["outcomes"]][:3] == [True, True, True]
    deployed.nothing_left(run_id)


@pytest.mark.alone
def test_cancel_of_a_job_that_has_no_pod_and_with_a_dead_run_worker(deployed: Deployment) -> None:
    with deployed.quota({"pods": 2}):  # the run worker, one more
        run_id = deployed.submit(3, n_concurrent=3, script={"seconds": 300})
        deployed.eventually(lambda: len([n for n in deployed.jobs(run_id) if "-task-" in n]) == 3)
        deployed.eventually(lambda: len(deployed.running(run_id)) == 1)
        deployed.kill_nine(deployed.worker(run_id))
        deployed.cli("runs", "cancel", run_id)
        status = deployed.wait(run_id)
    assert status["phase"] == "cancelled"
    assert indexes(status, "cancelled") == [0, 1, 2]
    deployed.nothing_left(run_id)


def test_a_deadline_ends_a_run(deployed: Deployment) -> None:
    run_id = deployed.submit(2, n_concurrent=2, timeout_seconds=90, script={"seconds": 600, "seconds_0": 1})
    status = deployed.wait(run_id)
    assert status["phase"] == "expired"
    assert (indexes(status, "scored"), indexes(status, "expired")) == ([0], [1])
    deployed.nothing_left(run_id)


@pytest.mark.alone
def test_a_cancel_before_the_first_slot_ends_at_once(deployed: Deployment) -> None:
    with deployed.quota({"pods": 0}):  # its worker's Job is made, and gets no pod
        run_id = deployed.submit(2)
        deployed.eventually(lambda: deployed.jobs(run_id))
        deployed.cli("runs", "cancel", run_id)
        deployed.eventually(lambda: not deployed.get("jobs", f"harbor/run-id={run_id},harbor/role!=settle"))
    status = deployed.wait(run_id)
    assert (status["phase"], status["state"]) == ("cancelled", "none")
    assert indexes(status, "cancelled") == [0, 1]
    deployed.cli("runs", "cancel", run_id)  # of what has ended: it changes nothing
    assert deployed.phase(run_id) == "cancelled"
    deployed.nothing_left(run_id)


def test_terminate_in_dagsters_pages_is_a_cancel(deployed: Deployment) -> None:
    run_id = deployed.submit(3, n_concurrent=3, script={"seconds": 300, "seconds_0": 1})
    deployed.eventually(lambda: len(deployed.running(run_id)) == 3 or deployed.rows(run_id))
    deployed.eventually(lambda: deployed.rows(run_id))
    (dagster,) = deployed.status(run_id)["dagster"]
    assert deployed.graphql(TERMINATE, id=dagster["id"])["terminateRun"]["__typename"] == "TerminateRunSuccess"
    status = deployed.wait(run_id)
    assert (status["phase"], status["state"]) == ("cancelled", "ready")
    assert (indexes(status, "scored"), indexes(status, "cancelled")) == ([0], [1, 2])
    assert {o["reason"] for o in status["outcomes"][1:]} == {"cancelled_by_user"}
    deployed.nothing_left(run_id)


@pytest.mark.alone
def test_a_run_that_waits_too_long_for_its_first_slot_expires(deployed: Deployment) -> None:
    with deployed.settings("harbor-assets-code", HARBOR_ASSETS_QUEUE_TIMEOUT_SECONDS="30"):
        with deployed.quota({"pods": 1}):  # the run worker, and nothing for it to run
            run_id = deployed.submit(2)
            deployed.eventually(lambda: deployed.phase(run_id) == "expired")
        status = deployed.status(run_id)
    assert {(o["outcome"], o["reason"]) for o in status["outcomes"]} == {("expired", "queue_timeout")}
    assert status["tries"] == []
    deployed.nothing_left(run_id)


def test_what_was_published_is_told_to_dagster_once(deployed: Deployment) -> None:
    """By the sensor, without a run."""
    workspace, name = deployed.taskset.partition("#")[0].split("/")

    def told() -> bool:
        keys = deployed.ask("materialised", asset="harbor_task")
        return len(keys) >= 60 and any(
            key.startswith(f"{workspace}/{name}#") for key in deployed.ask("materialised", asset="taskset")
        )

    deployed.eventually(told, every=5)


def test_sixty_tasks_at_a_cap_of_eight(deployed: Deployment) -> None:
    run_id = deployed.submit(60, n_concurrent=8, script={"seconds": 1})
    most, _ = deployed.watch(run_id)
    status = deployed.wait(run_id, 900)
    assert most == 8
    assert (status["phase"], status["executions"]) == ("completed", 1)
    assert indexes(status, "scored") == list(range(60))
    assert status["tries"] == [1] * 60
    deployed.nothing_left(run_id)
