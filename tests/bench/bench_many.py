"""200 trials at once: what a run costs the API server and each of our processes, and how soon it is cleaned up.

    uv run python tests/bench/bench_many.py --namespace NS --base-url URL [--tasks 200] [--hold 120]

NS: an installation of the tests' own (`HARBOR_ASSETS_TEST_NAMESPACE=NS pytest tests/cluster/test_on_cluster.py` makes
one). Needs KUBECONFIG with the rights of an administrator, and to run on the node: memory is read from control groups.
No real node of two cores holds 200 workers, so their pods lie on a fake one (fake_node.py) and this program tells
Dagster and the catalog what they would have told: everything else is real. Requests are those of the whole API server,
less those at rest and the fake node's; a trial's own, for its sandbox, are in bench_kubernetes_sandbox.py.
"""

import argparse
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.fake_node import RESOURCE, TAINT, FakeNode
from tests.cluster.harness.deployment import Deployment, run

MARK = re.compile(r'(\w+)="([^"]*)"')
CGROUPS = Path("/sys/fs/cgroup")
COMPONENTS = {"api": "service", "code": "code server (sensors, reaper)", "daemon": "daemon", "postgres": "Postgres"}


def requests() -> Counter[str]:
    """verb and resource -> how many the API server has answered."""
    counted: Counter[str] = Counter()
    for line in run("kubectl", "get", "--raw", "/metrics").splitlines():
        if line.startswith("apiserver_request_total{"):
            marks = dict(MARK.findall(line))
            name = "/".join(marks[key] for key in ("resource", "subresource") if marks.get(key))
            counted[f"{marks['verb']} {name}"] += int(float(line.rsplit(" ", 1)[1]))
    return counted


def megabytes(uid: str) -> float | None:
    """What a pod's processes hold themselves, under either version of control groups; page cache is not counted."""
    for mark in (uid, uid.replace("-", "_")):
        for top in (CGROUPS / "memory", CGROUPS):
            for folder in top.glob(f"**/*pod{mark}*"):
                stat = folder / "memory.stat"
                if stat.is_file():
                    found = dict(line.split() for line in stat.read_text().splitlines())
                    return int(found.get("total_rss") or found["anon"]) / 1e6
    return None


class Memory:
    """What the processes hold at named moments."""

    def __init__(self, it: Deployment, run_id: str) -> None:
        pods = it.get("pods", "app.kubernetes.io/part-of=harbor-assets,!harbor/run-id")
        self._uids = {
            COMPONENTS[component]: pod["metadata"]["uid"]
            for pod in pods
            if (component := pod["metadata"]["labels"].get("app.kubernetes.io/component")) in COMPONENTS
        }
        worker = it.worker(run_id)
        self._uids["run worker"] = json.loads(it.kubectl("get", "pod", worker, "-o", "json"))["metadata"]["uid"]
        self.rows: list[tuple[str, dict[str, float | None]]] = []

    def note(self, moment: str) -> None:
        self.rows.append((moment, {name: megabytes(uid) for name, uid in self._uids.items()}))

    def show(self) -> None:
        names = list(self._uids)
        print(f"{'MB':<28}" + "".join(f"{name[:16]:>18}" for name in names))
        for moment, each in self.rows:
            print(f"{moment:<28}" + "".join(f"{'-' if each[n] is None else f'{each[n]:.0f}':>18}" for n in names))


@contextmanager
def placed_on_fake_node(it: Deployment) -> Iterator[None]:
    """Task Jobs, and nothing else of the deployment, ask for the fake node."""
    before = json.loads(it.kubectl("get", "configmap", "harbor-assets-instance", "-o", "json"))["data"]["dagster.yaml"]
    changed = yaml.safe_load(before)
    config = changed["run_launcher"]["config"]
    config["trial_resources"] = {"requests": {RESOURCE: "1"}, "limits": {RESOURCE: "1"}}
    spec = config["run_k8s_config"].setdefault("pod_spec_config", {})
    spec["tolerations"] = [*spec.get("tolerations", ()), TAINT]

    def put(text: str) -> None:
        patch = json.dumps({"data": {"dagster.yaml": text}})
        it.kubectl("patch", "configmap", "harbor-assets-instance", "--type=merge", "-p", patch)
        it.restart("harbor-assets-daemon")

    put(yaml.safe_dump(changed))
    try:
        yield
    finally:
        put(before)


