"""A deployment of the working tree on the cluster that KUBECONFIG names, in a namespace of its own."""

import json
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli

from tests.cluster.harness.manifests import deployment

ROOT = Path(__file__).parents[2]
HARNESS = ROOT / "tests" / "cluster" / "harness"
PATIENCE_SECONDS = 400  # two cores shared with everything else


def run(*words: str, stdin: str | None = None, check: bool = True) -> str:
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"{' '.join(words[:6])}: {done.stderr or done.stdout}"
    return done.stdout


class Deployment:
    """What tests do with it. `ask` calls a function of `harness/inside.py` in the code server's pod."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.taskset = ""

    def kubectl(self, *words: str, stdin: str | None = None, check: bool = True) -> str:
        return run("kubectl", "-n", self.namespace, *words, stdin=stdin, check=check)

    def deploy(self, image: str) -> None:
        items = deployment(self.namespace, image)
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        self.ready("postgres")
        # Not the first database: Dagster and the catalog each have a table named alembic_version.
        psql = ("exec", "deploy/harbor-assets-postgres", "--", "psql", "-U", "dagster", "-h", "127.0.0.1")
        self.kubectl(*psql, "-c", "CREATE DATABASE harbor ENCODING 'UTF8' TEMPLATE template0", "dagster", check=False)
        self.ready("code", "daemon")

    def ready(self, *names: str) -> None:
        for name in names:
            self.kubectl("rollout", "status", f"deploy/harbor-assets-{name}", "--timeout=120s")

    def get(self, kind: str, selector: str) -> list[dict[str, Any]]:
        return json.loads(self.kubectl("get", kind, "-l", selector, "-o", "json"))["items"]

    def ask(self, function: str, **arguments: Any) -> Any:
        out = self.kubectl(
            "exec", "deploy/harbor-assets-code", "--", "python", "/app/inside.py", function, json.dumps(arguments)
        )
        return json.loads(out.strip().splitlines()[-1])

    def submit(self, tasks: int, **options: Any) -> str:
        return self.ask("submit", taskset=self.taskset, tasks=tasks, **options)["run"]

    def status(self, run_id: str) -> dict[str, Any]:
        return self.ask("status", run=run_id)

    def wait(self, run_id: str, seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        """The status once the run has ended."""
        return self.eventually(
            lambda: s if (s := self.status(run_id))["phase"] not in ("accepted", "running") else None, seconds
        )

    def eventually[T](self, look: Callable[[], T], seconds: float = PATIENCE_SECONDS) -> T:
        until = time.monotonic() + seconds
        while not (found := look()):
            assert time.monotonic() < until, "did not happen in time"
            time.sleep(1)
        return found

    def jobs(self, run_id: str) -> dict[str, dict[str, Any]]:
        return {job["metadata"]["name"]: job for job in self.get("jobs", f"harbor/run-id={run_id}")}

    def running(self, run_id: str) -> list[str]:
        """Names of the run's pods of task Jobs whose trial is under way."""
        pods = self.get("pods", f"harbor/run-id={run_id},harbor/task")
        return [p["metadata"]["name"] for p in pods if p["status"]["phase"] == "Running"]

    def left(self, run_id: str) -> list[str]:
        return self.kubectl(
            "get", "jobs,pods,secrets,configmaps", "-l", f"harbor/run-id={run_id}", "-o", "name"
        ).split()

    def kill_nine(self, pod: str) -> None:
        """SIGKILL every process of a pod, from outside: nothing in it gets to say a word."""
        uid = json.loads(self.kubectl("get", "pod", pod, "-o", "json"))["metadata"]["uid"]
        marks = (uid, uid.replace("-", "_"))
        killed = 0
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                groups, words = (entry / "cgroup").read_text(), (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if any(mark in groups for mark in marks) and b"dagster" in words:
                os.kill(int(entry.name), 9)
                killed += 1
        assert killed, f"no process of {pod} found"


def build_context(folder: Path) -> None:
    """What the image is made of: the working tree, and what it needs by name."""
    project = tomli.loads((ROOT / "pyproject.toml").read_text())["project"]
    needs = [*project["dependencies"], *project["optional-dependencies"]["cluster"]]
    (folder / "requirements.txt").write_text("\n".join(needs))
    app = folder / "app"
    for package in ("harbor_assets", "resources", "sensors"):
        shutil.copytree(ROOT / package, app / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(HARNESS / "scripted.py", app / "harbor_assets" / "trials" / "harbor.py")
    shutil.copy(HARNESS / "inside.py", app)
    info = app / "harbor_assets-0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: harbor-assets\nVersion: 0.0\n")


def build_image(folder: Path, tag: str) -> str:
    """Build and push; the image's name."""
    build_context(folder)
    name = f"{os.environ['TEST_REGISTRY']}/harbor-assets-cluster-tests:{tag}"
    run(
        "buildctl", "--addr", os.environ["TEST_BUILDKIT"], "build", "--frontend", "dockerfile.v0",
        "--local", f"context={folder}", "--local", f"dockerfile={HARNESS}",
        "--opt", "filename=Containerfile", "--output", f"type=image,name={name},push=true,registry.insecure=true",
    )  # fmt: skip
    return name


@pytest.fixture(scope="session")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The working tree, deployed; or what is deployed in HARBOR_ASSETS_TEST_NAMESPACE, which is then left as it is."""
    if kept := os.environ.get("HARBOR_ASSETS_TEST_NAMESPACE"):
        it = Deployment(kept)
        it.taskset = it.ask("publish", tasks=12)["taskset_ref"]
        yield it
        return
    it = Deployment(f"cluster-tests-{secrets.token_hex(3)}")
    image = build_image(tmp_path_factory.mktemp("image"), secrets.token_hex(4))
    run("kubectl", "create", "namespace", it.namespace)
    try:
        it.deploy(image)
        it.taskset = it.eventually(lambda: it.ask("publish", tasks=12)["taskset_ref"])
        yield it
    finally:
        run("kubectl", "delete", "namespace", it.namespace, "--wait=false", check=False)
