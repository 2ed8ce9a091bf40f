"""Real Harbor trials on a real cluster: each task's agent works in a pod sandbox of its own."""

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.cluster.harness.deployment import Deployment

pytestmark = pytest.mark.req_k8s


def submit(deployed: Deployment, suite: Path, *words: str) -> str:
    """Publishes and builds what is not there yet; the run's id."""
    said = deployed.cli("runs", "submit", "--harbor-dir", str(suite), "--agent", "oracle", *words)
    return said["run"]["id"]


def outcomes(deployed: Deployment, run_id: str) -> list[tuple[str, str]]:
    return [(row["outcome"], row["reason"]) for row in deployed.rows(run_id)]


def intake(deployed: Deployment, path: str, body: dict[str, Any] | None = None) -> Any:
    """What the API of Experiments answers."""
    url = f"{deployed.url}/apis/intake/v2/workspaces/default/{path}"
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, data, {"content-type": "application/json"}), timeout=60) as answer:
        return json.loads(answer.read())


def assert_published(deployed: Deployment, run_id: str, rows: list[dict[str, Any]]) -> None:
    """Every trial is a session with its reward, stored while the run went on: by the sensor, not by settling it."""
    evaluation = intake(deployed, f"evaluations/oracle-{run_id}")
    assert (evaluation["status"], evaluation["metadata"]["coverage"]) == ("completed", "3 of 3 trials scored")
    sessions = intake(deployed, f"evaluations/oracle-{run_id}/sessions")["data"]
    assert {each["session_id"] for each in sessions} == {f"{run_id}:{row['trial_id']}" for row in rows}
    assert [each["evaluator_scores"] for each in sessions] == [{"harbor_reward.reward": 1.0}] * 3
    merged = min(run["startTime"] for run in settlements(deployed, run_id))
    assert min(datetime.fromisoformat(each["updated_at"]).timestamp() for each in sessions) < merged


def settlements(deployed: Deployment, run_id: str) -> list[dict[str, Any]]:
    """The Dagster runs that merged the run's bundle."""
    query = "query($f: RunsFilter) { runsOrError(filter: $f) { ... on Runs { results { startTime } } } }"
    wanted = {"pipelineName": "settle", "tags": [{"key": "harbor/run_id", "value": run_id}]}
    return deployed.graphql(query, f=wanted)["runsOrError"]["results"]


def slow(suite: Path, task: str) -> None:
    """The task's solution takes its time, so that something can happen to its sandbox."""
    path = suite / task / "solution" / "solve.sh"
    path.write_text(path.read_text() + "sleep 300\n")


def test_hello_world_scores_and_leaves_its_evidence(deployed: Deployment, tmp_path: Path) -> None:
    experiment = f"real-{tmp_path.name}"
    intake(deployed, "experiments", {"name": experiment})
    run_id = submit(deployed, deployed.suite(tmp_path, 3), "-n", "3", "--experiment", experiment)
    evaluation = f"evaluations/oracle-{run_id}"
    assert intake(deployed, evaluation)["status"] == "running"
    status = deployed.wait(run_id)
    assert (status["phase"], status["state"]) == ("completed", "ready")
    rows = deployed.rows(run_id)
    assert_published(deployed, run_id, rows)
    assert [(row["outcome"], row["reward"]) for row in rows] == [("scored", 1.0)] * 3
    files = deployed.ask("bundle", run=run_id)
    for row in rows:
        sandbox = next(f for f in files if f.startswith(row["evidence"]) and f.endswith("sandbox.json"))
        assert sandbox
    deployed.nothing_left(run_id)
    deployed.eventually(lambda: deployed.ask("materialised", asset="task_image"), every=5)


def test_an_image_that_does_not_exist_is_one_tasks_trouble(deployed: Deployment, tmp_path: Path) -> None:
    suite = deployed.suite(tmp_path, 2)
    toml = suite / "hello-01" / "task.toml"
    toml.write_text(toml.read_text().replace("[environment]", '[environment]\ndocker_image = "no-such-image:1"'))
    run_id = submit(deployed, suite)
    assert deployed.wait(run_id)["phase"] == "completed"
    assert outcomes(deployed, run_id) == [("scored", "graded"), ("infra_failed", "image_pull")]
    assert "no-such-image:1" in deployed.rows(run_id)[1]["message"]
    deployed.nothing_left(run_id)