def start(it: Deployment, node: FakeNode, tasks: int) -> tuple[str, float]:
    """A run whose workers all run: its id, and how many seconds that took."""
    began = time.monotonic()
    run_id = it.submit(tasks, n_concurrent=tasks)
    it.eventually(lambda: sum(name.startswith(run_id) for name in node.running) >= tasks, 900)
    return run_id, time.monotonic() - began


def play(it: Deployment, node: FakeNode, run_id: str, tasks: int) -> None:
    """Every trial ends, ten a second at most, and its pod after it."""
    for first in range(0, tasks, 10):
        indexes = list(range(first, min(first + 10, tasks)))
        it.ask("play", run=run_id, indexes=indexes)
        mine = [name for name in list(node.running) if name.startswith(run_id)]
        names = [name for name in mine if int(name.rsplit("-", 2)[1]) in indexes]
        node.finish(names)
        time.sleep(1)


def idle_rate(seconds: float = 30) -> float:
    before = requests()
    time.sleep(seconds)
    return (requests() - before).total() / seconds


def whole(it: Deployment, node: FakeNode, args: argparse.Namespace) -> None:
    idle = idle_rate()
    before, fake, began = requests(), node.requests, time.monotonic()
    run_id, took = start(it, node, args.tasks)
    print(f"{args.tasks} workers at once after {took:.0f} s")
    memory = Memory(it, run_id)
    memory.note(f"{args.tasks} run")
    for part in (1, 2):
        time.sleep(args.hold / 2)
        memory.note(f"{args.hold * part // 2} s later")
    play(it, node, run_id, args.tasks)
    memory.note("all have ended")
    status = it.wait(run_id)
    scored = sum(o["outcome"] == "scored" for o in status["outcomes"])
    seconds, used = time.monotonic() - began, requests() - before
    memory.show()
    own = used.total() - (node.requests - fake) - idle * seconds
    print(f"run {status['phase']}, {scored} of {args.tasks} scored, {status['executions']} executions, {seconds:.0f} s")
    print(f"requests for each trial: {own / args.tasks:.1f} (at rest {idle:.1f} a second; the fake node's left out)")
    for what, count in used.most_common(12):
        print(f"  {count / args.tasks:6.2f}  {what}")
    it.nothing_left(run_id)


def killed(it: Deployment, node: FakeNode, args: argparse.Namespace) -> None:
    """The run worker is killed, then the run is cancelled, while all its workers run."""
    run_id, _ = start(it, node, args.tasks)
    it.kill_nine(it.worker(run_id))
    began = time.monotonic()
    it.cli("runs", "cancel", run_id)
    kinds = ("jobs", "pods")
    it.eventually(lambda: not any(it.get(kind, f"harbor/run-id={run_id},harbor/role!=settle") for kind in kinds), 600)
    print(f"run worker killed and run cancelled: {2 * args.tasks} objects gone after {time.monotonic() - began:.0f} s")
    it.wait(run_id)
    it.nothing_left(run_id)
    print(f"  run ended, and nothing left of it, after {time.monotonic() - began:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--hold", type=int, default=120, help="seconds for which all run")
    args = parser.parse_args()
    print("load:", *(f"{load:.1f}" for load in os.getloadavg()))
    it = Deployment(args.namespace, args.base_url)
    try:
        most = str(max(args.tasks, 20))
        with placed_on_fake_node(it), it.settings("harbor-assets-code", HARBOR_ASSETS_MAX_CONCURRENT=most):
            it.taskset = it.ask("publish", tasks=args.tasks)["taskset_ref"]
            with FakeNode(it.apiserver, pods=args.tasks + 50) as node:
                whole(it, node, args)
                killed(it, node, args)
    finally:
        it.close()


if __name__ == "__main__":
    main()
