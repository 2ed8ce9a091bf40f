"""What killed controllers left behind is found, counted and deleted; what is nobody's business is not."""

import json
import secrets
import sys

import pytest

from tests.cluster.harness.deployment import Deployment, run

pytestmark = pytest.mark.req_k8s
KINDS = ("jobs", "pods", "secrets", "configmaps", "volumes")


def leftovers(run_id: str) -> list[dict[str, object]]:
    """One of each kind. The Job makes no pod, the volume claim gets no volume."""
    meta = {"name": run_id, "labels": {"harbor/run-id": run_id}}
    pod = {
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "c", "image": "debian:bookworm-slim", "command": ["sleep", "600"]}],
    }
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "no-such-class",
        "resources": {"requests": {"storage": "1Mi"}},
    }
    return [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": meta,
            "spec": {"suspend": True, "template": {"spec": pod}},
        },
        {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod},
        {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"key": "value-of-a-secret"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"key": "value"}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": claim},
    ]


def leave(deployed: Deployment) -> str:
    run_id = f"run-{secrets.token_hex(8)}"
    body = {"apiVersion": "v1", "kind": "List", "items": leftovers(run_id)}
    deployed.kubectl("apply", "-f", "-", stdin=json.dumps(body))
    return run_id


def reap(deployed: Deployment, *words: str) -> dict[str, dict[str, object]]:
    where = ("--namespace", deployed.namespace, "--json")
    said = run(sys.executable, "-m", "harbor_assets", "cluster", "reap", *where, *words)
    assert "value-of-a-secret" not in said
    return {row["run"]: row for row in json.loads(said)["runs"]}


def test_objects_of_a_run_that_nobody_knows_go_by_themselves(deployed: Deployment) -> None:
    own = deployed.kubectl("get", "secrets,configmaps,persistentvolumeclaims", "-l", "!harbor/run-id", "-o", "name")
    run_id = leave(deployed)
    assert run_id not in reap(deployed)  # a minute's grace
    assert len(deployed.left(run_id)) == len(KINDS)
    deployed.eventually(lambda: not deployed.left(run_id), 180)
    assert run_id not in reap(deployed, "--dry-run")
    assert own == deployed.kubectl(
        "get", "secrets,configmaps,persistentvolumeclaims", "-l", "!harbor/run-id", "-o", "name"
    )


@pytest.mark.alone
def test_an_admin_sees_what_there_is_and_deletes_it(deployed: Deployment) -> None:
    """The deployment's own reaper is kept from being first."""
    with deployed.settings("harbor-assets-code", HARBOR_ASSETS_REAP_SECONDS="3600"):
        run_id = leave(deployed)
        found = deployed.eventually(lambda: reap(deployed, "--dry-run").get(run_id), 180, every=10)
        assert found
        assert {kind: found[kind] for kind in KINDS} == dict.fromkeys(KINDS, 1)
        assert found["why"] == "the catalog knows no such run"
        assert len(deployed.left(run_id)) == len(KINDS)
        assert reap(deployed)[run_id] == found
        deployed.nothing_left(run_id)
