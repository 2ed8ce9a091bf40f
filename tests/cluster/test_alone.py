"""What changes what others on the deployment would see: quotas, settings, the egress proxy."""

import json
from pathlib import Path

import pytest

from tests.cluster.harness.deployment import Deployment
from tests.cluster.test_on_cluster import indexes
from tests.cluster.test_real_trials import submit

pytestmark = [pytest.mark.req_k8s, pytest.mark.alone]


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


def test_cancel_of_a_job_that_has_no_pod_and_with_a_dead_run_worker(deployed: Deployment) -> None:
    with deployed.quota({"pods": 2}):  # the run worker, one more
        run_id = deployed.submit(3, n_concurrent=3, script={"seconds": 300})
        deployed.eventually(lambda: len([n for n in deployed.jobs(run_id) if "-task-" in n]) == 3)
        deployed.eventually(lambda: len(deployed.running(run_id)) == 1)
        waits = deployed.eventually(lambda: [w for w in deployed.waits(run_id).values() if w[0] == "quota"])
        assert "exceeded quota: few" in waits[0][1]
        deployed.kill_nine(deployed.worker(run_id))
        deployed.cli("runs", "cancel", run_id)
        status = deployed.wait(run_id)
    assert status["phase"] == "cancelled"
    assert indexes(status, "cancelled") == [0, 1, 2]
    deployed.nothing_left(run_id)


def test_a_cancel_before_the_first_slot_ends_at_once(deployed: Deployment) -> None:
    with deployed.quota({"pods": 0}):  # its worker's Job is made, and gets no pod
        run_id = deployed.submit(2)
        deployed.eventually(lambda: deployed.jobs(run_id))
        waits = deployed.eventually(lambda: deployed.api(run_id)["run"]["waiting"])
        assert waits["reason"] in ("queued", "starting", "quota")
        said = deployed.eventually(lambda: "quota" in str(found := deployed.api(run_id)["run"]["waiting"]) and found)
        assert "the run worker: exceeded quota" in said["message"]
        deployed.cli("runs", "cancel", run_id)
        deployed.eventually(lambda: not deployed.get("jobs", f"harbor/run-id={run_id},harbor/role!=settle"))
    status = deployed.wait(run_id)
    assert (status["phase"], status["state"]) == ("cancelled", "none")
    assert indexes(status, "cancelled") == [0, 1]
    deployed.cli("runs", "cancel", run_id)  # of what has ended: it changes nothing
    assert deployed.phase(run_id) == "cancelled"
    deployed.nothing_left(run_id)


def test_a_run_that_waits_too_long_for_its_first_slot_expires(deployed: Deployment) -> None:
    with deployed.settings("harbor-assets-code", HARBOR_ASSETS_QUEUE_TIMEOUT_SECONDS="30"):
        with deployed.quota({"pods": 1}):  # the run worker, and nothing for it to run
            run_id = deployed.submit(2)
            deployed.eventually(lambda: deployed.phase(run_id) == "expired")
        status = deployed.status(run_id)
    assert {(o["outcome"], o["reason"]) for o in status["outcomes"]} == {("expired", "queue_timeout")}
    assert status["tries"] == []
    deployed.nothing_left(run_id)


FETCH = """python3 - <<'PY'
import json, os, socket, urllib.error, urllib.request

def fetch(host):
    try:
        return urllib.request.urlopen(f"http://{host}:8000/healthz", timeout=10).status
    except urllib.error.HTTPError as error:
        return error.code

def straight():  # to where the proxy leads, past it
    try:
        return bool(socket.create_connection(("%s", 8000), timeout=3))
    except OSError:
        return False

seen = {"listed": fetch("%s"), "narrowed": fetch("%s"), "straight": straight(), "said": os.environ["GREETING"]}
open("/app/seen.json", "w").write(json.dumps(seen))
PY
"""


def test_named_hosts_of_a_profile_are_all_a_task_reaches(deployed: Deployment, tmp_path: Path) -> None:
    """The task names two hosts, the profile one of them. It leads to the deployment: what a test cluster has."""
    listed, narrowed = (f"{name}.{deployed.namespace}.svc.cluster.local" for name in ("harbor-assets", "other"))
    suite = deployed.suite(tmp_path, 1)
    task = suite / "hello-00"
    toml = (task / "task.toml").read_text()
    hosts = f'network_mode = "allowlist"\nallowed_hosts = ["{listed}", "{narrowed}"]'
    env = '[solution.env]\nGREETING = "${TEST_GREETING}"\n[verifier.env]\nGREETING = "${TEST_GREETING}"\n'
    (task / "task.toml").write_text(toml.replace('network_mode = "no-network"', hosts) + env)
    (task / "environment" / "Dockerfile").write_text("FROM python:3.12-slim\nWORKDIR /app\n")
    address = deployed.kubectl("get", "service", "harbor-assets", "-o", "jsonpath={.spec.clusterIP}")
    (task / "solution" / "solve.sh").write_text(FETCH % (address, listed, narrowed))
    seen = json.dumps({"listed": 200, "narrowed": 403, "straight": False, "said": "hello"})
    check = f"""[ "$GREETING" = hello ] && [ "$(cat /app/seen.json)" = '{seen}' ] && echo 1 || echo 0"""
    (task / "tests" / "test.sh").write_text(f"cat /app/seen.json\n({check}) > /logs/verifier/reward.txt\n")
    with (
        deployed.profile({"name": "named", "hosts": [listed], "requests": {"cpu": "50m", "memory": "64Mi"}}),
        deployed.private_egress(port=8000),
        deployed.settings("harbor-assets", HARBOR_ASSETS_TRIAL_VARIABLES="TEST_GREETING", TEST_GREETING="hello"),
    ):
        run_id = submit(deployed, suite, "--sandbox-profile", "named")
        status = deployed.wait(run_id)
    [row] = deployed.rows(run_id)
    assert (status["phase"], row["outcome"], row["reward"]) == ("completed", "scored", 1.0), row
    record = json.loads(deployed.ask("read", run=run_id, path=f"{row['evidence']}/sandbox.json"))
    assert record["profile"] == "named"
    assert [each["how"] for each in record["network"]] == [f"install: {listed}", f"proxy: {listed}"]
    deployed.nothing_left(run_id)
