"""Retries of infrastructure, pauses and stops on a deployment: the tasks' Jobs go by one state of the run."""

from pathlib import Path

import pytest

from tests.cluster.harness.deployment import Deployment
from tests.cluster.test_real_trials import evict, slow, submit

pytestmark = pytest.mark.req_k8s


def sandboxes(deployed: Deployment, run_id: str) -> set[str]:
    """Uids of the pods in which the agent of the one task works: each of its tries has the same name for its own."""
    pods = deployed.get("pods", f"harbor/run-id={run_id},harbor/role=agent")
    return {pod["metadata"]["uid"] for pod in pods if pod["status"]["phase"] == "Running"}


def test_a_trial_whose_sandbox_was_evicted_is_tried_again_in_another(deployed: Deployment, tmp_path: Path) -> None:
    suite = deployed.suite(tmp_path, 1)
    slow(suite, "hello-00")
    run_id = submit(deployed, suite)
    pod = deployed.sandbox(run_id, 0)
    first = sandboxes(deployed, run_id)
    evict(deployed, pod)
    deployed.eventually(lambda: sandboxes(deployed, run_id) - first)
    deployed.cli("runs", "cancel", run_id)
    assert deployed.wait(run_id)["phase"] == "cancelled"
    (row,) = deployed.rows(run_id)
    assert (row["outcome"], [tried["reason"] for tried in row["tries"]]) == ("cancelled", ["evicted", None])
    assert row["tries"][0]["error"]
    deployed.nothing_left(run_id)


def test_a_run_whose_provider_refuses_is_stopped_and_its_scores_stay(deployed: Deployment) -> None:
    refused = {f"reason_{index}": "provider_refused" for index in (1, 2)}
    run_id = deployed.submit(5, n_concurrent=1, script={"seconds": 0, **refused})
    status = deployed.wait(run_id)
    assert (status["phase"], status["state"]) == ("completed", "ready")
    assert status["error"] == "the run was stopped: provider_refused: as the script says"
    assert [each["reason"] for each in status["outcomes"]] == [
        "graded",
        "provider_refused",
        "provider_refused",
        "run_stopped",
        "run_stopped",
    ]
    deployed.nothing_left(run_id)


def test_a_run_whose_sandboxes_are_lost_is_paused_and_opens_again_by_itself(deployed: Deployment) -> None:
    lost = {f"reason_{index}": "sandbox_lost" for index in range(3)}
    run_id = deployed.submit(5, n_concurrent=1, script={"seconds": 0, **lost})
    deployed.eventually(lambda: (deployed.api(run_id)["run"]["waiting"] or {}).get("reason") == "paused")
    status = deployed.wait(run_id)
    assert [each["outcome"] for each in status["outcomes"]] == ["infra_failed"] * 3 + ["scored"] * 2
    deployed.nothing_left(run_id)