def test_an_image_that_is_gone_when_the_sandbox_wants_it(deployed: Deployment, tmp_path: Path) -> None:
    """The plan holds a digest that nobody has any more: the kubelet finds out, not the one who submits."""
    image = f"{os.environ['TEST_REGISTRY']}/gone@sha256:{'0' * 64}"
    run_id = deployed.submit(1, image=image)
    assert deployed.wait(run_id)["phase"] == "failed"
    ((outcome, reason),) = outcomes(deployed, run_id)
    assert (outcome, reason) == ("infra_failed", "image_pull")
    assert "not found" in deployed.rows(run_id)[0]["message"]
    deployed.nothing_left(run_id)


def test_a_sandbox_that_fits_no_node_says_so_while_it_waits_and_ends_its_task(deployed: Deployment) -> None:
    image = f"{os.environ['TEST_REGISTRY']}/never-pulled@sha256:{'0' * 64}"
    profile = {"name": "patient", "start_grace_seconds": 15}
    run_id = deployed.submit(1, image=image, sizing={"memory_mb": 900 * 1024}, profile=profile)
    reason, said = deployed.eventually(lambda: "its sandbox" in str(found := deployed.waits(run_id)) and found)[0]
    assert reason == "scheduling"
    assert said.startswith("no node could ever take the pod of its sandbox: 0/1 nodes are available: 1 Insufficient")
    assert deployed.wait(run_id)["phase"] == "failed"
    assert outcomes(deployed, run_id) == [("infra_failed", "scheduling")]
    assert "Insufficient memory" in deployed.rows(run_id)[0]["message"]
    deployed.nothing_left(run_id)


@pytest.mark.parametrize(("how", "reason"), [("delete", "sandbox_lost"), ("evict", "evicted")])
def test_a_lost_sandbox_is_no_score(deployed: Deployment, tmp_path: Path, how: str, reason: str) -> None:
    suite = deployed.suite(tmp_path, 2)
    slow(suite, "hello-01")
    run_id = submit(deployed, suite, "-n", "2", "--infra-retries", "0")
    pod = deployed.sandbox(run_id, 1)
    deployed.eventually(lambda: deployed.rows(run_id))  # its neighbour has ended; by now the agent is at work
    if how == "delete":
        deployed.kubectl("delete", "pod", pod, "--force", "--grace-period=0")
    else:
        evict(deployed, pod)
    status = deployed.wait(run_id)
    assert status["phase"] == "completed"
    rows: list[dict[str, Any]] = deployed.rows(run_id)
    assert [(row["outcome"], row["reason"]) for row in rows] == [("scored", "graded"), ("infra_failed", reason)]
    assert rows[1]["reward"] is None
    deployed.nothing_left(run_id)


def evict(deployed: Deployment, pod: str) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": deployed.namespace}}
    path = f"/api/v1/namespaces/{deployed.namespace}/pods/{pod}/eviction"
    deployed.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body))


def test_a_cancel_ends_a_sandbox_at_once(deployed: Deployment, tmp_path: Path) -> None:
    suite = deployed.suite(tmp_path, 1)
    slow(suite, "hello-00")
    run_id = submit(deployed, suite)
    deployed.sandbox(run_id, 0)
    deployed.cli("runs", "cancel", run_id)
    assert deployed.wait(run_id)["phase"] == "cancelled"
    assert outcomes(deployed, run_id) == [("cancelled", "cancelled_by_user")]
    deployed.nothing_left(run_id)


def test_what_a_run_kept_is_verified_again_by_other_tests_and_without_an_agent(
    deployed: Deployment, tmp_path: Path
) -> None:
    suite = deployed.suite(tmp_path, 1)
    task = suite / "hello-00"
    toml = (task / "task.toml").read_text().replace("[verifier]\n", '[verifier]\nenvironment_mode = "separate"\n')
    (task / "task.toml").write_text(f'artifacts = ["/app"]\n{toml}')
    (task / "solution" / "solve.sh").write_text(
        "#!/bin/bash\nprintf '#!/bin/sh\\necho ran\\n' > /app/tool\nchmod 755 /app/tool\n"
    )
    tests = task / "tests" / "test.sh"
    tests.write_text('#!/bin/bash\n[ "$(/app/tool)" = other ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n')
    old = submit(deployed, suite)
    deployed.wait(old)
    assert [(row["outcome"], row["reward"]) for row in deployed.rows(old)] == [("scored", 0.0)]
    tests.write_text(tests.read_text().replace("other", "ran"))
    deployed.cli(
        "tasksets", "build-images", "--harbor-dir", str(suite)
    )  # the new revision has the image of the old one
    new = deployed.cli("runs", "regrade", old)["run"]["id"]
    deployed.wait(new)
    (row,) = deployed.rows(new)
    assert (row["outcome"], row["reward"], row["flags"]) == ("scored", 1.0, ["regraded"]), row["message"]
    assert row["details"]["regraded"]["run_id"] == old
    assert "agent" not in row["details"]  # no sandbox of an agent
