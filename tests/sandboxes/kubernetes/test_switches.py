# ruff: noqa: E501 - a case stands in one line
"""Networks that hold: what a sandbox reaches in each mode, and what a switch ends."""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import annotated_types
import pydantic
import pydantic_core
import pytest
import typing_extensions
import typing_inspection

pytest.importorskip("harbor")

from harbor.models.task.config import NetworkMode, NetworkPolicy

import harbor_assets
from harbor_assets.sandboxes import errors, files
from harbor_assets.sandboxes.kubernetes.network import egress_labels
from harbor_assets.sandboxes.kubernetes.pod import SandboxPod
from harbor_assets.sandboxes.kubernetes.transfer import PodChannel

from .conftest import SECRET, client, run

pytestmark = pytest.mark.req_k8s
Make = Callable[..., Any]
NONE = NetworkPolicy(network_mode=NetworkMode.NO_NETWORK)
PUBLIC = NetworkPolicy(network_mode=NetworkMode.PUBLIC)


async def reaches(box: Any, *addresses: str) -> list[bool]:
    """Which addresses (host:port) answer, all tried at once; inside, as a command of the task."""
    each = "; ".join(
        f"(timeout 2 bash -c 'exec 3<>/dev/tcp/{a.rpartition(':')[0]}/{a.rpartition(':')[2]}' 2>/dev/null && echo {i}) &"
        for i, a in enumerate(addresses)
    ).replace("&;", "&")
    out = (await box.exec(f"{each} wait")).stdout
    return [str(i) in out.split() for i in range(len(addresses))]


async def count(box: Any, pattern: str) -> int:
    """How many processes have a command line like that."""
    each = "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done 2>/dev/null"
    return int((await box.exec(f"{each} | grep -c '^{pattern}'", user="root")).stdout)


def inside(box: Any) -> tuple[str, ...]:
    status = box._pod.state["status"]
    return (box._network._addresses["api"], f"{status['hostIP']}:10250", f"{METADATA}:80", f"{status['hostIP']}:22")


METADATA = "169.254.169.254"
SERVE = "nohup perl -MIO::Socket -e '$s=IO::Socket::INET->new(Listen=>5,LocalPort=>8000); $s->accept while 1' >/dev/null 2>&1 &"


