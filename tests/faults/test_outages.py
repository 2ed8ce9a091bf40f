"""What nobody chose: the API server or the registry away in mid-run; the run worker dead while the daemon restarts.

How a part is taken away is told by environment variables: see outage.py.
"""

import secrets
import time
from pathlib import Path

import pytest

from tests.cluster.harness.deployment import Deployment
from tests.faults.outage import away, needs

pytestmark = [pytest.mark.req_k8s, pytest.mark.alone]
OUTAGE_SECONDS = 60


@needs("apiserver")
def test_an_outage_of_the_apiserver_loses_nothing_and_repeats_nothing(deployed: Deployment) -> None:
    """Some trials end before it, some during it, some begin after it."""
    run_id = deployed.submit(8, n_concurrent=3, script={"seconds": 20})
    deployed.eventually(lambda: len(deployed.rows(run_id)) >= 2)
    with away("apiserver"):
        time.sleep(OUTAGE_SECONDS)
        during = len(deployed.rows(run_id))  # the service answers without it
    status = deployed.wait(run_id)
    assert 2 < during < 8
    assert (status["phase"], status["state"], status["executions"]) == ("completed", "ready", 1)
    assert [o["outcome"] for o in status["outcomes"]] == ["scored"] * 8
    assert status["tries"] == [1] * 8
    assert [d["status"] for d in status["dagster"]] == ["SUCCESS"]
    deployed.nothing_left(run_id)


def built(deployed: Deployment, suite: Path) -> str:
    """The taskset of a suite whose image no node has seen, and the registry has."""
    dockerfile = suite / "hello-00" / "environment" / "Dockerfile"
    dockerfile.write_text(f"{dockerfile.read_text()}RUN echo {secrets.token_hex(8)} > /new\n")
    taskset = deployed.cli("tasksets", "create", "--harbor-dir", str(suite))["taskset_ref"]
    deployed.cli("tasksets", "build-images", taskset, "--wait")
    return taskset


@needs("registry")
def test_a_registry_that_is_away_is_waited_for(deployed: Deployment, tmp_path: Path) -> None:
    taskset = built(deployed, deployed.suite(tmp_path, 1))
    with away("registry"):
        run_id = deployed.cli("runs", "submit", "--taskset", taskset, "--agent", "oracle")["run"]["id"]
        deployed.eventually(lambda: "ErrImagePull" in sandbox_waits(deployed, run_id), 120)
        assert deployed.rows(run_id) == []
    status = deployed.wait(run_id)
    [row] = deployed.rows(run_id)
    assert (status["phase"], status["executions"], status["tries"]) == ("completed", 1, [1])
    assert (row["outcome"], row["reward"]) == ("scored", 1.0)
    deployed.nothing_left(run_id)


def sandbox_waits(deployed: Deployment, run_id: str) -> str:
    """For what, in the kubelet's words."""
    pods = deployed.get("pods", f"harbor/run-id={run_id},harbor/role=agent")
    states = [each["state"] for pod in pods for each in pod["status"].get("containerStatuses", ())]
    return " ".join(state.get("waiting", {}).get("reason", "") for state in states).replace(
        "ImagePullBackOff", "ErrImagePull"
    )


def test_a_dead_run_worker_and_a_restarted_daemon_repeat_nothing(deployed: Deployment) -> None:
    run_id = deployed.submit(6, n_concurrent=2, script={"seconds": 10})
    deployed.eventually(lambda: len(deployed.rows(run_id)) >= 1)
    deployed.kill_nine(deployed.worker(run_id))
    deployed.kubectl("delete", "pod", "-l", "app.kubernetes.io/component=daemon", "--wait=false")
    status = deployed.wait(run_id)
    assert (status["phase"], status["executions"]) == ("completed", 1)
    assert [o["outcome"] for o in status["outcomes"]] == ["scored"] * 6
    assert status["tries"] == [1] * 6
    deployed.nothing_left(run_id)
