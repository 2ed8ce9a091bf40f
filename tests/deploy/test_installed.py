"""A whole deployment on a real cluster: installed, used from here like a laptop, hurt, upgraded, removed.

The tests of this module share one installation and build on each other in the order they stand in.
"""

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

import harbor_assets
from harbor_assets.interfaces.deployment.manifests import MINE
from harbor_assets.interfaces.deployment.source import deploy_folder

pytestmark = pytest.mark.req_k8s

HELLO = Path(harbor_assets.__file__).parent / "examples" / "hello-world-suite"
PATIENCE_SECONDS = 600  # two cores, shared with builds
PROGRAMS = ("", "-code", "-daemon", "-dagster", "-egress", "-postgres")


@dataclass
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def last(self) -> str:
        return self.out.rstrip().splitlines()[-1]

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Installed:
    """One installation, and this machine as somebody uses it from there: without a kubeconfig."""

    namespace: str
    folder: Path
    url: str = ""
    said: list[str] = field(default_factory=list)

    def cli(self, *words: str, cluster: bool = False, code: int = 0) -> Done:
        environ = {**os.environ, "HARBOR_ASSETS_HOME": str(self.folder / "home"), "XDG_CONFIG_HOME": str(self.folder)}
        if not cluster:
            del environ["KUBECONFIG"]
        done = subprocess.run(
            [sys.executable, "-m", "harbor_assets", *words],
            capture_output=True, text=True, check=False, env=environ, cwd=self.folder,
        )  # fmt: skip
        assert done.returncode == code, f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return Done(done.returncode, done.stdout, done.stderr)

    def install(self) -> Done:
        return self.cli("cluster", "install", "--overlay", "test", "--namespace", self.namespace, cluster=True)

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        return kubectl("-n", self.namespace, *words, stdin=stdin)

    def objects(self, kinds: str, *words: str) -> list[dict[str, Any]]:
        return json.loads(self.kubectl("get", kinds, "-o", "json", *words))["items"]

    def submit(self, suite: Path, *words: str) -> str:
        out = self.cli("runs", "submit", "--harbor-dir", str(suite), "--agent", "oracle", *words).out
        found = re.search(r"Run (run-[0-9a-f]{16}) accepted", out)
        assert found, out
        return found[1]

    def run(self, run_id: str) -> dict[str, Any]:
        return self.cli("runs", "status", run_id, "--json").json["run"]

    def ready(self, *programs: str) -> None:
        for name in programs:
            self.kubectl("rollout", "status", f"deployment/harbor-assets{name}", f"--timeout={PATIENCE_SECONDS}s")


