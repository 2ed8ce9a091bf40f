"""The pod sandbox on a cluster: pod ready, exec latency, a trial with and without network switches, requests.

    uv run python tests/bench/bench_kubernetes_sandbox.py [--image debian:bookworm-slim] [--rounds 5]

Needs KUBECONFIG with the rights of an administrator: it makes a namespace of its own and removes it. The image should
be on the node already; the first sandbox is not counted. Requests are those this process sends.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.update(HARBOR_TELEMETRY="0", LITELLM_LOCAL_MODEL_COST_MAP="True")

from harbor.models.task.config import EnvironmentConfig as TaskEnvironment
from harbor.models.task.config import NetworkMode, NetworkPolicy
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from harbor.models.trial.paths import TrialPaths
from harbor.trial.trial import Trial

from harbor_assets.sandboxes.kubernetes.clients import Clients
from harbor_assets.sandboxes.kubernetes.environment import KubernetesEnvironment
from harbor_assets.sandboxes.kubernetes.kube import Kube, from_kubeconfig
from harbor_assets.sandboxes.kubernetes.network import policies

SWITCHES = '[environment]\nnetwork_mode = "public"\n[agent]\nnetwork_mode = "no-network"\n'


def kwargs(namespace: str, image: str) -> dict[str, Any]:
    profile = {"name": "bench", "hosts": ["*"], "requests": {"cpu": "50m", "memory": "64Mi"}}
    return {
        "namespace": namespace,
        "run_id": "run-00000000000bench",
        "task_index": 0,
        "images": {"agent": image},
        "profile": profile,
        "deadline_seconds": 600,
    }


def task(folder: Path, toml: str) -> Path:
    for name, text in (
        ("task.toml", f'schema_version = "1.4"\n{toml}'),
        ("instruction.md", "Write it."),
        ("environment/Dockerfile", "FROM scratch\n"),
        ("solution/solve.sh", "echo hello > /tmp/x\n"),
        ("tests/test.sh", "grep -q hello /tmp/x && echo 1 > /logs/verifier/reward.txt\n"),
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


async def sandbox(folder: Path, how: dict[str, Any], execs: int) -> tuple[dict[str, Any], list[float]]:
    """What the sandbox recorded of its start, and the seconds of each of some commands."""
    (folder / "environment").mkdir(parents=True)
    (folder / "trial").mkdir()
    box = KubernetesEnvironment(
        environment_dir=folder / "environment",
        environment_name="bench",
        session_id=f"{os.urandom(4).hex()}__env",
        trial_paths=TrialPaths(folder / "trial"),
        task_env_config=TaskEnvironment(),
        network_policy=NetworkPolicy(network_mode=NetworkMode.NO_NETWORK),
        **how,
    )
    took = []
    try:
        await box.start(force_build=False)
        for _ in range(execs):
            began = time.monotonic()
            await box.exec("true")
            took.append(time.monotonic() - began)
    finally:
        await box.stop(delete=True)
    return json.loads((folder / "trial/sandbox.json").read_text()), took


async def trial(source: Path, out: Path, how: dict[str, Any], kube: Kube) -> tuple[float, int]:
    """Seconds and requests of one trial."""
    config = TrialConfig(
        task=TaskConfig(path=source),
        trial_name=f"t{os.urandom(4).hex()}",
        trials_dir=out,
        agent=AgentConfig(name="oracle"),
        environment=EnvironmentConfig(
            import_path="harbor_assets.sandboxes.kubernetes.environment:KubernetesEnvironment", kwargs=how
        ),
    )
    requests, began = kube.requests, time.monotonic()
    result = await (await Trial.create(config)).run()
    assert result.verifier_result is not None, result.exception_info
    assert result.verifier_result.rewards == {"reward": 1.0}
    return time.monotonic() - began, kube.requests - requests


def line(name: str, values: list[float], unit: str = "s") -> None:
    low, high = min(values), max(values)
    print(f"{name:<44} p50 {statistics.median(values):7.3f} {unit} ({low:.3f} to {high:.3f}, {len(values)} times)")


async def measure(image: str, rounds: int, root: Path) -> None:
    namespace = f"bench-{os.urandom(3).hex()}"
    how = kwargs(namespace, image)
    async with Kube(from_kubeconfig()) as kube:
        labels = {"app.kubernetes.io/part-of": "harbor-assets"}
        await kube.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace, "labels": labels}})
        try:
            listed = await kube.call("GET", "/api/v1/nodes")
            nodes = [a["address"] for n in listed["items"] for a in n["status"]["addresses"] if a["type"] != "Hostname"]
            for body in policies(nodes):
                await kube.call("POST", f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies", body)
            await asyncio.sleep(1)
            await sandbox(root / "first", how, 1)
            boxes = [await sandbox(root / f"box{i}", how, 10) for i in range(rounds)]
            line("pod asked for -> container running", [facts["ready_seconds"] for facts, _ in boxes])
            line("  -> proven, folders made, ready", [facts["start_seconds"] for facts, _ in boxes])
            line("proof that a fresh pod has no network", [facts["proof_milliseconds"] / 1000 for facts, _ in boxes])
            line("exec of `true`", [took for _, each in boxes for took in each])
            shared = await Clients.take()
            for name, toml in (("without switches", ""), ("public, agent no-network, then public", SWITCHES)):
                source = task(root / name.replace(" ", "-"), toml)
                done = [await trial(source, root / "out", how, shared) for _ in range(rounds)]
                line(f"a trial, {name}", [seconds for seconds, _ in done])
                print(f"{'  requests to the apiserver':<44} {statistics.median(count for _, count in done):.0f}")
            await Clients.give_back(shared)
        finally:
            await kube.call("DELETE", f"/api/v1/namespaces/{namespace}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--image", default="debian:bookworm-slim")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    print("load:", *(f"{load:.1f}" for load in os.getloadavg()))
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(args.image, args.rounds, Path(folder)))


if __name__ == "__main__":
    main()
