"""Commands in a container: what they see and give, how they end, and what becomes of a container that is lost."""

import asyncio
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harbor.models.task.config import EnvironmentConfig

from harbor_assets.sandboxes.engines.cli import Engine
from harbor_assets.sandboxes.errors import SandboxLost

from .conftest import kill, run

Make = Callable[..., Any]


def test_what_a_command_sees_and_gives(sandbox: Make) -> None:
    async def main() -> None:
        async with sandbox() as box:
            done = await box.exec("echo out; echo err >&2; exit 7")
            assert (done.return_code, done.stdout, done.stderr) == (7, "out\n", "err\n")
            assert (await box.exec("kill -9 $$")).return_code == 137
            assert (await box.exec("exit 125")).return_code == 125  # what engines say of their own faults
            odd = "a'b\"c\n$x é"
            seen = await box.exec('printf "%s|%s" "$ODD" "$PWD"; cat', cwd="/tmp", env={"ODD": odd})
            assert seen.stdout == f"{odd}|/tmp"
            assert (await box.exec("cd /nowhere", cwd="/nowhere")).return_code == 1
            raw = await box.exec(r"printf '\377\0\0x'; printf '\0\0last' >&2")
            assert (raw.stdout, raw.stderr) == ("�\0\0x", "\0\0last")
            long = "x" * 300_000
            assert (await box.exec(f"v={long}; echo ${{#v}}")).stdout == "300000\n"

    run(main())


def test_users(sandbox: Make, tmp_path: Path) -> None:
    async def main() -> None:
        async with sandbox() as box:
            assert (await box.exec("id -un; echo $HOME")).stdout == "root\n/root\n"
            seen = await box.exec("id -un; id -Gn; echo $HOME; touch /home/agent/x", user="agent")
            assert (seen.return_code, seen.stdout) == (0, "agent\nagent extra\n/home/agent\n")
            assert (await box.exec("id -u", user=1001)).stdout == "1001\n"
            assert (await box.exec("touch /etc/x", user="agent")).return_code == 1
            ghost = await box.exec("true", user="nobody-here")
            assert ghost.return_code == 126
            assert "no such user" in ghost.stderr

    run(main())
    assert json.loads((tmp_path / "trial/sandbox.json").read_text())["missing_users"] == ["nobody-here"]


def test_nothing_secret_is_an_argument(sandbox: Make) -> None:
    async def main() -> None:
        async with sandbox() as box:
            command = asyncio.ensure_future(box.exec("sleep 2; echo $TOKEN", env={"TOKEN": "very-secret-value"}))
            await asyncio.sleep(1)
            listed = await asyncio.to_thread(subprocess.check_output, ["ps", "-eww", "-o", "args"], text=True)
            assert "very-secret-value" not in listed
            assert (await command).stdout == "very-secret-value\n"

    run(main())


