"""Evaluations on a real cluster, with scripted trials. Every trial below is told by its Job's own name."""

from typing import Any

import pytest

from tests.cluster.harness.deployment import Deployment
from tests.cluster.test_real_trials import evict

pytestmark = pytest.mark.req_k8s

LAUNCH = (
    "mutation($params: ExecutionParams!) { launchRun(executionParams: $params) { "
    "... on LaunchRunSuccess { run { runId } } } }"
)
ENDED = (
    "query($id: ID!) { runOrError(runId: $id) { ... on Run { status "
    "eventConnection { events { ... on ExecutionStepFailureEvent { error { message } } } } } } }"
)
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


@pytest.mark.parametrize(("how", "told"), [("kill", "exit code 137"), ("evict", "told as evicted")])
def test_a_lost_trial_worker_runs_again_and_is_told(deployed: Deployment, how: str, told: str) -> None:
    run_id = deployed.submit(3, n_concurrent=3, script={"seconds": 6, "seconds_1": 30})
    deployed.eventually(lambda: deployed.begun(run_id) == 3)
    (pod,) = (name for name in deployed.running(run_id) if "-task-1-" in name)
    if how == "kill":
        deployed.kill_nine(pod)
    else:
        evict(deployed, pod)
    status = deployed.wait(run_id)
    assert (status["phase"], status["executions"]) == ("completed", 2)
    assert indexes(status, "scored") == [0, 1, 2]
    assert [o["tries"] for o in status["outcomes"]] == [1, 2, 1]
    assert told in deployed.rows(run_id)[1]["tries"][0]["error"]["message"]
    keys = deployed.ask("partitions", run=run_id)
    assert (len(keys["ok"]), keys["failed"], keys["in_progress"]) == (3, [], [])
    deployed.nothing_left(run_id)


def test_a_trial_worker_that_always_dies_is_told_with_its_reason(deployed: Deployment) -> None:
    run_id = deployed.submit(2, script={"seconds": 1, "memory_1": 1500})
    status = deployed.wait(run_id)
    assert (status["phase"], status["state"]) == ("completed", "ready")
    lost = status["outcomes"][1]
    assert (lost["outcome"], lost["reason"]) == ("infra_failed", "out_of_memory")
    assert "OOMKilled" in lost["message"]
    assert lost["tries"] >= 3
    keys = deployed.ask("partitions", run=run_id)
    assert (keys["ok"], keys["failed"]) == ([f"{run_id}|00000"], [f"{run_id}|00001"])
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


def test_a_deadline_ends_a_run(deployed: Deployment) -> None:
    run_id = deployed.submit(2, n_concurrent=2, timeout_seconds=90, script={"seconds": 600, "seconds_0": 1})
    status = deployed.wait(run_id)
    assert status["phase"] == "expired"
    assert (indexes(status, "scored"), indexes(status, "expired")) == ([0], [1])
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


def test_what_was_published_is_told_to_dagster_once(deployed: Deployment) -> None:
    """By the sensor, without a run."""
    workspace, name = deployed.taskset.partition("#")[0].split("/")

    def told() -> bool:
        keys = deployed.ask("materialised", asset="harbor_task")
        return len(keys) >= 60 and any(
            key.startswith(f"{workspace}/{name}#") for key in deployed.ask("materialised", asset="taskset")
        )

    deployed.eventually(told, every=5)


def test_a_job_of_the_launchpad_reaches_catalog_and_profiles(deployed: Deployment) -> None:
    """What its pod answers about a run that cannot be accepted shows that it got there."""
    selector = {"repositoryName": "__repository__", "repositoryLocationName": "harbor_assets"}
    config = {"ops": {"submit": {"config": {"taskset": deployed.taskset, "sandbox_profile": "none-such"}}}}
    launched = deployed.graphql(
        LAUNCH, params={"selector": {**selector, "pipelineName": "submit_evaluation"}, "runConfigData": config}
    )
    run_id = launched["launchRun"]["run"]["runId"]

    def ended() -> dict[str, Any] | None:
        run = deployed.graphql(ENDED, id=run_id)["runOrError"]
        return run if run["status"] in ("SUCCESS", "FAILURE") else None

    run = deployed.eventually(ended)
    said = " ".join(event["error"]["message"] for event in run["eventConnection"]["events"] if event.get("error"))
    assert "sandbox profile 'none-such': is not known; valid names: " in said


def test_sixty_tasks_at_a_cap_of_eight(deployed: Deployment) -> None:
    run_id = deployed.submit(60, n_concurrent=8, script={"seconds": 1})
    most, _ = deployed.watch(run_id)
    status = deployed.wait(run_id, 900)
    assert most == 8
    assert (status["phase"], status["executions"]) == ("completed", 1)
    assert indexes(status, "scored") == list(range(60))
    assert status["tries"] == [1] * 60
    deployed.nothing_left(run_id)
