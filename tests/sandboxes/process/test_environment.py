"""Harbor's view of the sandbox: trials, files in and out, limits by role, and the account it leaves."""

import asyncio
import json
import os
import tarfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("harbor")

from harbor.models.task.config import EnvironmentConfig, NetworkMode, NetworkPolicy
from harbor.models.trial.config import AgentConfig, TaskConfig, TrialConfig
from harbor.models.trial.config import EnvironmentConfig as Choice
from harbor.models.trial.paths import TrialPaths
from harbor.models.trial.result import TrialResult
from harbor.trial.trial import Trial

from harbor_assets.sandboxes.process import environment as module
from harbor_assets.sandboxes.process.dockerfile import DockerfileUnsupported
from harbor_assets.sandboxes.process.environment import ProcessEnvironment
from harbor_assets.sandboxes.process.rights import privileged
from harbor_assets.sandboxes.process.sandbox import SandboxDiskFull, SandboxLost, SandboxStartError
from harbor_assets.sandboxes.record import Record

from .conftest import run

NO_NETWORK = NetworkPolicy(network_mode=NetworkMode.NO_NETWORK)


def make_task(folder: Path, *, toml: str = "", solve: str, test: str, dockerfile: str | None = None) -> Path:
    """A task with one test that decides."""
    for name in ("environment", "solution", "tests"):
        (folder / name).mkdir(parents=True)
    (folder / "task.toml").write_text(f'schema_version = "1.4"\n{toml}\n[agent]\ntimeout_sec = 60.0\n')
    (folder / "instruction.md").write_text("Do it.\n")
    (folder / "solution/solve.sh").write_text(f"#!/bin/bash\n{solve}\n")
    (folder / "tests/test.sh").write_text(f"#!/bin/bash\n{test}\n")
    if dockerfile is not None:
        (folder / "environment/Dockerfile").write_text(dockerfile)
    return folder


async def trial(home: Path, task: Path, out: Path, name: str = "t", **kwargs: Any) -> tuple[TrialResult, Path]:
    config = TrialConfig(
        task=TaskConfig(path=task),
        trial_name=name,
        trials_dir=out,
        agent=AgentConfig(name="oracle"),
        environment=Choice(
            import_path="harbor_assets.sandboxes.process.environment:ProcessEnvironment",
            kwargs={"home": str(home), **kwargs},
        ),
    )
    return await (await Trial.create(config)).run(), out / name


@asynccontextmanager
async def environment(
    home: Path,
    tmp_path: Path,
    *,
    session: str = "t__env",
    config: EnvironmentConfig | None = None,
    policy: NetworkPolicy = NO_NETWORK,
    **kwargs: Any,
):
    (tmp_path / "environment").mkdir(exist_ok=True)
    trial_dir = tmp_path / "trial"
    trial_dir.mkdir(exist_ok=True)
    made = ProcessEnvironment(
        environment_dir=tmp_path / "environment",
        environment_name="t",
        session_id=session,
        trial_paths=TrialPaths(trial_dir),
        task_env_config=config or EnvironmentConfig(),
        network_policy=policy,
        home=str(home),
        **kwargs,
    )
    await made.start(force_build=False)
    try:
        yield made
    finally:
        await made.stop(delete=True)
        await made.stop(delete=True)  # idempotent


PASS = 'test "$(cat /app/x)" = hello && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt'
OFFLINE = '[environment]\nnetwork_mode = "no-network"'


def test_a_trial(home: Path, tmp_path: Path) -> None:
    task = make_task(tmp_path / "task", toml=OFFLINE, solve="mkdir -p /app; echo hello > /app/x", test=PASS)
    result, folder = run(trial(home, task, tmp_path / "out"))
    assert result.exception_info is None
    assert result.verifier_result is not None
    assert result.verifier_result.rewards == {"reward": 1.0}
    record = json.loads((folder / "sandbox.json").read_text())
    assert record["kind"] == "process"
    assert record["mode"] == ("root" if privileged() else "user")
    assert len(record["fingerprint"]) == 64
    assert record["network"] == [{"policy": "no-network", "how": "none"}]
    assert (record["oom_kills"], record["output_dropped_bytes"], record["ended"]) == (0, 0, True)
    assert record["substituted"] is None
    assert not (folder / "sandbox.verifier.json").exists()