def test_output_beyond_the_cap_is_counted(sandbox: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with sandbox() as box:
            done = await box.exec("head -c 80000000 /dev/zero; echo end >&2")
            assert len(done.stdout) == 64 << 20
            assert "bytes of output beyond 64 MB were dropped" in done.stderr

    run(main())


def test_large_output_comes_whole_and_in_order(sandbox: Make) -> None:
    async def main() -> None:
        async with sandbox() as box:
            done = await box.exec("seq 500000; seq 500000 >&2")
            wanted = "".join(f"{n}\n" for n in range(1, 500001))
            assert done.stdout == wanted
            assert done.stderr == wanted

    run(main())


def test_a_timeout_ends_everything_a_command_started(sandbox: Make) -> None:
    async def main() -> None:
        async with sandbox() as box:
            await box.exec("(while :; do date >/tmp/kept; sleep 0.1; done) >/dev/null 2>&1 &")
            began = time.monotonic()
            done = await box.exec(
                "echo before; sleep 1001 & (setsid sh -c 'sleep 1002 & env -i sleep 1003' &) ; exec sleep 1004",
                timeout_sec=2,
            )
            assert (done.return_code, done.stdout) == (124, "before\n")
            assert "timed out after 2 seconds" in done.stderr
            assert time.monotonic() - began < 60
            assert "sleep 100" not in (await box.exec("ps -eo args | grep '[s]leep 1'")).stdout
            assert (await box.exec("rm /tmp/kept; sleep 1; cat /tmp/kept")).return_code == 0  # another command's lives

    run(main())


def test_a_cancel_ends_everything_a_command_started(sandbox: Make) -> None:
    async def main() -> None:
        async with sandbox() as box:
            command = asyncio.ensure_future(box.exec("sleep 1001 & sleep 1002"))
            await asyncio.sleep(1.5)
            command.cancel()
            with pytest.raises(asyncio.CancelledError):
                await command
            assert "sleep 100" not in (await box.exec("ps -eo args | grep '[s]leep 1'")).stdout

    run(main())


def test_a_server_that_is_left_lives_on_and_may_speak(sandbox: Make) -> None:
    async def main() -> None:
        async with sandbox() as box:
            began = time.monotonic()
            done = await box.exec(
                "(while :; do echo log; echo more >&2; echo alive >>/tmp/alive; sleep 0.05; done) & echo up"
            )
            assert done.stdout.startswith("up") or done.stdout.startswith("log")
            assert time.monotonic() - began < 30
            await asyncio.sleep(1)
            assert (await box.exec("rm /tmp/alive; sleep 1; cat /tmp/alive")).return_code == 0

    run(main())


def test_a_task_that_kills_everything_is_not_a_lost_sandbox(sandbox: Make) -> None:
    async def main() -> None:
        async with sandbox() as box:
            done = await box.exec("kill -9 -1; sleep 1")
            assert done.return_code == 137
            assert (await box.exec("echo still")).stdout == "still\n"

    run(main())


def test_a_lost_container_is_nobodys_exit_code(sandbox: Make, engine: Engine, tmp_path: Path) -> None:
    async def main() -> None:
        async with sandbox() as box:
            command = asyncio.ensure_future(box.exec("sleep 60"))
            await asyncio.sleep(1.5)
            kill(engine, box._box.name)
            with pytest.raises(SandboxLost, match="ended with exit code"):
                await command
            with pytest.raises(SandboxLost):
                await box.exec("true")
            with pytest.raises(SandboxLost):
                await box.upload_file(tmp_path / "trial/sandbox.json", "/tmp/x")

    run(main())
    assert "SandboxLost" in json.loads((tmp_path / "trial/sandbox.json").read_text())["lost"]


def test_a_removed_container_is_lost(sandbox: Make, engine: Engine) -> None:
    async def main() -> None:
        async with sandbox() as box:
            engine.call("rm", "-f", box._box.name)
            with pytest.raises(SandboxLost, match="was removed"):
                await box.exec("true")

    run(main())


def test_the_memory_limit_kills_a_child_and_is_told(sandbox: Make, tmp_path: Path) -> None:
    async def main() -> None:
        async with sandbox(config=EnvironmentConfig(memory_mb=64)) as box:
            done = await box.exec("tail /dev/zero; echo $?")
            assert done.stdout == "137\n"
            assert "killed at the memory limit of 64 MB" in (done.stderr or "")
            assert (await box.exec("true")).stderr == ""

    run(main())
    record = json.loads((tmp_path / "trial/sandbox.json").read_text())
    assert record["oom_kills"] >= 1
    assert "memory" in record["limits"]["set"]


def test_many_at_once(sandbox: Make) -> None:
    async def main() -> None:
        async with sandbox() as box:
            done = await asyncio.gather(*(box.exec(f"sleep 0.1; echo {n}") for n in range(8)))
            assert [d.stdout for d in done] == [f"{n}\n" for n in range(8)]

    run(main())


def test_output_is_streamed_as_text(sandbox: Make) -> None:
    async def main() -> None:
        seen: list[tuple[str, str]] = []

        async def note(text: str, stream: str) -> None:
            seen.append((stream, text))

        async with sandbox() as box:
            box._output_callback = lambda: note
            await box.exec(r"printf 'caf\303'; sleep 0.5; printf '\251\n'; echo oops >&2")
        assert "".join(text for stream, text in seen if stream == "stdout") == "café\n"
        assert [text for stream, text in seen if stream == "stderr"] == ["oops\n"]
        assert len(seen) >= 3

    run(main())
