# ruff: noqa: E501 - a case stands in one line
"""A sandbox that is gone, or never comes: its own error with the cluster's words, never an exit code."""

import asyncio
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("harbor")

from harbor.models.task.config import EnvironmentConfig

from harbor_assets.sandboxes import errors
from harbor_assets.sandboxes.kubernetes.kube import ApiError

from .conftest import client, run

pytestmark = pytest.mark.req_k8s
Make = Callable[..., Any]


async def lost(box: Any, kill: Callable[[], Any], expected: type[Exception], command: str = "sleep 60") -> str:
    """What a command that was running says after `kill`, and what the next one says."""
    task = asyncio.create_task(box.exec(command))
    await asyncio.sleep(1.5)
    await kill()
    began = time.monotonic()
    with pytest.raises(errors.SandboxLost) as found:
        await task
    assert time.monotonic() - began < 30
    assert type(found.value) is expected
    with pytest.raises(expected):
        await box.exec("true")
    return str(found.value)


def test_deleted_by_somebody(sandbox: Make, tmp_path: Path) -> None:
    async def work() -> None:
        async with sandbox() as box, client() as kube:
            path = box._pod._path

            async def kill() -> None:
                await kube.call("DELETE", path, {"gracePeriodSeconds": 0})

            await lost(box, kill, errors.SandboxLost)
            with pytest.raises(errors.SandboxLost):
                await box.download_dir("/etc", tmp_path / "etc")
        record = json.loads((tmp_path / "trial/sandbox.json").read_text())
        assert record["lost"].startswith("SandboxLost: lost")

    run(work())


@pytest.mark.parametrize("grace", [0, 5])
def test_evicted(sandbox: Make, grace: int) -> None:
    async def work() -> None:
        async with sandbox() as box, client() as kube:

            async def kill() -> None:
                body = {
                    "apiVersion": "policy/v1",
                    "kind": "Eviction",
                    "metadata": {"name": box._pod.name, "namespace": box._namespace},
                    "deleteOptions": {"gracePeriodSeconds": grace},
                }
                await kube.call("POST", f"{box._pod._path}/eviction", body)

            assert "EvictionByEvictionAPI" in await lost(box, kill, errors.SandboxEvicted)

    run(work())


@pytest.mark.skipif(
    not (shutil.which("crictl") and os.environ.get("CONTAINER_RUNTIME_ENDPOINT")),
    reason="needs crictl on the cluster's own node, and CONTAINER_RUNTIME_ENDPOINT",
)
def test_killed_by_its_node(sandbox: Make) -> None:
    async def work() -> None:
        async with sandbox() as box:

            async def kill() -> None:
                container = box._pod.state["status"]["containerStatuses"][0]["containerID"].rpartition("/")[2]
                stopping = await asyncio.create_subprocess_exec("crictl", "stop", "-t", "1", container)
                assert await stopping.wait() == 0

            assert "container: Error, exit code 137" in await lost(box, kill, errors.SandboxLost)

    run(work())


def test_it_goes_with_its_owner(sandbox: Make, namespace: str) -> None:
    async def work() -> None:
        jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        spec = {"containers": [{"name": "c", "image": "unused:x"}], "restartPolicy": "Never"}
        job = {"metadata": {"name": "owner"}, "spec": {"suspend": True, "template": {"spec": spec}}}
        async with client() as kube:
            uid = (await kube.call("POST", jobs, job))["metadata"]["uid"]
            owner = {"api_version": "batch/v1", "kind": "Job", "name": "owner", "uid": uid}
            async with sandbox(owner=owner) as box:
                assert await box.exec("true")
                await kube.call("DELETE", f"{jobs}/owner", {"propagationPolicy": "Background"})
                async with asyncio.timeout(30):
                    while not box._pod.gone:
                        await asyncio.sleep(0.2)
                with pytest.raises(errors.SandboxLost):
                    await box.exec("true")

    run(work())


def test_past_its_lifetime(sandbox: Make) -> None:
    async def work() -> None:
        async with sandbox(profile={"max_lifetime_seconds": 6}) as box:

            async def nothing() -> None: ...

            await lost(box, nothing, errors.SandboxDeadline)

    run(work())


def test_more_on_disk_than_its_limit(sandbox: Make) -> None:
    async def work() -> None:
        async with sandbox(config=EnvironmentConfig(storage_mb=50)) as box:

            async def nothing() -> None: ...

            said = await lost(box, nothing, errors.SandboxDiskFull, "head -c 200000000 /dev/zero > /big; sleep 100")
            assert "50Mi" in said
            assert box._record._facts["disk_limit_hits"] == 1

    run(work(), 180)


async def refused(make: Make, expected: type[Exception], **how: Any) -> tuple[str, float]:
    began = time.monotonic()
    with pytest.raises(errors.SandboxStartError) as found:
        async with make(**how):
            pass
    assert type(found.value) is expected
    return str(found.value), time.monotonic() - began


