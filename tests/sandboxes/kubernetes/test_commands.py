"""Commands in a pod: once, to their end, within their time, whatever happens to the stream."""

import asyncio
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("harbor")

from harbor_assets.sandboxes.kubernetes.kube import StreamBroken

from .conftest import run

pytestmark = pytest.mark.req_k8s
Make = Callable[..., Any]


async def sh(box: Any, command: str, **how: Any) -> tuple[int, str, str]:
    done = await box.exec(command, **how)
    return done.return_code, done.stdout, done.stderr


def test_what_a_command_sees_and_gives(sandbox: Make) -> None:
    async def work() -> None:
        config = {
            "agent": {"user": "nobody", "workdir": "/usr", "env": {"COLOUR": "blue green", "PATH": "/usr/bin:/bin"}}
        }
        async with sandbox(image_config=config) as box:
            assert await sh(box, "echo out; echo err >&2; exit 3", user="root") == (3, "out\n", "err\n")
            assert await sh(box, 'id -un; pwd; echo "$COLOUR"; echo "$HOME"') == (
                0, "nobody\n/usr\nblue green\n/nonexistent\n", "",
            )  # fmt: skip
            assert await sh(box, "id -u; pwd", user=0, cwd="/tmp") == (0, "0\n/tmp\n", "")
            assert (await sh(box, "id -u", user=4321))[:2] == (0, "4321\n")
            assert await sh(box, 'echo "$A"', env={"A": "x'y \"$z\nw"}, user="root") == (0, "x'y \"$z\nw\n", "")
            assert (await sh(box, "env | grep -c KUBERNETES", user="root"))[1] == "0\n"
            assert (await sh(box, "ls /var/run/secrets", user="root"))[0] == 2
            done = await box.exec("printf 'a\\377b'; printf 'c\\0\\0d\\0' >&2", user="root")
            assert (done.stdout, done.stderr) == ("a�b", "c\0\0d\0")
            # a script's own `> /dev/stderr` must not empty what was written before
            assert await sh(box, "echo 1 >&2; echo 2 > /dev/stderr; echo 3 >&2; echo o >/dev/stdout") == (
                0, "o\n", "1\n2\n3\n",
            )  # fmt: skip
            assert (await sh(box, "kill -SEGV $$", user="root"))[0] == 139
            assert (await sh(box, f": {'x' * 300_000}; echo long", user="root"))[:2] == (0, "long\n")
            ghost = await box.exec("true", user="nosuch")
            assert (ghost.return_code, ghost.stderr) == (126, "sandbox: the image has no user 'nosuch'\n")
            assert box._record._facts["missing_users"] == ["nosuch"]
            # what an agent may do to itself is no end of the sandbox
            assert (await sh(box, "kill 1", user="root"))[0] == 0
            assert (await sh(box, "kill -9 -1", user="root"))[0] == 137
            assert await sh(box, "echo still here", user="root") == (0, "still here\n", "")

    run(work())


def test_large_output_comes_whole_and_in_order(sandbox: Make) -> None:
    async def work() -> None:
        async with sandbox() as box:
            began = time.monotonic()
            done = await box.exec("head -c 52428800 /dev/zero | tr '\\0' x; echo end >&2")
            assert len(done.stdout) == 50 << 20
            assert set(done.stdout) == {"x"}
            assert done.stderr == "end\n"
            assert time.monotonic() - began < 60
            seen: list[tuple[str, str]] = []

            async def show(text: str, stream: str) -> None:
                seen.append((stream, text))

            with box.scoped_output_callback(show):
                await box.exec("for i in 1 2 3; do echo $i; echo e$i >&2; sleep 0.3; done")
            assert "".join(text for stream, text in seen if stream == "stdout") == "1\n2\n3\n"
            assert "".join(text for stream, text in seen if stream == "stderr") == "e1\ne2\ne3\n"
            assert len([1 for stream, _ in seen if stream == "stdout"]) > 1

    run(work())


DAEMONS = """
setsid sleep 3331 &
(setsid sh -c 'sleep 3332 & sleep 3332' >/dev/null 2>&1 &)
setsid env -i sleep 3333 </dev/null >/dev/null 2>&1 &
sleep 0.3
"""
LEFT = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c '[s]leep 333' || true"


def test_a_command_whose_time_is_up_ends_with_all_it_started(sandbox: Make) -> None:
    async def work() -> None:
        async with sandbox() as box:
            await box.exec("nohup sleep 4444 >/dev/null 2>&1 &")
            began = time.monotonic()
            done = await box.exec(DAEMONS + "while :; do sleep 3334; done", timeout_sec=3)
            assert time.monotonic() - began < 10
            assert done.return_code == 124
            assert "timed out after 3 seconds" in done.stderr
            assert (await sh(box, LEFT))[1] == "0\n"
            # cancelled, as Harbor does when the agent's time is up
            task = asyncio.create_task(box.exec(DAEMONS + "sleep 3335", user="nobody"))
            await asyncio.sleep(2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await sh(box, LEFT))[1] == "0\n"
            # what another command had left is not touched
            assert (await sh(box, "grep -l '[4]444' /proc/[0-9]*/cmdline | wc -l"))[1] == "1\n"

    run(work())


def test_what_a_command_leaves_behind_lives_on(sandbox: Make) -> None:
    async def work() -> None:
        async with sandbox() as box:
            began = time.monotonic()
            assert (await sh(box, "(while :; do date +%s%N > /tmp/beat; sleep 0.1; done) & echo started"))[
                1
            ] == "started\n"
            assert time.monotonic() - began < 5
            code, out, _ = await sh(
                box, "a=$(cat /tmp/beat); sleep 0.5; b=$(cat /tmp/beat); [ $a != $b ] && echo alive"
            )
            assert (code, out) == (0, "alive\n")

    run(work())


