"""A run of hello-world tasks on an installed deployment: what it costs beyond the trials themselves.

    uv run python tests/bench/bench_cluster.py --base-url URL --namespace NS [--tasks 60] [--cap 8]

Needs KUBECONFIG with the rights of an administrator. Figures of processes are read from the node's control groups, so
it must run on the node, else they are left out. Requests are those of the whole API server less those at rest.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

HELLO = Path(__file__).parents[2] / "harbor_assets/examples/hello-world-suite/hello-world"
CGROUPS = Path("/sys/fs/cgroup")
ENDED = ("completed", "failed", "cancelled", "expired")


def kubectl(*words: str) -> str:
    return subprocess.run(["kubectl", *words], capture_output=True, text=True, check=True).stdout


def requests() -> float:
    """How many requests the API server has answered."""
    lines = kubectl("get", "--raw", "/metrics").splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("apiserver_request_total{"))


def suite(folder: Path, tasks: int) -> Path:
    for i in range(tasks):
        task = folder / f"hello-{i:03d}"
        shutil.copytree(HELLO, task)
        toml = (task / "task.toml").read_text()
        (task / "task.toml").write_text(toml.replace("harbor/hello-world", f"harbor/hello-{i:03d}"))
    return folder


def seen(uid: str) -> Iterator[tuple[str, float]]:
    """(what, figure) of a pod on this node, under either version of control groups."""
    for mark in (uid, uid.replace("-", "_")):
        for folder in CGROUPS.glob(f"**/*pod{mark}*"):
            for name, what, scale in (
                ("memory.max_usage_in_bytes", "MB", 1e6),
                ("memory.peak", "MB", 1e6),
                ("cpuacct.usage", "CPU s", 1e9),
            ):
                path = folder / name
                if path.is_file() and path.parent.name.count("pod"):
                    yield what, int(path.read_text()) / scale


class Pods:
    """The largest figure of each pod, by the component that it is."""

    def __init__(self, namespace: str, run_id: str) -> None:
        self.namespace, self.selector = namespace, f"harbor/run-id={run_id}"
        self.figures: dict[tuple[str, str], dict[str, float]] = {}
        self.most = 0

    def look(self) -> None:
        pods = json.loads(kubectl("-n", self.namespace, "get", "pods", "-l", self.selector, "-o", "json"))["items"]
        running = [pod for pod in pods if pod["status"]["phase"] == "Running"]
        kinds = [(self.kind(pod["metadata"]["labels"]), pod["metadata"]["uid"]) for pod in running]
        self.most = max(self.most, sum(kind == "trial worker" for kind, _ in kinds))
        for kind, uid in kinds:
            for what, figure in seen(uid):
                known = self.figures.setdefault((kind, what), {})
                known[uid] = max(known.get(uid, 0), figure)

    @staticmethod
    def kind(labels: dict[str, str]) -> str:
        if labels.get("app.kubernetes.io/component") == "step_worker":
            return "trial worker" if "harbor/task" in labels else "plan"
        return labels.get("harbor/role") or "run worker"


def line(name: str, values: list[float], unit: str = "s") -> None:
    if values:
        cut = sorted(values)
        print(f"{name:<44} p50 {statistics.median(cut):7.2f}  p99 {cut[int(len(cut) * 0.99)]:7.2f}  {unit}")


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def measure(args: argparse.Namespace, root: Path) -> None:
    cli = [sys.executable, "-m", "harbor_assets", "runs", "submit", "--base-url", args.base_url, "--json"]
    words = ["--harbor-dir", str(suite(root / "bench", args.tasks)), "-n", str(args.cap), "--agent", "oracle"]
    said = json.loads(subprocess.run([*cli, *words], check=True, stdout=subprocess.PIPE, text=True).stdout)
    run_id = re.findall(r"run-[0-9a-f]{16}", json.dumps(said))[0]
    base = f"{args.base_url}/apis/evals/v2/workspaces/default/agent-evaluate/runs/{run_id}"
    pods, begun, asked = Pods(args.namespace, run_id), time.time(), requests()
    while (run := httpx.get(base, timeout=60).json()["run"])["phase"] not in ENDED:
        pods.look()
        time.sleep(1)
    used, seconds = requests() - asked, time.time() - begun
    time.sleep(20)
    rest, resting = requests(), time.time()
    time.sleep(20)
    idle = (requests() - rest) / (time.time() - resting)
    report(httpx.get(f"{base}/outcomes", timeout=60).json(), run, pods, args)
    print(f"{'requests to the API server, for each trial':<44} {(used - idle * seconds) / args.tasks:.0f}")


def report(rows: list[dict[str, Any]], run: dict[str, Any], pods: Pods, args: argparse.Namespace) -> None:
    scored = [row for row in rows if row["outcome"] == "scored"]
    trials = [(at(row["tries"][-1]["start"]), at(row["tries"][-1]["end"])) for row in scored]
    took = [end - start for start, end in trials]
    wall = max(end for _, end in trials) - at(run["started_at"])
    ideal = sum(took) / args.cap
    print(f"scored {len(scored)} of {args.tasks}; at most {pods.most} trial workers at once")
    print(f"first slot to last trial's end {wall:.0f} s; sum of trials / {args.cap} {ideal:.0f} s; {wall / ideal:.2f}")
    print(f"accepted to first slot {at(run['started_at']) - at(run['created_at']):.1f} s")
    print(f"last trial's end to result {at(run['ended_at']) - max(end for _, end in trials):.1f} s (as recorded)")
    line("a trial", took)
    slots = sorted(start for start, _ in trials)
    ends = sorted(end for _, end in trials)
    line("a slot between two trials", [begin - end for end, begin in zip(ends, slots[args.cap :], strict=False)])
    for (kind, what), each in sorted(pods.figures.items()):
        line(f"{kind}, {what}", list(each.values()), what)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--cap", type=int, default=8)
    print("load:", *(f"{load:.1f}" for load in os.getloadavg()))
    with tempfile.TemporaryDirectory() as folder:
        measure(parser.parse_args(), Path(folder))


if __name__ == "__main__":
    main()
