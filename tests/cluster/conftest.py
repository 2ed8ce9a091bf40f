"""A deployment of the working tree on the cluster that KUBECONFIG names, in a namespace of its own."""

import json
import os
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.harness.manifests import deployment

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 180  # two cores shared with everything else


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


@pytest.fixture(scope="session")
def image() -> str:
    """The working tree as an image in the cluster's registry."""
    name = f"{os.environ['TEST_REGISTRY']}/harbor-assets-cluster-tests:{secrets.token_hex(4)}"
    run(
        "buildctl", "--addr", os.environ["TEST_BUILDKIT"], "build", "--frontend", "dockerfile.v0",
        "--local", f"context={ROOT}", "--local", f"dockerfile={ROOT / 'tests/cluster/harness'}",
        "--opt", "filename=Containerfile", "--output", f"type=image,name={name},push=true,registry.insecure=true",
    )  # fmt: skip
    return name


@pytest.fixture(scope="session")
def deployed(image: str) -> Iterator[Deployment]:
    it = Deployment(f"room-c-{secrets.token_hex(3)}")
    run("kubectl", "create", "namespace", it.namespace)
    try:
        manifests = {"apiVersion": "v1", "kind": "List", "items": deployment(it.namespace, image)}
        it.kubectl("apply", "-f", "-", stdin=json.dumps(manifests))
        for name in ("postgres", "code", "daemon"):
            it.kubectl("rollout", "status", f"deploy/harbor-assets-{name}", "--timeout=300s")
        it.taskset = it.eventually(lambda: it.ask("publish", tasks=12)["taskset_ref"])
        yield it
    finally:
        if not os.environ.get("HARBOR_ASSETS_TEST_KEEP"):
            run("kubectl", "delete", "namespace", it.namespace, "--wait=false", check=False)