class Cutting:
    """Cuts exec streams of a pod at random moments, before, in or after a command."""

    def __init__(self, pod: Any, chance: random.Random, longest: float) -> None:
        self._pod, self._exec, self.cuts, self._chance, self._longest = pod, pod.exec, 0, chance, longest
        pod.exec = self

    async def __call__(self, command: list[str], **how: Any) -> int:
        if not command[1].endswith("/run") or self._chance.random() < 0.2:
            return await self._exec(command, **how)
        try:
            return await asyncio.wait_for(self._exec(command, **how), self._chance.uniform(0, self._longest))
        except TimeoutError:
            self.cuts += 1
            raise StreamBroken("cut by the test") from None

    def stop(self) -> None:
        self._pod.exec = self._exec


def test_a_cut_stream_repeats_and_loses_nothing(sandbox: Make) -> None:
    async def work() -> None:
        async with sandbox() as box:
            chance = random.Random(7)
            cutting = Cutting(box._pod, chance, 0.15)  # a command takes 0.04 s at best: some are cut, some are not
            for i in range(15):
                code, out, err = await sh(box, f"echo x >> /tmp/ran{i}; seq 1 50; echo e >&2; exit {i}")
                assert (code, out, err) == (i, "".join(f"{n}\n" for n in range(1, 51)), "e\n")
            slow = await sh(box, "for n in $(seq 1 60); do echo $n; sleep 0.05; done; exit 9")
            assert slow[:2] == (9, "".join(f"{n}\n" for n in range(1, 61)))
            cutting.stop()
            assert cutting.cuts > 2
            assert (await sh(box, "cat /tmp/ran* | wc -l"))[1] == "15\n"

    run(work())


def test_an_apiserver_that_is_away_is_waited_for(sandbox: Make) -> None:
    """Our end of the connection: every request and stream is refused for a while, and the watch is cut."""

    async def work() -> None:
        async with sandbox() as box:
            task = asyncio.create_task(box.exec("for n in 1 2 3 4 5 6 7 8; do echo $n; sleep 1; done; exit 5"))
            await asyncio.sleep(1.5)
            kube = box._kube
            access, session = kube.access, kube._session
            from dataclasses import replace

            kube.access = replace(access, host="https://127.0.0.1:1")
            for connection in list(session.connector._conns.values()):
                del connection
            for protocol in list(session.connector._acquired):
                protocol.close()  # open streams too
            await asyncio.sleep(8)
            kube.access = access
            done = await task
            assert (done.return_code, done.stdout) == (5, "".join(f"{n}\n" for n in range(1, 9)))
            assert box._runner.reconnects > 0

    run(work())


def test_many_at_once(sandbox: Make) -> None:
    async def work() -> None:
        async with sandbox() as box:
            done = await asyncio.gather(*(sh(box, f"sleep 1; echo {i}; exit {i}") for i in range(20)))
            assert [d[:2] for d in done] == [(i, f"{i}\n") for i in range(20)]

    run(work())


def test_the_first_process_reaps_and_does_not_end_from_inside(sandbox: Make) -> None:
    async def work() -> None:
        async with sandbox() as box:
            orphans = "for i in 1 2 3 4 5; do (setsid sh -c 'sleep 0.2 & exit' &); done; sleep 1"
            await box.exec(orphans)
            # One that has just ended may still be seen: it is gone at a later look
            zombies = "cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z '"
            gone = f"for i in $(seq 100); do [ $({zombies}) = 0 ] && exit; sleep 0.1; done; exit 9"
            assert (await sh(box, gone))[0] == 0
            everything = "for s in $(seq 1 31); do kill -$s 1; done; rm -f /bin/sleep /usr/bin/sleep /.sandbox/idle; "
            everything += "for p in $(grep -l \"[t]rap ''\" /proc/[0-9]*/cmdline | cut -d/ -f3); do kill -9 $p; done; "
            ticks = "read -r line </proc/1/stat; set -- ${line##*) }; echo $((${12} + ${13} + ${14} + ${15}))"
            assert (await sh(box, f"{everything} {ticks}", user="root"))[0] == 0
            before = int((await sh(box, ticks))[1])
            await asyncio.sleep(1)
            assert int((await sh(box, ticks))[1]) - before < 20  # of 100: it does not spin
            assert await sh(box, "seq 3; exit 4") == (4, "1\n2\n3\n", "")  # nor do commands need what is gone
            assert await sh(box, "cat /proc/1/comm; echo alive") == (0, "sh\nalive\n", "")
            statuses = box._pod.state["status"]["containerStatuses"]
            assert [status["restartCount"] for status in statuses] == [0]

    run(work())


def test_a_child_killed_at_the_memory_limit_is_the_tasks_own(sandbox: Make, tmp_path: Path) -> None:
    from harbor.models.task.config import EnvironmentConfig

    async def work() -> None:
        async with sandbox(config=EnvironmentConfig(memory_mb=96)) as box:
            done = await box.exec("tail /dev/zero; echo code $?")
            assert done.stdout == "code 137\n"
            assert "killed at the memory limit of 96 MB" in done.stderr
            assert (await sh(box, "echo alive"))[1] == "alive\n"
            await box.exec("sleep 60", timeout_sec=1)  # what was seen stays seen
        record = json.loads((tmp_path / "trial/sandbox.json").read_text())
        assert (record["oom_kills"] >= 1, record["foreign_oom_kills"]) == (True, 0)

    run(work())
