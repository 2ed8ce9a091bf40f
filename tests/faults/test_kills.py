"""SIGKILL of the deployment's own programs in mid-run, and of a trial's worker whose sandbox stays behind."""

from pathlib import Path

import pytest

from tests.cluster.harness.deployment import Deployment
from tests.cluster.test_on_cluster import indexes
from tests.cluster.test_real_trials import slow, submit

pytestmark = [pytest.mark.req_k8s, pytest.mark.alone]


@pytest.mark.parametrize("component", ["daemon", "api", "code", "postgres"])
def test_a_killed_program_loses_nothing_and_repeats_nothing(deployed: Deployment, component: str) -> None:
    run_id = deployed.submit(6, n_concurrent=2, script={"seconds": 8})
    deployed.eventually(lambda: deployed.rows(run_id))
    pod = deployed.program(component)
    before = deployed.restarts(pod)
    deployed.kill_nine(pod)
    deployed.eventually(lambda: deployed.restarts(pod) > before, 120)
    deployed.eventually(deployed.answers, 180)
    status = deployed.wait(run_id)
    assert (status["phase"], status["state"], status["executions"]) == ("completed", "ready", 1)
    assert indexes(status, "scored") == list(range(6))
    assert status["tries"] == [1] * 6
    assert [d["status"] for d in status["dagster"]] == ["SUCCESS"]
    deployed.nothing_left(run_id)


def test_the_sandbox_of_a_killed_worker_goes_while_the_run_goes_on(deployed: Deployment, tmp_path: Path) -> None:
    """Its Job stays until the run's end, with the facts of its death, and would keep the sandbox."""
    suite = deployed.suite(tmp_path, 2)
    for task in ("hello-00", "hello-01"):
        slow(suite, task)
    run_id = submit(deployed, suite, "-n", "2")
    lost, kept = (deployed.sandbox(run_id, task) for task in (0, 1))
    (worker,) = (name for name in deployed.running(run_id) if "-task-0-" in name)
    deployed.kill_nine(worker)

    def there() -> set[str]:
        pods = deployed.get("pods", f"harbor/run-id={run_id},harbor/role=agent")
        return {pod["metadata"]["name"] for pod in pods}

    deployed.eventually(lambda: lost not in there(), 150)
    assert kept in there()
    assert deployed.phase(run_id) == "running"
    deployed.cli("runs", "cancel", run_id)
    status = deployed.wait(run_id)
    assert (status["phase"], indexes(status, "cancelled")) == ("cancelled", [0, 1])
    deployed.nothing_left(run_id)
