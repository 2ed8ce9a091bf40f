# ruff: noqa: E501 - a case stands in one line
"""Whole Harbor trials in pods: images, phases, roles, deaths."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("harbor")

from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from harbor.models.trial.result import TrialResult
from harbor.trial.trial import Trial

from .conftest import IMAGE, SMALL, client, run

pytestmark = pytest.mark.req_k8s

PASS = 'test "$(cat /app/x)" = hello && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt'
NET = "timeout 1 bash -c 'exec 3<>/dev/tcp/'$(awk '/^nameserver/{print $2; exit}' /etc/resolv.conf)'/53' 2>/dev/null"


def make_task(folder: Path, *, toml: str = "", solve: str, test: str) -> Path:
    for name in ("environment", "solution", "tests"):
        (folder / name).mkdir(parents=True)
    (folder / "task.toml").write_text(f'schema_version = "1.4"\n{toml}\n')
    (folder / "instruction.md").write_text("Do it.\n")
    (folder / "solution/solve.sh").write_text(f"#!/bin/bash\n{solve}\n")
    (folder / "tests/test.sh").write_text(f"#!/bin/bash\n{test}\n")
    (folder / "environment/Dockerfile").write_text(f"FROM {IMAGE}\n")
    return folder


async def trial(namespace: str, task: Path, out: Path, **kwargs: Any) -> tuple[TrialResult, Path]:
    config = TrialConfig(
        task=TaskConfig(path=task),
        trial_name="t",
        trials_dir=out,
        agent=AgentConfig(name="oracle"),
        environment=EnvironmentConfig(
            import_path="harbor_assets.sandboxes.kubernetes.environment:KubernetesEnvironment",
            kwargs={
                "namespace": namespace, "run_id": "run-0123456789abcdef", "task_index": 7,
                "images": {"agent": IMAGE, "verifier": "python:3.12-slim"}, "profile": SMALL, "deadline_seconds": 300, **kwargs,
            },
        ),
    )  # fmt: skip
    return await (await Trial.create(config)).run(), out / "t"


async def left(namespace: str) -> list[str]:
    async with client() as kube:
        listed = await kube.call("GET", f"/api/v1/namespaces/{namespace}/pods", labelSelector="harbor/task=7")
    return [pod["metadata"]["name"] for pod in listed["items"] if not pod["metadata"].get("deletionTimestamp")]


def rewards(result: TrialResult) -> dict[str, float] | None:
    assert result.exception_info is None, result.exception_info
    return dict(result.verifier_result.rewards or {}) if result.verifier_result else None


def test_hello_world(namespace: str, tmp_path: Path) -> None:
    task = make_task(tmp_path / "task", solve="mkdir -p /app; echo hello > /app/x", test=PASS)

    async def work() -> None:
        result, folder = await trial(namespace, task, tmp_path / "out")
        assert rewards(result) == {"reward": 1.0}
        record = json.loads((folder / "sandbox.json").read_text())
        assert (record["kind"], record["role"], record["ended"], record["oom_kills"]) == (
            "kubernetes",
            "agent",
            True,
            0,
        )
        assert "@sha256:" in record["image_id"]
        assert await left(namespace) == []

    run(work())


def test_no_network_for_the_agent_over_a_public_baseline(namespace: str, tmp_path: Path) -> None:
    toml = '[environment]\nnetwork_mode = "public"\n[agent]\nnetwork_mode = "no-network"\n[verifier]\nnetwork_mode = "public"'
    solve = f"mkdir -p /app; {NET} && echo open > /app/net || echo closed > /app/net; echo hello > /app/x"
    test = f'test "$(cat /app/net)" = closed && {NET} && {PASS}'
    task = make_task(tmp_path / "task", toml=toml, solve=solve, test=test)

    async def work() -> None:
        result, folder = await trial(namespace, task, tmp_path / "out")
        assert rewards(result) == {"reward": 1.0}
        record = json.loads((folder / "sandbox.json").read_text())
        assert [n["how"] for n in record["network"]] == ["public", "none", "public"]

    run(work())


def test_a_server_that_the_agent_left_answers_the_tests(namespace: str, tmp_path: Path) -> None:
    serve = "perl -MIO::Socket -e '$s=IO::Socket::INET->new(Listen=>5,LocalPort=>8000); while($c=$s->accept){print $c \"hello\\n\"; close $c}'"
    task = make_task(
        tmp_path / "task",
        toml='[environment]\nnetwork_mode = "no-network"',
        solve=f"nohup {serve} >/dev/null 2>&1 & sleep 0.5",
        test=f"mkdir -p /app; cat < /dev/tcp/127.0.0.1/8000 > /app/x; {PASS}",
    )

    async def work() -> None:
        assert rewards((await trial(namespace, task, tmp_path / "out"))[0]) == {"reward": 1.0}

    run(work())


def test_a_verifier_of_its_own_has_its_image_and_keeps_the_tasks_sizes(namespace: str, tmp_path: Path) -> None:
    toml = (
        'artifacts = ["/app"]\n[environment]\nmemory_mb = 256\n[verifier]\nenvironment_mode = "separate"\n'
        "[verifier.environment]\nmemory_mb = 200"
    )
    task = make_task(
        tmp_path / "task", toml=toml, solve="mkdir -p /app; echo hello > /app/x", test=f"python3 --version && {PASS}"
    )

    async def work() -> None:
        result, folder = await trial(namespace, task, tmp_path / "out", sizing={"memory_mb": 128})
        assert rewards(result) == {"reward": 1.0}
        agent = json.loads((folder / "sandbox.json").read_text())
        verifier = json.loads((folder / "sandbox.verifier.json").read_text())
        assert agent["resources"]["limits"]["memory"] == "128Mi"
        assert verifier["resources"]["limits"]["memory"] == "200Mi"
        assert (verifier["role"], verifier["image"]) == ("verifier", "python:3.12-slim")
        assert await left(namespace) == []

    run(work())


def test_an_agent_out_of_time_is_stopped_before_it_is_graded(namespace: str, tmp_path: Path) -> None:
    task = make_task(
        tmp_path / "task",
        toml="[agent]\ntimeout_sec = 3.0",
        solve="mkdir -p /app; echo hello > /app/x; setsid sh -c 'sleep 5; echo late > /app/x' & sleep 60",
        test=f"sleep 4; {PASS}",
    )

    async def work() -> None:
        result, _ = await trial(namespace, task, tmp_path / "out")
        assert result.exception_info is not None
        assert result.exception_info.exception_type == "AgentTimeoutError"
        assert result.verifier_result is not None
        assert result.verifier_result.rewards == {"reward": 1.0}

    run(work())


@pytest.mark.parametrize(("how", "kind"), [("delete", "SandboxLost"), ("evict", "SandboxEvicted")])
def test_a_pod_taken_away_is_nobodys_result(namespace: str, tmp_path: Path, how: str, kind: str) -> None:
    task = make_task(tmp_path / "task", solve="sleep 100", test=PASS)

    async def work() -> None:
        running = asyncio.create_task(trial(namespace, task, tmp_path / "out"))
        async with client() as kube:
            while not (found := await left(namespace)) or "start_seconds" not in _record(tmp_path):
                await asyncio.sleep(0.3)
            await asyncio.sleep(3)
            path = f"/api/v1/namespaces/{namespace}/pods/{found[0]}"
            if how == "delete":
                await kube.call("DELETE", path, {"gracePeriodSeconds": 0})
            else:
                body = {
                    "apiVersion": "policy/v1",
                    "kind": "Eviction",
                    "metadata": {"name": found[0], "namespace": namespace},
                }
                await kube.call("POST", f"{path}/eviction", body)
        result, _ = await running
        assert result.exception_info is not None
        assert result.exception_info.exception_type == kind
        assert result.verifier_result is None
        assert _record(tmp_path)["lost"].startswith(kind)

    run(work())


def _record(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "out/t/sandbox.json"
    return json.loads(path.read_text()) if path.exists() else {}


def test_a_cancelled_trial_leaves_no_pod(namespace: str, tmp_path: Path) -> None:
    task = make_task(tmp_path / "task", solve="sleep 100", test=PASS)

    async def work() -> None:
        running: asyncio.Task[Any] = asyncio.create_task(trial(namespace, task, tmp_path / "out"))
        while "start_seconds" not in _record(tmp_path):
            await asyncio.sleep(0.3)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await left(namespace) == []

    run(work())


def test_a_kept_sandbox_is_there_after_its_trial_belongs_to_nobody_and_ends_by_itself(
    namespace: str, tmp_path: Path
) -> None:
    async def main() -> None:
        task = make_task(tmp_path / "task", solve="mkdir -p /app; echo hello > /app/x", test=PASS)
        result, out = await trial(namespace, task, tmp_path / "out", keep_seconds=15)
        assert rewards(result) == {"reward": 1.0}
        record = json.loads((out / "sandbox.json").read_text())
        path = f"/api/v1/namespaces/{namespace}/pods/{record['pod']}"
        async with client() as kube:
            pod = await kube.call("GET", path)
            assert pod["status"]["phase"] == "Running"
            assert pod["metadata"]["annotations"]["harbor/keep-until"][:19] == record["kept_until"][:19]
            assert pod["metadata"]["labels"]["harbor/network"] == "none"
            assert "ownerReferences" not in pod["metadata"]
            async with asyncio.timeout(60):
                while (pod := await kube.call("GET", path))["status"]["phase"] == "Running":
                    await asyncio.sleep(1)
            assert pod["status"]["reason"] == "DeadlineExceeded"
            await kube.call("DELETE", path, {"gracePeriodSeconds": 0})

    run(main())