def machine(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@asynccontextmanager
async def metadata_service() -> AsyncIterator[bool]:
    """A cloud's metadata service, on the node: only where this machine is the node. Says whether there is one."""
    async with client() as kube:
        nodes = (await kube.call("GET", "/api/v1/nodes"))["items"]
    ours = machine("hostname", "-I").split()
    here = any(a["address"] in ours for node in nodes for a in node["status"]["addresses"])
    if not here or os.geteuid() != 0:
        yield False
        return
    machine("ip", "address", "add", f"{METADATA}/32", "dev", "lo")
    try:
        async with await asyncio.start_server(lambda _, writer: writer.close(), METADATA, 80):
            yield True
    finally:
        machine("ip", "address", "del", f"{METADATA}/32", "dev", "lo")


@asynccontextmanager
async def control(namespace: str) -> AsyncIterator[Callable[..., Any]]:
    """A pod that no policy selects: what it reaches is there to be reached."""
    main = {"name": "main", "image": "debian:bookworm-slim", "command": ["sleep", "600"]}
    manifest = {
        "metadata": {"name": "control", "labels": {"app.kubernetes.io/part-of": "harbor-assets"}},
        "spec": {"containers": [main], "terminationGracePeriodSeconds": 0},
    }
    async with client() as kube:
        pod = SandboxPod(kube, namespace, manifest)
        await pod.create(asyncio.get_running_loop().time() + 60)
        try:
            await pod.until_running(asyncio.get_running_loop().time() + 60, 30)

            async def opens(address: str) -> bool:
                host, _, port = address.rpartition(":")
                return await pod.exec(["timeout", "3", "bash", "-c", f"exec 3<>/dev/tcp/{host}/{port}"]) == 0

            yield opens
        finally:
            await pod.delete()


def test_nothing_of_the_cluster_is_in_reach_whatever_the_mode(sandbox: Make, namespace: str) -> None:
    async def work() -> None:
        async with (
            metadata_service() as metadata,
            control(namespace) as opens,
            sandbox(mode="no-network") as box,
            sandbox() as other,
        ):
            for served in (box, other):
                await served.exec(SERVE + " sleep 0.3")
            api, kubelet, service, _ = inside(other)
            assert [await opens(api), await opens(kubelet), await opens(service)] == [True, True, metadata]
            own = {name: f"{b._pod.state['status']['podIP']}:8000" for name, b in (("box", box), ("other", other))}
            assert await reaches(box, own["box"]) == await reaches(other, own["other"]) == [True]
            assert not any([await opens(address) for address in own.values()])  # no sandbox takes connections
            dns = box._network._addresses["dns"]
            assert not any(await reaches(box, *inside(box), dns, own["other"]))
            assert not any(await reaches(other, *inside(other), own["box"]))
            assert await reaches(other, dns) == [True]

    run(work())


def test_a_switch_is_in_force_and_ends_what_is_open(sandbox: Make) -> None:
    async def work() -> None:
        async with sandbox() as box:
            with box.scoped_exec_env({}):  # the agent installs itself, and leaves something
                await box.exec("nohup sleep 1111 >/dev/null 2>&1 &")
                await box.exec("setsid nohup sleep 1112 >/dev/null 2>&1 &", user="nobody")
                assert await count(box, "[s]leep 111") == 2
            await box.set_network_policy(NONE)
            assert await count(box, "[s]leep 111") == 0
            assert not any(await reaches(box, *inside(box), box._network._addresses["dns"]))
            await box.exec("nohup sleep 2222 >/dev/null 2>&1 &")  # a server the agent leaves for the tests
            await box.set_network_policy(PUBLIC)
            assert await reaches(box, box._network._addresses["dns"]) == [True]
            host, _, port = box._network._addresses["dns"].rpartition(":")
            holds = f"nohup bash -c 'exec 3<>/dev/tcp/{host}/{port}; echo $$ > /tmp/held.$(id -u); sleep 3333' >/dev/null 2>&1 & sleep 0.5"
            await box.exec(holds)
            await box.exec(holds, user="nobody")
            assert (await box.exec("cat /tmp/held.* | wc -l")).stdout == "2\n"
            await box.set_network_policy(NONE)
            assert not any(await reaches(box, *inside(box), box._network._addresses["dns"]))
            assert (await box.exec("for p in $(cat /tmp/held.*); do [ -e /proc/$p ] && echo $p; done")).stdout == ""
            assert await count(box, "[s]leep 2222") == 1

    run(work())


def test_going_back_to_a_wider_policy_costs_nothing_until_it_is_used(sandbox: Make) -> None:
    async def work() -> None:
        async with sandbox() as box:
            with box.scoped_exec_env({}):
                pass
            await box.set_network_policy(NONE)
            before = box._kube.requests
            await box.set_network_policy(PUBLIC)
            await box.set_network_policy(NONE)
            assert box._kube.requests == before
            assert not any(await reaches(box, box._network._addresses["dns"]))

    run(work())


def test_without_policies_nothing_starts(sandbox: Make) -> None:
    async def work() -> None:
        async with client() as kube:
            name = "sandboxes-without-policies"
            await kube.call(
                "POST",
                "/api/v1/namespaces",
                {"metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "harbor-assets"}}},
            )
            try:
                await asyncio.sleep(1)
                with pytest.raises(errors.SandboxStartError, match="not in force"):
                    async with sandbox(mode="no-network", namespace=name):
                        pass
            finally:
                await kube.call("DELETE", f"/api/v1/namespaces/{name}")

    run(work())


@asynccontextmanager
async def egress(namespace: str) -> AsyncIterator[str]:
    """The proxy in a pod of its own, with a web server that has two names; the proxy's address."""
    pods = f"/api/v1/namespaces/{namespace}"
    main = {
        "name": "main", "image": "python:3.12-slim", "command": ["sleep", "600"],
        "env": [{"name": "HARBOR_ASSETS_EGRESS_SECRET", "value": SECRET}, {"name": "HARBOR_ASSETS_EGRESS_ALLOW_PRIVATE", "value": "1"}],
    }  # fmt: skip
    made = {
        "metadata": {"name": "egress", "labels": egress_labels()},
        "spec": {"containers": [main], "terminationGracePeriodSeconds": 0},
    }
    async with client() as kube:
        pod = SandboxPod(kube, namespace, {**made, "metadata": {**made["metadata"]}})
        await pod.create(asyncio.get_running_loop().time() + 60)
        try:
            await pod.until_running(asyncio.get_running_loop().time() + 60, 30)
            channel, source = PodChannel(pod), Path(harbor_assets.__file__).parent
            for part in ("domain", "sandboxes"):
                await files.upload_folder(channel, source / part, f"/app/harbor_assets/{part}")
            for module in (pydantic, pydantic_core, annotated_types, typing_inspection):
                folder = Path(str(module.__file__)).parent
                await files.upload_folder(channel, folder, f"/app/{folder.name}")
            await files.upload_file(channel, Path(typing_extensions.__file__), "/app/typing_extensions.py")
            await pod.exec(["sh", "-c", "cd /app; touch harbor_assets/__init__.py; "
                            "nohup python -m harbor_assets.sandboxes.kubernetes.proxy >/proxy.log 2>&1 & "
                            "mkdir /w; echo web > /w/index.html; nohup python -m http.server -d /w 80 >/dev/null 2>&1 & sleep 2"])  # fmt: skip
            for name in ("allowed", "other"):
                spec = {"selector": egress_labels(), "ports": [{"port": 80}]}
                await kube.call("POST", f"{pods}/services", {"metadata": {"name": name}, "spec": spec})
            service = {"selector": egress_labels(), "ports": [{"port": p, "name": f"p{p}"} for p in (3128, 3129)]}
            found = await kube.call(
                "POST", f"{pods}/services", {"metadata": {"name": "harbor-assets-egress"}, "spec": service}
            )
            yield found["spec"]["clusterIP"]
        finally:
            for name in ("allowed", "other", "harbor-assets-egress"):
                await kube.call("DELETE", f"{pods}/services/{name}")
            await pod.delete()


FETCH = "python3 -c \"import urllib.request as u; print(u.urlopen('http://%s', timeout=10).read().decode().strip())\" 2>&1 | tail -1"


def test_named_hosts_through_the_proxy(
    sandbox: Make, namespace: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HARBOR_ASSETS_EGRESS_SECRET", SECRET)

    async def work() -> None:
        async with egress(namespace) as address:
            monkeypatch.setenv("HARBOR_ASSETS_EGRESS_ADDRESS", address)
            allowed, other = (f"{name}.{namespace}.svc.cluster.local" for name in ("allowed", "other"))
            profile = {"hosts": [allowed], "install_hosts": [other]}
            async with sandbox(profile=profile, image="python:3.12-slim") as box:
                with box.scoped_exec_env({}):
                    assert (await box.exec(FETCH % other)).stdout == "web\n"
                    stolen = (await box.exec("echo $http_proxy")).stdout.strip()
                assert (await box.exec(FETCH % allowed)).stdout == "web\n"
                assert "403" in (await box.exec(FETCH % other)).stdout
                assert "403" in (await box.exec(FETCH % box._network._addresses["api"])).stdout
                # what the installer was given is worth nothing now: its port is shut, and it is not for the other one
                again = {"http_proxy": stolen}
                assert "web" not in (await box.exec(FETCH % other, env=again)).stdout
                again = {"http_proxy": stolen.replace(":3129", ":3128")}
                assert "403" in (await box.exec(FETCH % other, env=again)).stdout
                own = f"{address}:80"
                async with metadata_service(), sandbox() as neighbour:
                    await neighbour.exec(SERVE + " sleep 0.3")
                    there = f"{neighbour._pod.state['status']['podIP']}:8000"
                    assert await reaches(neighbour, there) == [True]
                    assert not any(await reaches(box, *inside(box), there))
                assert await reaches(box, own, *inside(box), box._network._addresses["dns"]) == [False] * 6
            record = json.loads((tmp_path / "trial/sandbox.json").read_text())
            assert [n["how"] for n in record["network"]] == [f"install: {allowed}, {other}", f"proxy: {allowed}"]
            assert SECRET not in json.dumps(record)

    run(work(), 300)
