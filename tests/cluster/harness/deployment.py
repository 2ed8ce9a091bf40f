"""The working tree, installed by its own command on the cluster that KUBECONFIG names, in a namespace of its own."""

import fcntl
import hashlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx

from harbor_assets.interfaces.deployment import source

HARNESS = Path(__file__).parent
ROOT = HARNESS.parents[2]
HELLO = ROOT / "harbor_assets" / "examples" / "hello-world-suite" / "hello-world"
PATIENCE_SECONDS = 600  # two cores shared with everything else


def run(*words: str, stdin: str | None = None, check: bool = True) -> str:
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"{' '.join(words[:6])}: {done.stderr or done.stdout}"
    return done.stdout


class Inside:
    """`harness/inside.py` at work in the code server's pod."""

    # Its text comes by stdin: what a command line of an exec holds travels in a URL.
    _BEGIN = "import sys; exec(compile(sys.stdin.read(int(sys.stdin.readline())), 'inside.py', 'exec'))"

    def __init__(self, namespace: str) -> None:
        where = ("kubectl", "-n", namespace, "exec", "-i", "deploy/harbor-assets-code", "-c", "code")
        self._program = subprocess.Popen(
            [*where, "--", "python", "-c", self._BEGIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        text = (HARNESS / "inside.py").read_text()
        self._send(f"{len(text)}\n{text}")

    def ask(self, question: Any) -> Any:
        """The answer; None if the program is gone."""
        self._send(json.dumps(question) + "\n")
        assert self._program.stdout
        line = self._program.stdout.readline()
        return json.loads(line) if line else None

    def _send(self, text: str) -> None:
        assert self._program.stdin
        with suppress(BrokenPipeError):
            self._program.stdin.write(text)
            self._program.stdin.flush()

    def close(self) -> None:
        self._program.kill()
        self._program.communicate()


class Deployment:
    """What tests do with it. `ask` calls a function of `harness/inside.py` in the code server's pod."""

    def __init__(self, namespace: str, url: str = "") -> None:
        self.namespace, self.url = namespace, url
        self.taskset = ""
        self._inside: Inside | None = None
        self._proxy: subprocess.Popen[str] | None = None

    def kubectl(self, *words: str, stdin: str | None = None, check: bool = True) -> str:
        return run("kubectl", "-n", self.namespace, *words, stdin=stdin, check=check)

    def get(self, kind: str, selector: str) -> list[dict[str, Any]]:
        """Not by kubectl: a tenth of a second of CPU at each look is much where tests look twice a second."""
        group = "apis/batch/v1" if kind == "jobs" else "api/v1"
        path = f"{self.apiserver}/{group}/namespaces/{self.namespace}/{kind}"
        answer = self._http.get(path, params={"labelSelector": selector})
        answer.raise_for_status()
        return answer.json()["items"]

    @cached_property
    def _http(self) -> httpx.Client:
        return httpx.Client(timeout=60)

    @cached_property
    def apiserver(self) -> str:
        """Its address on this machine, by a proxy that ends with this process."""
        words = ("kubectl", "proxy", "--port=0")
        self._proxy = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self._proxy.stdout
        return f"http://{self._proxy.stdout.readline().split()[-1]}"

    def ask(self, function: str, **arguments: Any) -> Any:
        said = self._ask(function, arguments)
        if said is None:  # the program went with its pod, which tests make anew
            self.forget()
            said = self._ask(function, arguments)
        assert said is not None, f"no answer to {function}"
        assert "error" not in said, said["error"]
        return said["answer"]

    def _ask(self, function: str, arguments: dict[str, Any]) -> Any:
        self._inside = self._inside or Inside(self.namespace)
        return self._inside.ask([function, arguments])

    def forget(self) -> None:
        """End what `ask` began."""
        inside, self._inside = self._inside, None
        if inside:
            inside.close()

    def close(self) -> None:
        """End what was begun here."""
        self.forget()
        if self._proxy:
            self._proxy.kill()
            self._proxy.communicate()

    def cli(self, *words: str, check: bool = True) -> Any:
        """What a command says as JSON. The words that tell it where to go are added."""
        where = ("--base-url", self.url, "--json")
        out = run(sys.executable, "-m", "harbor_assets", *words, *where, check=check)
        return json.loads(out) if out.strip() else None

    def submit(self, tasks: int, **options: Any) -> str:
        return self.ask("submit", taskset=self.taskset, tasks=tasks, **options)["run"]

    def status(self, run_id: str) -> dict[str, Any]:
        return self.ask("status", run=run_id)

    def graphql(self, query: str, **variables: Any) -> Any:
        """As Dagster's pages ask their own server."""
        program = (
            "import sys, urllib.request as http; "
            "headers = {'content-type': 'application/json'}; "
            "ask = http.Request('http://127.0.0.1:3000/graphql', sys.stdin.buffer.read(), headers); "
            "print(http.urlopen(ask, timeout=60).read().decode())"
        )
        words = ("exec", "-i", "deploy/harbor-assets-dagster", "--", "python", "-c", program)
        answer = json.loads(self.kubectl(*words, stdin=json.dumps({"query": query, "variables": variables})))
        assert "errors" not in answer, answer
        return answer["data"]

    @contextmanager
    def settings(self, *programs: str, **variables: str) -> Iterator[None]:
        """Other settings of the deployment while it lasts: for every Job made meanwhile, and for `programs`, which are
        started anew. Only for a test marked `alone`."""
        before = json.loads(self.kubectl("get", "configmap", "harbor-assets-env", "-o", "json"))["data"]
        self._set(programs, variables)
        try:
            yield
        finally:
            self._set(programs, {name: before.get(name) for name in variables})

    @contextmanager
    def profile(self, profile: Mapping[str, Any]) -> Iterator[None]:
        """One more sandbox profile, for programs that start while it lasts."""
        self._patch_profiles({"of-a-test.yaml": json.dumps({"profiles": [profile]})})
        try:
            yield
        finally:
            self._patch_profiles({"of-a-test.yaml": None})

    def _patch_profiles(self, files: Mapping[str, str | None]) -> None:
        patch = json.dumps({"data": files})
        self.kubectl("patch", "configmap", "harbor-assets-profiles", "--type=merge", "-p", patch)

    @contextmanager
    def private_egress(self, port: int) -> Iterator[None]:
        """The egress proxy lets sandboxes reach names that lead into the cluster, at one port."""
        names = ("HARBOR_ASSETS_EGRESS_ALLOW_PRIVATE", "HARBOR_ASSETS_EGRESS_TARGET_PORTS")
        set_env = ("set", "env", "deploy/harbor-assets-egress")
        self.kubectl(*set_env, f"{names[0]}=1", f"{names[1]}={port}")
        try:
            self.kubectl("rollout", "status", "deploy/harbor-assets-egress", "--timeout=180s")
            yield
        finally:
            self.kubectl(*set_env, *(f"{name}-" for name in names))

    def _set(self, programs: Sequence[str], variables: Mapping[str, str | None]) -> None:
        patch = json.dumps({"data": dict(variables)})
        self.kubectl("patch", "configmap", "harbor-assets-env", "--type=merge", "-p", patch)
        self.restart(*programs)

    def restart(self, *programs: str) -> None:
        """Start programs anew and wait until they are there."""
        for program in programs:
            self.kubectl("rollout", "restart", f"deploy/{program}")
        for program in programs:
            self.kubectl("rollout", "status", f"deploy/{program}", "--timeout=180s")
        self.forget()

    def api(self, path: str) -> Any:
        """What the service answers for a run; a question that costs little, unlike `ask`."""
        answer = self._http.get(f"{self.url}/apis/evals/v2/workspaces/default/agent-evaluate/runs/{path}")
        answer.raise_for_status()
        return answer.json()

    def phase(self, run_id: str) -> str:
        return self.api(run_id)["run"]["phase"]

    def begun(self, run_id: str) -> int:
        """How many trials are under way or have ended."""
        return sum(task["running"] + len(task["outcomes"]) for task in self.api(f"{run_id}/tasks")["data"])

    def waits(self, run_id: str) -> dict[int, tuple[str, str]]:
        """What the run's tasks wait for: index -> (reason, message)."""
        tasks = self.api(f"{run_id}/tasks")["data"]
        return {t["index"]: (t["waiting"]["reason"], t["waiting"]["message"]) for t in tasks if t["waiting"]}

    def rows(self, run_id: str) -> list[dict[str, Any]]:
        """The outcomes so far."""
        return self.api(f"{run_id}/outcomes")

    def wait(self, run_id: str, seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        """The status once the run has ended."""
        self.eventually(lambda: self.phase(run_id) not in ("accepted", "running"), seconds)
        return self.status(run_id)

    def eventually[T](self, look: Callable[[], T], seconds: float = PATIENCE_SECONDS, every: float = 1) -> T:
        """What `look` finds at last. `every` second: `ask` costs some of CPU each time."""
        until = time.monotonic() + seconds
        while not (found := look()):
            assert time.monotonic() < until, "did not happen in time"
            time.sleep(every)
        return found

    @staticmethod
    def suite(folder: Path, tasks: int) -> Path:
        """A suite of hello-world tasks."""
        for i in range(tasks):
            task = folder / f"hello-{i:02d}"
            shutil.copytree(HELLO, task)
            toml = (task / "task.toml").read_text()
            (task / "task.toml").write_text(toml.replace("harbor/hello-world", f"harbor/hello-{i:02d}"))
        return folder

    def jobs(self, run_id: str) -> dict[str, dict[str, Any]]:
        return {job["metadata"]["name"]: job for job in self.get("jobs", f"harbor/run-id={run_id}")}

    def watch(self, run_id: str) -> tuple[int, dict[str, dict[str, str]]]:
        """Until the run ends: the most task Jobs that were active at once, and the labels of every Job seen."""
        most, seen = 0, {}
        while self.phase(run_id) in ("accepted", "running"):
            jobs = self.jobs(run_id)
            seen |= {name: job["metadata"]["labels"] for name, job in jobs.items()}
            most = max(most, sum("-task-" in name and bool(job["status"].get("active")) for name, job in jobs.items()))
            time.sleep(0.5)
        return most, seen

    @contextmanager
    def quota(self, hard: dict[str, int]) -> Iterator[None]:
        """A limit on the namespace's objects while it lasts; `pods` counts those beyond the deployment's own."""
        hard = dict(hard)
        if "pods" in hard:
            phases = self.kubectl("get", "pods", "-o", "jsonpath={.items[*].status.phase}").split()
            hard["pods"] += sum(phase in ("Running", "Pending") for phase in phases)
        spec = {"hard": {name: str(number) for name, number in hard.items()}}
        body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": spec}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(body))
        try:
            yield
        finally:
            self.kubectl("delete", "resourcequota", "few")

    def program(self, component: str) -> str:
        """The pod of one of the deployment's own programs."""
        pods = self.get("pods", f"app.kubernetes.io/component={component},!harbor/run-id")
        (name,) = (p["metadata"]["name"] for p in pods if not p["metadata"].get("deletionTimestamp"))
        return name

    def restarts(self, pod: str) -> int:
        """How often the containers of a pod were started anew."""
        found = json.loads(self.kubectl("get", "pod", pod, "-o", "json"))
        return sum(each["restartCount"] for each in found["status"]["containerStatuses"])

    def answers(self) -> bool:
        """Whether the service does, with its database."""
        try:
            return self._http.get(f"{self.url}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def worker(self, run_id: str) -> str:
        """The pod of the run's worker."""
        (pod,) = self.get("pods", f"harbor/run-id={run_id},app.kubernetes.io/component=run_worker,harbor/role!=settle")
        return pod["metadata"]["name"]

    def sandbox(self, run_id: str, task: int) -> str:
        """The pod in which the agent of a task works, once it runs."""

        def look() -> str | None:
            pods = self.get("pods", f"harbor/run-id={run_id},harbor/task={task},harbor/role=agent")
            return next((p["metadata"]["name"] for p in pods if p["status"]["phase"] == "Running"), None)

        return self.eventually(look) or ""

    def running(self, run_id: str) -> list[str]:
        """Names of the run's pods of task Jobs whose trial is under way."""
        pods = self.get("pods", f"harbor/run-id={run_id},harbor/task,app.kubernetes.io/component=step_worker")
        return [p["metadata"]["name"] for p in pods if p["status"]["phase"] == "Running"]

    def left(self, run_id: str) -> list[str]:
        kinds = ("jobs", "pods", "secrets", "configmaps", "persistentvolumeclaims")
        return [item["metadata"]["name"] for kind in kinds for item in self.get(kind, f"harbor/run-id={run_id}")]

    def nothing_left(self, run_id: str) -> None:
        """The settle step's own Job goes some seconds after its end; everything else is gone by then."""
        self.eventually(lambda: not self.left(run_id))

    def kill_nine(self, pod: str) -> None:
        """SIGKILL every process of a pod's containers, from outside: nothing in it gets to say a word."""
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
            if any(mark in groups for mark in marks) and words and not words.startswith(b"/pause"):
                os.kill(int(entry.name), 9)
                killed += 1
        assert killed, f"no process of {pod} found"


def build_images() -> tuple[str, str]:
    """(service, worker), as an install builds them, but for the script in the worker."""
    made = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("worker", "service"):
            context = Path(scratch, name)
            digest = source.write_context(name, context)[:12]
            made.append(build(context, f"harbor-assets-{name}:{digest}"))
        scripted = Path(scratch, "scripted")
        scripted.mkdir()
        for name in ("Containerfile", "scripted.py"):
            shutil.copy(HARNESS / name, scripted)
        tag = hashlib.sha256(made[0].encode() + (HARNESS / "scripted.py").read_bytes()).hexdigest()[:12]
        worker = build(scripted, f"harbor-assets-worker-scripted:{tag}", "--opt", f"build-arg:WORKER={made[0]}")
    return made[1], worker


def build(context: Path, name: str, *more: str) -> str:
    """Build and push; the image's name in the registry."""
    image = f"{os.environ['TEST_REGISTRY']}/{name}"
    run(
        "buildctl", "--addr", os.environ["TEST_BUILDKIT"], "build", "--frontend", "dockerfile.v0",
        "--local", f"context={context}", "--local", f"dockerfile={context}",
        "--opt", "filename=Containerfile", *more,
        "--output", f"type=image,name={image},push=true,registry.insecure=true",
    )  # fmt: skip
    return image


def install(namespace: str) -> str:
    """Install or upgrade the working tree; its URL."""
    service, worker = build_images()
    words = ("cluster", "install", "--overlay", "test", "--namespace", namespace)
    images = ("--service-image", service, "--worker-image", worker)
    return run(sys.executable, "-m", "harbor_assets", *words, *images).splitlines()[-1]


@contextmanager
def deployment(folder: Path) -> Iterator[Deployment]:
    """The working tree, installed once for all processes that share `folder`; the last one removes it. In
    HARBOR_ASSETS_TEST_NAMESPACE it is upgraded, or taken as it is if HARBOR_ASSETS_TEST_URL says where it answers; and
    left there afterwards."""
    state = folder / "deployment.json"
    with locked(folder / "deployment.lock"):
        known = json.loads(state.read_text()) if state.exists() else None
        if known is None:
            known = {"users": 0, **_installed()}
        state.write_text(json.dumps({**known, "users": known["users"] + 1}))
    it = Deployment(known["namespace"], known["url"])
    it.taskset = known["taskset"]
    try:
        yield it
    finally:
        it.close()
        with locked(folder / "deployment.lock"):
            known = json.loads(state.read_text())
            if known["users"] > 1:
                state.write_text(json.dumps({**known, "users": known["users"] - 1}))
            else:
                state.unlink()
                if not os.environ.get("HARBOR_ASSETS_TEST_NAMESPACE"):
                    _remove(it.namespace)


def _installed() -> dict[str, str]:
    kept, url = os.environ.get("HARBOR_ASSETS_TEST_NAMESPACE"), os.environ.get("HARBOR_ASSETS_TEST_URL")
    namespace = kept or f"cluster-tests-{secrets.token_hex(3)}"
    it = Deployment(namespace)
    try:
        it.url = url if kept and url else install(namespace)
        it.taskset = it.ask("publish", tasks=60)["taskset_ref"]
    except BaseException:
        if not kept:
            _remove(namespace)
        raise
    finally:
        it.close()
    return {"namespace": namespace, "url": it.url, "taskset": it.taskset}


def _remove(namespace: str) -> None:
    run("kubectl", "delete", "namespace", namespace, "--wait=false", check=False)


@contextmanager
def used(folder: Path, *, alone: bool) -> Iterator[None]:
    """The installation, by this test: beside others, or alone. Who waits to be alone holds up those that come later."""
    with ExitStack() as use:
        with locked(folder / "turn.lock"):
            use.enter_context(locked(folder / "use.lock", shared=not alone))
        yield


@contextmanager
def locked(path: Path, *, shared: bool = False) -> Iterator[None]:
    """A lock between processes."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