def kubectl(*words: str, stdin: str | None = None) -> str:
    done = subprocess.run(["kubectl", *words], input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
    return done.stdout


def eventually[T](look: Callable[[], T], what: str) -> T:
    until = time.monotonic() + PATIENCE_SECONDS
    while not (found := look()):
        assert time.monotonic() < until, f"in {PATIENCE_SECONDS} s: no {what}"
        time.sleep(1)
    return found


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture(scope="module")
def it(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    made = Installed(f"install-{secrets.token_hex(3)}", tmp_path_factory.mktemp("somewhere"))
    try:
        done = made.install()
        made.said, made.url = done.out.splitlines(), done.last
        made.cli("context", "add", "lab", "--base-url", made.url)
        made.cli("context", "use", "lab")
        yield made
    finally:
        subprocess.run(["kubectl", "delete", "namespace", made.namespace, "--ignore-not-found"], check=False)


def slow_suite(folder: Path, seconds: int, tasks: int) -> Path:
    """Copies of hello-world whose solution takes a while."""
    [task] = [path for path in HELLO.iterdir() if (path / "task.toml").is_file()]
    for n in range(tasks):
        copy = folder / "slow" / f"task-{n}"
        shutil.copytree(task, copy)
        solution = copy / "solution" / "solve.sh"
        solution.write_text(f"{solution.read_text()}\necho waiting\nsleep {seconds}\n")
        dockerfile = copy / "environment" / "Dockerfile"
        dockerfile.write_text(f"{dockerfile.read_text()}\nENV SLOW={seconds}-{n}\n")  # an image of its own
        config = copy / "task.toml"
        config.write_text(config.read_text().replace('name = "', f'name = "slow{n}-', 1))
    return folder / "slow"


def test_it_answers_at_the_last_line_of_the_install(it: Installed):
    assert httpx.get(f"{it.url}/healthz").json()["status"] == "ok"
    assert httpx.get(f"{it.url}/readyz").status_code == 200
    deployments = {item["metadata"]["name"] for item in it.objects("deployments")}
    assert deployments == {f"harbor-assets{name}" for name in PROGRAMS}
    assert f"{len(PROGRAMS)}/{len(PROGRAMS)}" in "\n".join(it.said)


def test_every_object_carries_our_label(it: Installed):
    kinds = kubectl("api-resources", "--namespaced", "--verbs=list,delete", "-o", "name").split()
    # Of Kubernetes' own making: each namespace's certificate and account, and what mirrors a Service or logs events.
    kinds = [kind for kind in kinds if not kind.startswith(("events", "endpoints", "endpointslices"))]
    given = ("kube-root-ca.crt", "default")
    bare = [
        f"{item['kind']}/{item['metadata']['name']}"
        for item in it.objects(",".join(kinds))
        if item["metadata"]["name"] not in given
        and item["metadata"].get("labels", {}).get("app.kubernetes.io/part-of") != "harbor-assets"
    ]
    assert bare == []


def test_our_own_pods_would_be_let_in_at_the_restricted_level(it: Installed):
    label = "pod-security.kubernetes.io/enforce=restricted"
    words = ["kubectl", "label", "--dry-run=server", "--overwrite", "namespace", it.namespace, label]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "would violate" not in done.stderr
    assert done.stderr == ""


def test_a_run_from_here_does_what_it_does_on_a_laptop(it: Installed):
    done = it.cli("runs", "submit", "--harbor-dir", str(HELLO), "--agent", "oracle", "--wait")
    assert "1.0000" in done.out
    run_id = re.findall(r"run-[0-9a-f]{16}", done.out)[0]
    status = it.run(run_id)
    assert (status["phase"], status["result_state"], status["sandbox"]) == ("completed", "ready", "kubernetes")
    assert status["counts"] == {"scored": 1}
    assert "scored" in it.cli("runs", "tasks", run_id).out
    assert "1.0000" in it.cli("runs", "results", run_id).out
    log = it.cli("runs", "logs", run_id).out
    assert "STEP_SUCCESS trial_results.trial[t00000]" in log
    assert f"{run_id}-task-0" in log
    assert "/trial.log" in it.cli("runs", "logs", run_id, "--task", "0", "--follow").out
    it.cli("runs", "download", run_id)
    assert (it.folder / run_id / "agent-eval-results" / "report.html").is_file()
    it.cli("runs", "download", run_id, "--task", "0", "--output", str(it.folder / "one"))
    assert list((it.folder / "one").rglob("trials.jsonl"))
    assert run_id in it.cli("runs", "list").out
    eventually(lambda: not it.objects("jobs,pods,secrets,configmaps", "-l", f"harbor/run-id={run_id}"), "clean end")
    assert not (it.folder / "home" / "catalog.db").exists()


def test_images_are_built_ahead_and_a_taskset_runs_without_its_source(it: Installed):
    ref = it.cli("tasksets", "create", "--harbor-dir", str(slow_suite(it.folder, 0, 1))).last
    refused = it.cli("runs", "submit", "--taskset", ref, "--agent", "oracle", code=2)
    assert "build-images" in refused.err
    assert "Ready image of" in it.cli("tasksets", "build-images", ref, "--wait").out
    assert "1.0000" in it.cli("runs", "submit", "--taskset", ref, "--agent", "oracle", "--wait").out


def test_a_suite_with_its_images_in_it_runs_without_a_build_on_the_nodes_asked_for(it: Installed, tmp_path: Path):
    suite = tmp_path / "updated"
    shutil.copytree(HELLO, suite)
    built = it.cli("tasksets", "build-images", "--harbor-dir", str(suite), "--update-config")
    assert "1 task.toml file updated" in built.out
    [written] = [path.read_text() for path in suite.glob("*/task.toml")]
    [image] = re.findall(r'^docker_image = "(\S+@sha256:[0-9a-f]{64})"$', written, re.MULTILINE)
    again = it.cli("tasksets", "build-images", "--harbor-dir", str(suite), "--update-config", "--skip-unchanged")
    assert again.last == "Nothing is left to build"
    refused = it.cli("runs", "submit", "--harbor-dir", str(suite), "--node-selector", "zone=a", code=2)
    assert "zone: is not among node_selector_keys of sandbox profile 'harbor-standard'" in refused.err
    [node, *_] = json.loads(kubectl("get", "nodes", "-o", "json"))["items"]
    label = f"kubernetes.io/arch={node['metadata']['labels']['kubernetes.io/arch']}"
    run_id = it.submit(suite, "--node-selector", label)
    sandboxes = f"harbor/run-id={run_id},app.kubernetes.io/component=sandbox"
    [pod] = eventually(lambda: it.objects("pods", "-l", sandboxes), "sandbox")
    assert "=".join(*pod["spec"]["nodeSelector"].items()) == label
    assert pod["spec"]["containers"][0]["image"] == image
    it.cli("runs", "cancel", run_id)


def test_restarts_of_daemon_service_and_database_lose_nothing(it: Installed, tmp_path: Path):
    run_id = it.submit(slow_suite(tmp_path, 60, 2))
    eventually(lambda: "Agent" in it.cli("runs", "logs", run_id, "--task", "1").out, "live log")
    jobs = {job["metadata"]["uid"] for job in it.objects("jobs", "-l", f"harbor/run-id={run_id},harbor/task")}
    assert len(jobs) == 2
    ours = it.objects("jobs,pods", "-l", f"harbor/run-id={run_id}")
    assert {item["metadata"]["labels"]["app.kubernetes.io/part-of"] for item in ours} == {"harbor-assets"}
    it.kubectl("delete", "pods", "-l", "app.kubernetes.io/component=postgres", "--grace-period=0", "--force")
    it.kubectl("rollout", "restart", "deployment/harbor-assets", "deployment/harbor-assets-daemon",
               "deployment/harbor-assets-code", "deployment/harbor-assets-dagster")  # fmt: skip
    it.ready(*PROGRAMS)
    eventually(lambda: answers(it.url), "answer")
    done = it.cli("runs", "status", run_id, "--watch")
    assert "Mean 1.0000 (scored 2 of 2 trials, 2 of 2 tasks)" in done.out
    assert it.run(run_id)["executions"] == 1
    rows = [json.loads(line) for line in _bundle(it, run_id, "outcomes.jsonl").splitlines()]
    assert [len(row["tries"]) for row in rows] == [1, 1]  # no finished trial, and none under way, was run again


def _bundle(it: Installed, run_id: str, name: str) -> str:
    it.cli("runs", "download", run_id)
    return (it.folder / run_id / "agent-eval-results" / name).read_text()


def test_a_second_install_changes_nothing_and_keeps_everything(it: Installed):
    def programs() -> dict[str, str]:
        """Without the pod that settled a run, which goes some seconds after its end."""
        pods = it.objects("pods", "-l", "!harbor/run-id")
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}

    before, runs = programs(), it.cli("runs", "list", "--json").json["data"]
    done = it.install()
    assert done.last == it.url
    assert programs() == before
    assert it.cli("runs", "list", "--json").json["data"] == runs


def overlay_by_hand(it: Installed, folder: Path, namespace: str) -> Path:
    """`deploy/overlays/test` as somebody edits it: the lines marked "yours", and another namespace."""
    shutil.copytree(deploy_folder(), folder / "deploy")
    path = folder / "deploy" / "overlays" / "test" / "kustomization.yaml"
    api = json.loads(it.kubectl("get", "deployment", "harbor-assets", "-o", "json"))
    service = api["spec"]["template"]["spec"]["containers"][0]["image"]
    env = json.loads(it.kubectl("get", "configmap", "harbor-assets-env", "-o", "json"))["data"]
    name, _, tag = service.rpartition(":")
    text = path.read_text()
    text = text.replace("newName: harbor-assets-service, newTag: latest", f"newName: {name}, newTag: {tag}")
    text = text.replace("harbor-assets-worker:latest", env["HARBOR_ASSETS_WORKER_IMAGE"])
    path.write_text(text.replace("namespace: harbor-assets\n", f"namespace: {namespace}\n"))
    return path.parent


def test_kubectl_alone_does_not_lock_an_installation_out_of_its_database(it: Installed, tmp_path: Path):
    runs = it.cli("runs", "list", "--json").json["data"]
    kubectl("apply", "-k", str(overlay_by_hand(it, tmp_path, it.namespace)))
    it.kubectl("rollout", "restart", "deployment")
    it.ready(*PROGRAMS)
    eventually(lambda: answers(it.url), "answer")
    assert it.cli("runs", "list", "--json").json["data"] == runs
    it.install()
    assert "1.0000" in it.cli("runs", "submit", "--harbor-dir", str(HELLO), "--agent", "oracle", "--wait").out


def test_kubectl_alone_installs(it: Installed, tmp_path: Path):
    namespace = f"{it.namespace}-by-hand"
    try:
        kubectl("apply", "-k", str(overlay_by_hand(it, tmp_path, namespace)))
        other = Installed(namespace, it.folder)
        other.ready(*PROGRAMS)
        [port] = other.objects("services", "--field-selector", "metadata.name=harbor-assets")[0]["spec"]["ports"]
        url = f"{it.url.rpartition(':')[0]}:{port['nodePort']}"
        eventually(lambda: answers(url), "answer")
    finally:
        kubectl("delete", "namespace", namespace, "--ignore-not-found", "--wait=false")


def test_uninstalled_nothing_is_left(it: Installed):
    words = ("cluster", "uninstall", "--overlay", "test", "--namespace", it.namespace)
    assert "--yes" in it.cli(*words, cluster=True, code=2).err
    said = it.cli(*words, "--yes", cluster=True).out
    assert not json.loads(
        kubectl("get", "namespaces", "-o", "json", "--field-selector", f"metadata.name={it.namespace}")
    )["items"]
    kinds = kubectl("api-resources", "--namespaced=false", "--verbs=list,delete", "-o", "name").split()
    left = json.loads(kubectl("get", ",".join(kinds), "-l", MINE, "-o", "json"))["items"]
    assert it.namespace not in {item["metadata"]["name"] for item in left}
    for volume in json.loads(kubectl("get", "persistentvolumes", "-o", "json"))["items"]:
        if volume["spec"].get("claimRef", {}).get("namespace") == it.namespace:
            assert volume["status"]["phase"] == "Released"  # its class says Retain, which is its admin's wish
            assert volume["metadata"]["name"] in said
    assert "nothing to remove" in it.cli(*words, "--yes", cluster=True).out
