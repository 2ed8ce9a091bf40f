"""What an install needs and says, with a kubectl that a test wrote; and the whole of it on a real cluster."""

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harbor_assets.domain.errors import Refused, ServiceUnavailable
from harbor_assets.interfaces.deployment import source
from harbor_assets.interfaces.deployment.install import (
    OVERLAYS,
    Options,
    _installed_images,
    _tell_volumes,
    install,
    overlay_folder,
    read_objects,
    uninstall,
)
from harbor_assets.interfaces.deployment.kubectl import Kubectl, check_builder
from harbor_assets.interfaces.deployment.manifests import UNFILLED, Install, adapt
from harbor_assets.interfaces.deployment.waiting import rolled_out, trouble_of
from harbor_assets.sandboxes.kubernetes.manifests import Sandbox, pod
from harbor_assets.sandboxes.profiles import FolderProfiles
from harbor_assets.sandboxes.sizes import Sizes


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


def test_a_kubeconfig_that_leads_nowhere_is_refused_before_anything_begins(
    kubectl: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    program(kubectl, "kubectl", "import sys; sys.exit('E1129 21:50:34 noise\\nUnable to connect to the server: x')")
    with pytest.raises(Refused) as refused:
        install(Options(overlay="test"), print)
    assert str(refused.value).endswith(":\nUnable to connect to the server: x")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(Refused, match="no such file"):
        uninstall(Options(overlay="test"), print)


def test_a_builder_is_asked_before_anything_is_built(kubectl: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(Refused, match="no address of a BuildKit"):
        check_builder("buildkit.example")
    with pytest.raises(Refused, match="buildctl is not on PATH"):
        check_builder("tcp://buildkit.example:1234")
    program(kubectl, "buildctl", "import sys; sys.exit('failed to list workers: refused')")
    with pytest.raises(Refused, match="failed to list workers"):
        check_builder("tcp://buildkit.example:1234")
    program(kubectl, "buildctl", "")
    check_builder("unix:///run/buildkitd.sock")
    program(kubectl, "buildctl", "import time; time.sleep(60)")
    monkeypatch.setattr("harbor_assets.interfaces.deployment.kubectl._ANSWER_SECONDS", 0.1)
    with pytest.raises(Refused, match="no answer"):
        check_builder("unix:///run/buildkitd.sock")


def test_a_namespace_has_a_name_that_can_be_one(kubectl: Path):
    program(kubectl, "kubectl", "print('{}')")
    with pytest.raises(Refused, match="no name of a namespace"):
        install(Options(overlay="test", namespace="Not_One"), print)


def volume(name: str, policy: str, namespace: str) -> dict[str, object]:
    spec = {"persistentVolumeReclaimPolicy": policy, "claimRef": {"namespace": namespace}}
    return {"metadata": {"name": name}, "spec": spec}


def test_volumes_that_their_class_keeps_are_named_and_others_waited_for(monkeypatch: pytest.MonkeyPatch):
    looks = [[volume("b", "Delete", "x"), volume("a", "Retain", "x"), volume("o", "Delete", "other")]]
    looks.append(looks[0][1:])

    class Volumes:
        def items(self, *words: str) -> list[dict[str, object]]:
            assert words == ("persistentvolumes",)
            return looks.pop(0)

    monkeypatch.setattr("harbor_assets.interfaces.deployment.install.POLL_SECONDS", 0.0)
    said: list[str] = []
    _tell_volumes(Volumes(), Options(overlay="test", namespace="x"), said.append)  # type: ignore[arg-type]
    assert looks == []
    [line] = said
    assert "kubectl delete persistentvolumes a" in line
    looks.append([volume("b", "Delete", "x")])
    with pytest.raises(ServiceUnavailable, match="still there: b"):
        _tell_volumes(Volumes(), Options(overlay="test", namespace="x", timeout_seconds=-1), print)  # type: ignore[arg-type]


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


EMPTY = """
import json, sys
if "kustomize" in sys.argv:
    print(json.dumps({"kind": "Deployment", "metadata": {"name": "harbor-assets-postgres"}}))
else:
    print(json.dumps({"items": []}) if "nodes" in sys.argv else "")
"""


def test_images_are_named_or_can_be_built(kubectl: Path):
    program(kubectl, "kubectl", EMPTY)
    with pytest.raises(Refused, match="There are no images") as refused:
        install(Options(overlay="dev"), print)
    assert len(refused.value.problems) == 2


def test_unknown_overlays_are_refused():
    with pytest.raises(Refused, match="test or dev or production or ack"):
        overlay_folder("prod")
    assert all((overlay_folder(name) / "kustomization.yaml").is_file() for name in OVERLAYS)


def test_a_rollout_is_done_when_every_pod_is_new_and_available():
    done = {
        "metadata": {"generation": 2},
        "spec": {"replicas": 1},
        "status": {"observedGeneration": 2, "updatedReplicas": 1, "replicas": 1, "availableReplicas": 1},
    }
    assert rolled_out(done)
    assert not rolled_out({**done, "metadata": {"generation": 3}})
    assert not rolled_out({**done, "status": {**done["status"], "replicas": 2}})
    assert not rolled_out({**done, "status": {}})


class Before:
    """What stands in a namespace: a Deployment of the service with so many pods that answer, and the settings."""

    def __init__(self, available: int) -> None:
        pods = {"updatedReplicas": 1, "replicas": 1, "availableReplicas": available}
        self.there = {
            "deployment": {
                "metadata": {"generation": 1},
                "spec": {"replicas": 1, "template": {"spec": {"containers": [{"image": "r/s:1"}]}}},
                "status": {"observedGeneration": 1, **pods},
            },
            "configmap": {"data": {"HARBOR_ASSETS_WORKER_IMAGE": "r/w:1"}},
        }

    def get(self, kind: str, *words: str) -> dict[str, Any] | None:
        return self.there.get(kind)


def test_the_way_back_leads_to_what_ran_not_to_an_install_that_failed():
    assert _installed_images(Before(1), "n") == ("r/s:1", "r/w:1")  # type: ignore[arg-type]
    assert _installed_images(Before(0), "n") is None  # type: ignore[arg-type]
    nothing = Before(1)
    nothing.there.clear()
    assert _installed_images(nothing, "n") is None  # type: ignore[arg-type]


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
    assert list(trouble_of(pods)) == ["a/api: ImagePullBackOff not found", "b: 0/1 nodes"]


def test_uninstall_wants_a_yes(capsys: pytest.CaptureFixture[str]):
    done = subprocess.run(
        [sys.executable, "-m", "harbor_assets", "cluster", "uninstall", "--overlay", "test"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "--yes" in done.stderr


@pytest.fixture(scope="module")
def dry() -> Iterator[str]:
    """A namespace of that name: a dry run makes none, and what stands in it would be refused."""
    name, kubectl = f"dry-{secrets.token_hex(3)}", Kubectl()
    kubectl("create", "namespace", name)
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


def taken(objects: list[dict[str, Any]]) -> None:
    stream = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    out = Kubectl()("apply", "--dry-run=server", "-f", "-", stdin=stream)
    assert out.count("(server dry run)") == len(objects)


@pytest.mark.req_k8s
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_real_apiserver_takes_every_object(overlay: str, dry: str):
    made = Install(service_image="r/s:1", worker_image="r/w:1", password="p", egress_secret="e" * 16, namespace=dry)
    given = read_objects(Kubectl()("kustomize", str(overlay_folder(overlay))).replace(UNFILLED, "there"))
    taken([item for item in adapt(given, made) if item["kind"] != "Namespace"])


@pytest.mark.req_k8s
def test_a_real_apiserver_takes_a_buildkit(dry: str):
    given = read_objects(Kubectl()("kustomize", str(source.deploy_folder() / "overlays" / "buildkit")))
    for item in given:
        item["metadata"]["namespace"] = dry
    taken([item for item in given if item["kind"] != "Namespace"])


@pytest.mark.req_k8s
@pytest.mark.parametrize("profile", ["harbor-standard", "harbor-gpu", "harbor-virtual"])
def test_a_real_apiserver_takes_sandboxes_of_places_that_one_node_has_not(profile: str, dry: str, tmp_path: Path):
    """GPUs, virtual nodes: rendered from the profiles of `ack`. Its priority class is of an install, and left out."""
    text = (source.deploy_folder() / "profiles" / "ack" / "profiles.yaml").read_text()
    (tmp_path / "profiles.yaml").write_text(text)
    found = FolderProfiles(tmp_path).get(profile)
    found = found.model_copy(update={"pod_overrides": {}})
    sizes = Sizes(cpus=4, memory_mb=8192, gpus=1 if found.gpu_resource else 0)
    box = Sandbox(
        name="sandbox", image="i", role="agent", run_id="run-0", task_index=0, session="s", network="closed",
        lifetime_seconds=60, sizes=sizes, profile=found,
    )  # fmt: skip
    made = pod(box)
    if found.gpu_resource:
        assert made["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    made["metadata"]["namespace"] = dry
    taken([made])
