"""What an install needs and says, with a kubectl that a test wrote; and the whole of it on a real cluster."""

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from harbor_assets.domain.errors import Refused, ServiceUnavailable
from harbor_assets.interfaces.deployment.install import (
    OVERLAYS,
    Options,
    _rolled_out,
    _trouble,
    install,
    overlay_folder,
    read_objects,
    uninstall,
)
from harbor_assets.interfaces.deployment.kubectl import Kubectl
from harbor_assets.interfaces.deployment.manifests import Install, adapt


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on PATH that holds nothing but what the test puts there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_without_kubectl_it_says_so(kubectl: Path):
    with pytest.raises(Refused, match="kubectl is not on PATH"):
        install(Options(overlay="test"), print)


def test_a_cluster_that_does_not_answer_is_told_from_one_that_refuses(kubectl: Path):
    program(kubectl, "kubectl", "import sys; sys.exit('The connection was refused: Unable to connect to the server')")
    with pytest.raises(ServiceUnavailable, match="KUBECONFIG"):
        Kubectl()("get", "nodes")
    program(kubectl, "kubectl", "import sys; sys.exit('nodes is forbidden')")
    with pytest.raises(Refused, match="nodes is forbidden"):
        Kubectl()("get", "nodes")


NAMESPACE = """
import json, sys
words = sys.argv[1:]
if words[:2] == ["get", "namespace"]:
    print(json.dumps({"metadata": {"name": "x", "labels": {%s}}, "status": {"phase": "%s"}}))
elif words[0] == "delete":
    sys.exit("nothing may be deleted")
else:
    print(json.dumps({"items": []}))
"""


def test_a_namespace_of_others_is_neither_taken_nor_deleted(kubectl: Path):
    program(kubectl, "kubectl", NAMESPACE % ("", "Active"))
    with pytest.raises(Refused, match="not ours"):
        install(Options(overlay="test", namespace="x"), print)
    with pytest.raises(Refused, match="not ours"):
        uninstall(Options(overlay="test", namespace="x"), print)


def test_a_namespace_on_its_way_out_is_not_installed_into(kubectl: Path):
    program(kubectl, "kubectl", NAMESPACE % ('"app.kubernetes.io/part-of": "harbor-assets"', "Terminating"))
    with pytest.raises(Refused, match="being deleted"):
        install(Options(overlay="dev", namespace="x"), print)


def test_images_are_named_or_can_be_built(kubectl: Path):
    program(kubectl, "kubectl", "import sys, json; print(json.dumps({'items': []}) if 'nodes' in sys.argv else '')")
    with pytest.raises(Refused, match="There are no images") as refused:
        install(Options(overlay="dev"), print)
    assert len(refused.value.problems) == 2


def test_unknown_overlays_are_refused():
    with pytest.raises(Refused, match="test or dev"):
        overlay_folder("prod")
    assert all((overlay_folder(name) / "kustomization.yaml").is_file() for name in OVERLAYS)


def test_a_rollout_is_done_when_every_pod_is_new_and_available():
    done = {
        "metadata": {"generation": 2},
        "spec": {"replicas": 1},
        "status": {"observedGeneration": 2, "updatedReplicas": 1, "replicas": 1, "availableReplicas": 1},
    }
    assert _rolled_out(done)
    assert not _rolled_out({**done, "metadata": {"generation": 3}})
    assert not _rolled_out({**done, "status": {**done["status"], "replicas": 2}})
    assert not _rolled_out({**done, "status": {}})


def test_what_keeps_a_pod_from_running_is_told_in_its_own_words():
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}, "name": "api"}
    pods = [
        {"metadata": {"name": "a"}, "status": {"containerStatuses": [waiting]}},
        {
            "metadata": {"name": "b"},
            "status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes"}]},
        },
        {"metadata": {"name": "c"}, "status": {"containerStatuses": [{"name": "x", "state": {"running": {}}}]}},
    ]
    assert list(_trouble(pods)) == ["a/api: ImagePullBackOff not found", "b: 0/1 nodes"]


def test_uninstall_wants_a_yes(capsys: pytest.CaptureFixture[str]):
    done = subprocess.run(
        [sys.executable, "-m", "harbor_assets", "cluster", "uninstall", "--overlay", "test"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "--yes" in done.stderr


@pytest.mark.req_k8s
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_real_apiserver_takes_every_object(overlay: str):
    kubectl = Kubectl()
    name = f"dry-{secrets.token_hex(3)}"
    made = Install(service_image="r/s:1", worker_image="r/w:1", password="p", egress_secret="e" * 16, namespace=name)
    objects = adapt(read_objects(kubectl("kustomize", str(overlay_folder(overlay)))), made)
    kubectl("create", "namespace", name)  # a dry run makes none, and what stands in it would be refused
    try:
        inner = [item for item in objects if item["kind"] != "Namespace"]
        stream = json.dumps({"apiVersion": "v1", "kind": "List", "items": inner})
        out = kubectl("apply", "--dry-run=server", "-f", "-", stdin=stream)
        assert out.count("(server dry run)") == len(inner)
    finally:
        kubectl("delete", "namespace", name, "--wait=false")


@pytest.mark.req_k8s
@pytest.mark.skipif(not os.environ.get("TEST_REGISTRY"), reason="needs a registry to push images to: TEST_REGISTRY")
def test_installed_it_answers_and_uninstalled_nothing_is_left(tmp_path: Path):
    namespace = f"install-{secrets.token_hex(3)}"
    words = [sys.executable, "-m", "harbor_assets", "cluster"]
    where = ["--overlay", "test", "--namespace", namespace]
    kubectl = Kubectl()
    try:
        done = subprocess.run([*words, "install", *where], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        url = done.stdout.splitlines()[-1]
        assert httpx.get(f"{url}/healthz").json()["status"] == "ok"
        remote = [sys.executable, "-m", "harbor_assets", "runs", "list", "--base-url", url, "--json"]
        listed = subprocess.run(remote, capture_output=True, text=True, check=True)
        assert json.loads(listed.stdout)["data"] == []
    finally:
        gone = subprocess.run([*words, "uninstall", *where, "--yes"], capture_output=True, text=True, check=False)
    assert gone.returncode == 0, gone.stdout + gone.stderr
    assert kubectl.get("namespace", namespace) is None
    again = subprocess.run([*words, "uninstall", *where, "--yes"], capture_output=True, text=True, check=True)
    assert again.returncode == 0
