"""What a deployment costs that does nothing: CPU of each of its pods, probes and kubelet's execs included.

    uv run python tests/bench/bench_idle.py NAMESPACE [SECONDS]

Needs KUBECONFIG, and to run as root on the one node of the cluster: it reads the pods' control groups. No run may be
under way.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def pods(namespace: str) -> dict[str, str]:
    """uid -> component."""
    words = ["kubectl", "-n", namespace, "get", "pods", "-l", "!harbor/run-id", "-o", "json"]
    items = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)["items"]
    return {i["metadata"]["uid"]: i["metadata"]["labels"].get("app.kubernetes.io/component", "?") for i in items}


def groups() -> Iterator[Path]:
    version_1 = CGROUPS / "cpuacct"
    yield from (version_1 if version_1.exists() else CGROUPS).glob("**/*pod*")


def cpu_seconds(group: Path) -> float:
    if (group / "cpuacct.usage").exists():
        return int((group / "cpuacct.usage").read_text()) / 1e9
    return int((group / "cpu.stat").read_text().split()[1]) / 1e6


def measure(namespace: str, seconds: float) -> None:
    names = pods(namespace)
    found = {names[uid]: group for group in groups() for uid in names if uid in group.name.replace("_", "-")}
    before = {name: cpu_seconds(group) for name, group in found.items()}
    time.sleep(seconds)
    each = {name: (cpu_seconds(group) - before[name]) * 60 / seconds for name, group in found.items()}
    for name, cost in sorted(each.items(), key=lambda pair: -pair[1]):
        print(f"{name:<12} {cost:6.2f} CPU s a minute")
    print(f"{'all':<12} {sum(each.values()):6.2f} CPU s a minute, {len(each)} pods")


if __name__ == "__main__":
    print("load:", *(f"{load:.1f}" for load in os.getloadavg()))
    measure(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 120)