@pytest.mark.req_root
def test_network_by_phase_and_a_server_left_for_the_tests(home: Path, tmp_path: Path) -> None:
    devices = "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | sort | tr '\\n' ' '"
    task = make_task(
        tmp_path / "task",
        toml='[environment]\ndocker_image = "some/image:1"\nworkdir = "/work/here"\n',
        solve=f"pwd > pwd; {devices} > devices; cd /srv; echo served > index.html\n"
        "python3 -m http.server 80 &\nsleep 0.3",
        test=f"cat pwd devices; {devices}\n"
        "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1\").read())'\n"
        "echo 1 > /logs/verifier/reward.txt",
    )
    text = (task / "task.toml").read_text().replace("[agent]\n", '[agent]\nnetwork_mode = "no-network"\n')
    (task / "task.toml").write_text(text)
    result, folder = run(trial(home, task, tmp_path / "out"))
    assert result.verifier_result is not None, (folder / "exception.txt").read_text()
    printed = (folder / "verifier/test-stdout.txt").read_text()
    assert printed.splitlines() == ["/work/here", "lo eth0 lo b'served\\n'"]
    record = json.loads((folder / "sandbox.json").read_text())
    assert record["substituted"] == "some/image:1"
    assert [entry["how"] for entry in record["network"]] == ["translated", "none", "translated"]


@pytest.mark.req_root
def test_the_tasks_own_memory_limit_is_told(home: Path, tmp_path: Path) -> None:
    task = make_task(
        tmp_path / "task",
        toml=f"{OFFLINE}\nmemory_mb = 512",
        solve="mkdir -p /app; echo hello > /app/x; tail /dev/zero",
        test=PASS,
    )
    result, folder = run(trial(home, task, tmp_path / "out", sizing={"memory_mb": 64}))
    assert result.verifier_result is not None
    assert result.verifier_result.rewards == {"reward": 1.0}
    record = json.loads((folder / "sandbox.json").read_text())
    if "memory" not in record["limits"]["set"]:
        pytest.skip(f"this machine cannot limit memory: {record['limits']['missing']}")
    assert record["oom_kills"] >= 1
    assert record["limits"]["asked"]["memory_mb"] == 64


def test_a_verifier_of_its_own_keeps_the_tasks_sizes(home: Path, tmp_path: Path) -> None:
    task = make_task(
        tmp_path / "task",
        toml=f'{OFFLINE}\nmemory_mb = 512\n[verifier]\nenvironment_mode = "separate"\n',
        solve="mkdir -p /logs/artifacts; echo hello > /logs/artifacts/x",
        test="grep -q hello /logs/artifacts/x && ! ls /app && echo 1 > /logs/verifier/reward.txt",
    )
    result, folder = run(trial(home, task, tmp_path / "out", sizing={"memory_mb": 256, "cpus": None}))
    assert result.verifier_result is not None, (folder / "trial.log").read_text()
    agent = json.loads((folder / "sandbox.json").read_text())
    verifier = json.loads((folder / "sandbox.verifier.json").read_text())
    assert (agent["role"], agent["limits"]["asked"]["memory_mb"]) == ("agent", 256)
    assert (verifier["role"], verifier["limits"]["asked"]["memory_mb"]) == ("verifier", 512)


def test_a_cancelled_trial_leaves_nothing(home: Path, tmp_path: Path) -> None:
    task = make_task(tmp_path / "task", toml=OFFLINE, solve="echo started; sleep 300", test="true")

    async def work() -> None:
        task_ = asyncio.create_task(trial(home, task, tmp_path / "out"))
        while not list((home / "sandboxes").glob("t__env-*/processes")):
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        task_.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task_

    run(work())
    assert list((home / "sandboxes").iterdir()) == []
    assert json.loads((tmp_path / "out/t/sandbox.json").read_text())["ended"]


def test_an_agent_that_times_out_is_graded_and_gone(home: Path, tmp_path: Path) -> None:
    task = make_task(
        tmp_path / "task",
        toml=OFFLINE,
        solve="mkdir -p /app; echo hello > /app/x; setsid sleep 333 & sleep 333",
        test="cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -q 'sleep 33[3]' && exit; " + PASS,
    )
    text = (task / "task.toml").read_text().replace("timeout_sec = 60.0", "timeout_sec = 1.0")
    (task / "task.toml").write_text(text)
    result, _ = run(trial(home, task, tmp_path / "out"))
    assert result.exception_info is not None
    assert result.exception_info.exception_type == "AgentTimeoutError"
    assert result.verifier_result is not None
    assert result.verifier_result.rewards == {"reward": 1.0}


def test_compose_is_refused(home: Path, tmp_path: Path) -> None:
    async def work() -> None:
        (tmp_path / "environment").mkdir()
        (tmp_path / "environment/docker-compose.yaml").write_text("services: {}\n")
        with pytest.raises(DockerfileUnsupported, match=r"docker-compose\.yaml"):
            async with environment(home, tmp_path):
                pass
        assert json.loads((tmp_path / "trial/sandbox.json").read_text())["kind"] == "process"

    run(work())


