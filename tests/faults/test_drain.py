"""A node is drained in mid-run: cordoned, the run's pods evicted, and given back. It is the only node here, so what is
evicted waits until then.

    TEST_CORDON=1 pytest tests/faults/test_drain.py

Nothing else finds a place on the node meanwhile.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.harness.deployment import Deployment
from tests.cluster.harness.deployment import run as command
from tests.cluster.test_real_trials import evict, submit

pytestmark = [
    pytest.mark.req_k8s,
    pytest.mark.alone,
    pytest.mark.skipif(not os.environ.get("TEST_CORDON"), reason="needs TEST_CORDON=1: it cordons the cluster's nodes"),
]


@contextmanager
def cordoned() -> Iterator[None]:
    nodes = command("kubectl", "get", "nodes", "-o", "name").split()
    command("kubectl", "cordon", *nodes)
    try:
        yield
    finally:
        command("kubectl", "uncordon", *nodes)


def pods(deployed: Deployment, run_id: str) -> dict[str, str]:
    """uid -> name of the run's pods that are neither over nor going."""
    found = deployed.get("pods", f"harbor/run-id={run_id},harbor/role!=settle")
    return {
        pod["metadata"]["uid"]: pod["metadata"]["name"]
        for pod in found
        if pod["status"]["phase"] in ("Pending", "Running") and not pod["metadata"].get("deletionTimestamp")
    }


def test_scripted_trials_of_a_drained_node_run_again_and_none_that_had_ended(deployed: Deployment) -> None:
    run_id = deployed.submit(4, n_concurrent=2, script={"seconds": 30, "seconds_0": 2})
    deployed.eventually(lambda: deployed.rows(run_id) and len(deployed.running(run_id)) >= 1)
    with cordoned():
        evicted = pods(deployed, run_id)
        for name in evicted.values():
            evict(deployed, name)
        deployed.eventually(lambda: not evicted.keys() & pods(deployed, run_id).keys(), 150)
    status = deployed.wait(run_id)
    assert len(evicted) >= 2  # the run worker, and a task's
    assert (status["phase"], status["state"]) == ("completed", "ready")
    assert [o["outcome"] for o in status["outcomes"]] == ["scored"] * 4
    assert status["outcomes"][0]["tries"] == 1
    deployed.nothing_left(run_id)


def test_a_real_trial_of_a_drained_node_is_no_zero(deployed: Deployment, tmp_path: Path) -> None:
    """Its sandbox and its worker go together: whether the worker still says why, or runs it again, is chance."""
    suite = deployed.suite(tmp_path, 2)
    solution = suite / "hello-01" / "solution" / "solve.sh"
    solution.write_text(f"{solution.read_text()}sleep 45\n")
    run_id = submit(deployed, suite, "-n", "2")
    deployed.sandbox(run_id, 1)
    deployed.eventually(lambda: deployed.rows(run_id))
    with cordoned():
        for name in pods(deployed, run_id).values():
            evict(deployed, name)
        deployed.eventually(lambda: not [p for p in pods(deployed, run_id).values() if "agent" in p], 150)
    status = deployed.wait(run_id)
    first, second = deployed.rows(run_id)
    assert (first["outcome"], first["reward"], status["outcomes"][0]["tries"]) == ("scored", 1.0, 1)
    lost = (second["outcome"], second["reason"]) == ("infra_failed", "evicted")
    assert lost or (second["outcome"], second["reward"]) == ("scored", 1.0), second
    deployed.nothing_left(run_id)