def test_an_image_that_does_not_exist(sandbox: Make) -> None:
    async def work() -> None:
        said, took = await refused(sandbox, errors.SandboxImagePullError, image="registry.test:5000/no/such:image")
        assert "not found" in said
        assert took < 30
        said, took = await refused(sandbox, errors.SandboxImagePullError, image="UPPER/case:x")
        assert "invalid reference format" in said

    run(work())


def test_larger_than_any_node_fails_after_the_grace_and_a_full_node_is_waited_for(sandbox: Make) -> None:
    async def work() -> None:
        huge = EnvironmentConfig(memory_mb=900 * 1024)
        whole = {"requests": {}, "start_grace_seconds": 3}
        said, took = await refused(sandbox, errors.SandboxUnschedulable, config=huge, profile=whole)
        assert "Insufficient memory" in said
        assert 3 <= took < 30
        # It fits an empty node, and this node is not empty: it waits past the grace, to its own deadline.
        async with client() as kube:
            node = (await kube.call("GET", "/api/v1/nodes"))["items"][0]
        cores = float(node["status"]["allocatable"]["cpu"].removesuffix("m"))
        full = EnvironmentConfig(cpus=cores if cores < 1000 else cores / 1000)
        said, took = await refused(
            sandbox,
            errors.SandboxUnschedulable,
            config=full,
            profile={**whole, "start_grace_seconds": 1},
            deadline_seconds=8,
        )
        assert "not started before the deadline" in said
        assert "Insufficient cpu" in said
        assert took >= 8

    run(work())


def test_what_the_cluster_refuses_is_said_at_once(sandbox: Make) -> None:
    async def work() -> None:
        said, took = await refused(sandbox, errors.SandboxStartError, profile={"requests": {"cpu": "lots"}})
        assert "quantities must match" in said
        assert took < 10
        said, _ = await refused(sandbox, errors.SandboxStartError, profile={"pod_overrides": {"hostPID": True}})
        assert "hostPID" in said

    run(work())


def test_a_quota_is_waited_for(sandbox: Make, namespace: str) -> None:
    async def work() -> None:
        quotas = f"/api/v1/namespaces/{namespace}/resourcequotas"
        body = {"metadata": {"name": "small"}, "spec": {"hard": {"requests.nvidia.com/gpu": "0", "pods": "0"}}}
        async with client() as kube:
            await kube.call("POST", quotas, body)
            try:
                await asyncio.sleep(1)
                said, took = await refused(sandbox, errors.SandboxUnschedulable)  # none at all: for ever
                assert "exceeded quota" in said
                assert took < 10
                await kube.call(
                    "PATCH", f"{quotas}/small", {"spec": {"hard": {"pods": "1"}}}, kind="application/merge-patch+json"
                )
                await asyncio.sleep(1)
                async with sandbox() as first:
                    second = asyncio.create_task(refused(sandbox, errors.SandboxUnschedulable, deadline_seconds=4))
                    assert "exceeded quota" in (await second)[0]
                    assert (await first.exec("echo here")).stdout == "here\n"
            finally:
                await kube.call("DELETE", f"{quotas}/small")

    run(work())


def test_a_pod_left_by_a_dead_worker_is_replaced(sandbox: Make) -> None:
    async def work() -> None:
        async with sandbox(session="same__env") as first, sandbox(session="same__env") as second:
            assert first._pod.name == second._pod.name
            assert (await second.exec("echo new")).stdout == "new\n"
            with pytest.raises(errors.SandboxLost):
                await first.exec("true")

    run(work())


def test_what_one_node_cannot_show_is_accepted_by_the_server(sandbox: Make, namespace: str) -> None:
    async def work() -> None:
        profile = {
            "requests": {}, "gpu_resource": "nvidia.com/gpu", "runtime_class": "gvisor", "node_selector": {"pool": "gpu"}, "image_pull_secrets": ["r"],
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "pod_overrides": {"priorityClassName": "system-node-critical", "dnsConfig": {"options": [{"name": "ndots", "value": "1"}]}},
        }  # fmt: skip
        config = EnvironmentConfig(gpus=2, cpus=1.5, memory_mb=2048, storage_mb=1024)
        async with client() as kube, sandbox(config=config, profile=profile, start=False) as box:
            made = box._manifest("public")
            classes = "/apis/node.k8s.io/v1/runtimeclasses"
            with_class = {
                "metadata": {"name": "gvisor", "labels": {"app.kubernetes.io/part-of": "harbor-assets"}},
                "handler": "runsc",
            }
            try:
                await kube.call("POST", classes, with_class)
            except ApiError as error:
                assert error.status == 409
            del made["spec"]["priorityClassName"]
            await asyncio.sleep(1)
            try:
                answer = await kube.call(
                    "POST", f"/api/v1/namespaces/{namespace}/pods", made, dryRun="All", fieldValidation="Strict"
                )
            finally:
                await kube.call("DELETE", f"{classes}/gvisor")
            limits = answer["spec"]["containers"][0]["resources"]["limits"]
            assert limits == {"cpu": "1500m", "memory": "2Gi", "ephemeral-storage": "1Gi", "nvidia.com/gpu": "2"}
            assert answer["spec"]["runtimeClassName"] == "gvisor"

    run(work())