def test_mounts_are_refused(home: Path, tmp_path: Path) -> None:
    async def work() -> None:
        mounts = [{"type": "bind", "source": "/etc", "target": "/host"}]
        with pytest.raises(SandboxStartError, match="mounts"):
            async with environment(home, tmp_path, mounts=mounts):
                pass

    run(work())


def test_output_that_is_not_text_and_too_much_of_it(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = module.Sandbox.exec

    async def capped(self: Any, argv: Any, **how: Any) -> Any:
        return await real(self, argv, **{"cap": 1000, **how})

    monkeypatch.setattr(module.Sandbox, "exec", capped)

    async def work() -> None:
        async with environment(home, tmp_path) as env:
            done = await env.exec("printf '\\xff\\xc3\\xa9'; exit 3")
            assert (done.stdout, done.return_code) == ("�é", 3)
            done = await env.exec("head -c 5000 /dev/zero")
            assert len(done.stdout or "") == 1000
            assert "4000 bytes" in (done.stderr or "")
            done = await env.exec("kill -9 $$")
            assert done.return_code == 137
            done = await env.exec("sleep 100", timeout_sec=1)
            assert (done.return_code, done.stderr) == (124, "\nCommand timed out after 1 seconds")

    run(work())
    assert json.loads((tmp_path / "trial/sandbox.json").read_text())["output_dropped_bytes"] == 4000


def test_output_is_streamed_as_text(home: Path, tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []

    async def callback(text: str, stream: str) -> None:
        seen.append((text, stream))

    async def work() -> None:
        async with environment(home, tmp_path) as env:
            with env.scoped_output_callback(callback):
                await env.exec("printf '\\xc3'; sleep 0.1; printf '\\xa9 done'")

    run(work())
    assert seen == [("é done", "stdout")]


def test_environment_of_commands(home: Path, tmp_path: Path) -> None:
    async def work() -> None:
        config = EnvironmentConfig(env={"FROM_TASK": "task"}, workdir="/made/for/it")
        async with environment(home, tmp_path, config=config, persistent_env={"FROM_TRIAL": "trial"}) as env:
            done = await env.exec("echo $FROM_TASK $FROM_TRIAL $MINE; pwd", env={"MINE": "mine"})
            assert done.stdout == "task trial mine\n/made/for/it\n"
            assert (await env.exec("pwd", cwd="/usr")).stdout == "/usr\n"

    run(work())


def test_files_in_and_out(home: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub/file").write_text("content")
    (source / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "run.sh").chmod(0o755)
    (source / "link").symlink_to("sub/file")
    odd = "o dd\nname\\"
    (source / odd).write_text("odd")

    async def work() -> None:
        async with environment(home, tmp_path) as env:
            await env.upload_dir(source, "/a/b")
            done = await env.exec("/a/b/run.sh; readlink /a/b/link; cat /a/b/sub/file; stat -c %U /a/b/sub")
            assert done.stdout == "ran\nsub/file\ncontentroot\n"
            await env.upload_file(source / "run.sh", "/new/place/tool")
            await env.upload_file(source / "run.sh", "/a/b")  # a folder: into it
            assert (await env.exec("/new/place/tool; ls -l /a/b/run.sh | cut -c1-10")).stdout == "ran\n-rwxr-xr-x\n"
            await env.download_dir("/a/b", tmp_path / "back")
            await env.download_file("/a/b/link", tmp_path / "file")
            await env.exec("mkdir -p /logs/many; cd /logs/many; touch keep.txt skip.log 'odd name.txt'")
            await env.download_dir_filtered(
                source_dir="/logs/many", target_dir=tmp_path / "some", include=["*.txt"], protect=["skip.log"]
            )
            await env.download_dir_with_exclusions(
                source_dir="/logs/many", target_dir=tmp_path / "most", exclude=["*.log"]
            )
            with pytest.raises(RuntimeError, match="nowhere"):
                await env.download_dir("/nowhere", tmp_path / "none")
            for missing in ("/nowhere", "/usr/bin"):
                with pytest.raises(FileNotFoundError, match=missing):
                    await env.download_file(missing, tmp_path / "none")

    run(work())
    back = tmp_path / "back"
    assert sorted(path.name for path in back.iterdir()) == sorted(["sub", "run.sh", "link", odd])
    assert (back / "link").readlink() == Path("sub/file")
    assert (back / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "file").read_text() == "content"
    assert sorted(path.name for path in (tmp_path / "some").iterdir()) == ["keep.txt", "odd name.txt", "skip.log"]
    assert sorted(path.name for path in (tmp_path / "most").iterdir()) == ["keep.txt", "odd name.txt"]
    assert not (tmp_path / "none").exists()


def test_hostile_files_stay_inside(home: Path, tmp_path: Path) -> None:
    """The task may have put anything in the way, its own `tar` included."""

    async def work() -> None:
        async with environment(home, tmp_path) as env:
            script = (
                "mkdir -p /logs/verifier/d && cd /logs/verifier && ln -s /etc/passwd passwd; ln -s ../../../x up; "
                "mkfifo pipe; ln -s d inside; chmod 000 d; echo 1 > reward.txt; chmod 4755 reward.txt"
            )
            assert (await env.exec(script)).return_code == 0
            await env.download_dir("/logs/verifier", tmp_path / "out")
            if privileged():
                fake = "#!/bin/sh\nhead -c 100000 /dev/urandom\n"
                await env.exec(f"printf '{fake}' > /usr/local/bin/tar; chmod +x /usr/local/bin/tar")
                with pytest.raises((RuntimeError, tarfile.TarError)):
                    await env.download_dir("/logs/verifier", tmp_path / "fake")

    run(work())
    out = tmp_path / "out"
    assert sorted(path.name for path in out.iterdir()) == ["d", "inside", "reward.txt"]
    assert (out / "reward.txt").stat().st_mode & 0o7777 == 0o755
    assert json.loads((tmp_path / "trial/sandbox.json").read_text())["files_not_downloaded"] == 3


def test_a_download_has_a_limit(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.ProcessEnvironment, "DOWNLOAD_MB", 1)

    async def work() -> None:
        async with environment(home, tmp_path) as env:
            await env.exec("mkdir /big; head -c 3M /dev/zero > /big/file; mkdir /sparse; truncate -s 1T /sparse/file")
            for folder in ("/big", "/sparse"):
                with pytest.raises(RuntimeError, match="more than 1 MB"):
                    await env.download_dir(folder, tmp_path / "big")

    run(work())


def test_a_full_disk_has_a_name(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with environment(home, tmp_path) as env:
            monkeypatch.setattr(module, "_FULL", 1 << 60)
            assert (await env.exec("true")).return_code == 0
            with pytest.raises(SandboxDiskFull):
                await env.exec("false")

    run(work())
    assert "full" in json.loads((tmp_path / "trial/sandbox.json").read_text())["disk_full"]


def test_a_lost_sandbox_is_in_the_account(home: Path, tmp_path: Path) -> None:
    """Harbor may wrap the error in one of its own."""

    async def work() -> None:
        async with environment(home, tmp_path) as env:
            assert env._box is not None
            assert env._box._init_pid is not None
            os.kill(env._box._init_pid, 9)
            with pytest.raises(SandboxLost):
                await env.download_dir("/logs", tmp_path / "logs")

    run(work())
    assert "lost" in json.loads((tmp_path / "trial/sandbox.json").read_text())


def test_without_root_there_is_one_user(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with environment(home, tmp_path) as env:
            monkeypatch.setattr(module, "privileged", lambda: False)
            assert (await env.exec("true", user="root")).return_code == 0
            with pytest.raises(SandboxStartError, match="someone"):
                await env.exec("true", user="someone")

    run(work())


def test_capabilities_promise_what_is_held(home: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="allowlist"):
        run(_start_with_allowlist(home, tmp_path))


async def _start_with_allowlist(home: Path, tmp_path: Path) -> None:
    policy = NetworkPolicy(network_mode=NetworkMode.ALLOWLIST, allowed_hosts=["example.org"])
    async with environment(home, tmp_path, policy=policy):
        pass


def test_records_of_one_role_add_up(tmp_path: Path) -> None:
    for session, kills in (("one", 2), ("two", 3), ("three", 0)):
        record = Record(tmp_path / "sandbox.json", session)
        record.set(oom_kills=0)
        record.write()
        record.set(oom_kills=kills)
        record.count(output_dropped_bytes=10)
        record.write()
    found = json.loads((tmp_path / "sandbox.json").read_text())
    assert (found["session"], found["oom_kills"], found["output_dropped_bytes"]) == ("three", 5, 30)
    assert [(r["session"], r["oom_kills"]) for r in found["earlier"]] == [("one", 2), ("two", 3)]


def test_records_do_not_repeat(tmp_path: Path) -> None:
    record = Record(tmp_path / "sandbox.json", "s")
    record.note("a", "b", "a")
    record.add_network("public", "translated")
    record.add_network("public", "translated")
    record.write()
    found = json.loads((tmp_path / "sandbox.json").read_text())
    assert (found["notes"], len(found["network"])) == (["a", "b"], 1)
