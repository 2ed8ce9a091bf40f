"""A namespace with the sandboxes' network policies in it, and sandboxes as Harbor makes them."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from harbor_assets.sandboxes.kubernetes.kube import Kube, from_kubeconfig
from harbor_assets.sandboxes.kubernetes.network import policies

IMAGE = "debian:bookworm-slim"
SMALL = {"name": "test", "hosts": ["*"], "requests": {"cpu": "50m", "memory": "64Mi"}}
SECRET = "a-secret-of-these-tests"
LONG = 120  # seconds: no test of this room may hang longer


def run[T](work: Coroutine[Any, Any, T], seconds: float = LONG) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(bounded())


@asynccontextmanager
async def client() -> AsyncIterator[Kube]:
    async with Kube(from_kubeconfig()) as kube:
        yield kube


async def apply(kube: Kube, path: str, *objects: dict[str, Any]) -> None:
    for body in objects:
        await kube.call("POST", path, body)


@pytest.fixture(scope="session")
def namespace() -> Iterator[str]:
    """A namespace of this test session's own, at the pod security level our sandboxes keep to."""
    name = f"sandboxes-{os.urandom(3).hex()}"

    async def make() -> None:
        async with client() as kube:
            labels = {"app.kubernetes.io/part-of": "harbor-assets", "pod-security.kubernetes.io/enforce": "baseline"}
            await kube.call("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
            listed = await kube.call("GET", "/api/v1/nodes")
            nodes = [
                a["address"] for n in listed["items"] for a in n["status"]["addresses"] if a["type"] == "InternalIP"
            ]
            await apply(kube, f"/apis/networking.k8s.io/v1/namespaces/{name}/networkpolicies", *policies(nodes))

    async def remove() -> None:
        async with client() as kube:
            await kube.call("DELETE", f"/api/v1/namespaces/{name}")

    run(make())
    yield name
    run(remove())


@pytest.fixture
def sandbox(namespace: str, tmp_path: Path) -> Callable[..., Any]:
    """Makes started sandboxes: `async with sandbox() as box`; stopped, and looked after, at the end."""
    from harbor.models.task.config import EnvironmentConfig, NetworkMode, NetworkPolicy
    from harbor.models.trial.paths import TrialPaths

    from harbor_assets.sandboxes.kubernetes.environment import KubernetesEnvironment

    @asynccontextmanager
    async def make(
        *, mode: str = "public", session: str | None = None, config: Any = None, image: str = IMAGE, start: bool = True,
        profile: dict[str, Any] | None = None, allowed_hosts: tuple[str, ...] = (), **kwargs: Any,
    ) -> AsyncIterator[Any]:  # fmt: skip
        (tmp_path / "environment").mkdir(exist_ok=True)
        (tmp_path / "trial").mkdir(exist_ok=True)
        box = KubernetesEnvironment(
            environment_dir=tmp_path / "environment",
            environment_name="t",
            session_id=session or f"{os.urandom(4).hex()}__env",
            trial_paths=TrialPaths(tmp_path / "trial"),
            task_env_config=config or EnvironmentConfig(),
            network_policy=NetworkPolicy(network_mode=NetworkMode(mode), allowed_hosts=list(allowed_hosts)),
            logger=logging.getLogger("test"),
            **{
                "namespace": namespace, "run_id": "run-0123456789abcdef", "task_index": 0, "images": {"agent": image},
                "profile": {**SMALL, **(profile or {})}, "deadline_seconds": 300, **kwargs,
            },
        )  # fmt: skip
        try:
            if start:
                await box.start(force_build=False)
            yield box
        finally:
            await box.stop(delete=True)
            await box.stop(delete=True)  # idempotent

    return make
