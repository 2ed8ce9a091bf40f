"""What nobody chose: the API server away in mid-run; the run worker dead while the daemon restarts.

How a part is taken away is told by environment variables: see outage.py.
"""

import time

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
