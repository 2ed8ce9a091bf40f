"""A stream that waits for its command: the script of the pod, run by the shells of this machine. No cluster."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from harbor_assets.sandboxes.kubernetes.kube import StreamBroken
from harbor_assets.sandboxes.kubernetes.manifests import IDLE
from harbor_assets.sandboxes.kubernetes.spare import Spare

SCRIPT = str(resources.files("harbor_assets.sandboxes.kubernetes") / "inside" / "spare.sh")
SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]
SHOW = "import os, sys; print([os.fsencode(a) for a in sys.argv[1:]], sys.stdin.buffer.read()); sys.exit(7)"


class Opener:
    """`Kube.exec`, with a process of this machine for the pod. `cut` bytes of stdin arrive, if it is set."""

    def __init__(self, shell: str = "sh", cut: int | None = None) -> None:
        self.shell, self.cut, self.process = shell, cut, None

    async def __call__(self, command: list[str], *, stdin: AsyncIterator[bytes], out: Any, err: Any) -> int:
        assert command[0] == "sh"
        words = ["busybox", "sh"] if self.shell == "busybox" else [self.shell]
        pipe = asyncio.subprocess.PIPE
        self.process = process = await asyncio.create_subprocess_exec(
            *words, SCRIPT, stdin=pipe, stdout=pipe, stderr=pipe
        )
        to_it = process.stdin
        assert to_it

        async def feed() -> None:
            async for chunk in stdin:
                to_it.write(chunk[: self.cut])
            to_it.close()

        feeder = asyncio.create_task(feed())
        try:
            assert process.stdout
            while data := await process.stdout.read(1 << 16):
                out(data)
            return await process.wait()
        finally:
            feeder.cancel()
            if process.returncode is None:
                process.kill()
                await process.wait()


async def chunks() -> AsyncIterator[bytes]:
    for part in (b"one\n", b"\0\xff"):
        yield part


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_gets_its_words_and_the_rest_of_the_stream(shell: str) -> None:
    words = ["it's", "a\nb\n", "", "$HOME `x` \\n", " \t ", "\udcff", "*"]
    shown = [b"it's", b"a\nb\n", b"", b"$HOME `x` \\n", b" \t ", b"\xff", b"*"]

    async def work() -> None:
        for stdin, arrives in ((None, b""), (b"in\nput", b"in\nput"), (chunks(), b"one\n\0\xff")):
            spare, out = Spare(Opener(shell)), bytearray()
            assert await spare.use([sys.executable, "-c", SHOW, *words], stdin, out.extend, None) == 7
            assert out.decode() == f"{shown} {arrives}\n"
            assert spare.over

    asyncio.run(work())


@pytest.mark.parametrize("shell", SHELLS)
def test_half_a_command_is_none(shell: str, tmp_path: Path) -> None:
    made = tmp_path / "made"

    async def work() -> None:
        for cut in (0, 1, 2, 8, len(f"1\ntouch {made}")):
            spare = Spare(Opener(shell, cut))
            assert await spare.use(["touch", str(made)], None, None, None) == 125
        assert not made.exists()
        spare = Spare(Opener(shell))
        assert await spare.use(["touch", str(made)], None, None, None) == 0
        assert made.exists()

    asyncio.run(work())


def test_what_was_ended_before_its_use_is_seen() -> None:
    async def broken(*_: Any, **__: Any) -> int:
        raise StreamBroken("cut")

    async def work() -> None:
        opener = Opener()
        spare, cut = Spare(opener), Spare(broken)
        while opener.process is None:
            await asyncio.sleep(0.01)
        assert cut.over
        assert not spare.over
        opener.process.kill()  # as an agent's `pkill sh`
        while not spare.over:
            await asyncio.sleep(0.01)
        unused = Spare(Opener())
        await unused.close()
        assert unused.over

    asyncio.run(asyncio.wait_for(work(), 10))


@pytest.mark.parametrize("shell", SHELLS)
def test_the_first_process_needs_no_program_to_wait(shell: str, tmp_path: Path) -> None:
    """It waits on without its pipe's name, without a PATH, and with its reader killed; and it does not spin."""
    words = ["busybox", "sh"] if shell == "busybox" else [shell]
    text = IDLE[2].replace("/.sandbox", str(tmp_path)).replace("while :", f"rm {tmp_path}/idle; echo; PATH=; while :")

    async def work() -> None:
        process = await asyncio.create_subprocess_exec(
            *words, "-c", text, start_new_session=True, stdout=asyncio.subprocess.PIPE
        )
        try:
            assert process.stdout
            assert await process.stdout.readline()  # it waits now, or soon
            readers = set()
            for _ in range(3):
                reader = ""
                while not reader or reader in readers:
                    await asyncio.sleep(0.02)
                    reader = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().strip()
                assert reader.isdecimal()
                readers.add(reader)
                os.kill(int(reader), signal.SIGKILL)
            await asyncio.sleep(0.3)
            before = ticks(process.pid)
            await asyncio.sleep(0.5)
            assert ticks(process.pid) - before <= 1
            assert process.returncode is None
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # its reader too
            await process.wait()

    asyncio.run(asyncio.wait_for(work(), 20))


def ticks(pid: int) -> int:
    """What a process and its children that ended have used."""
    return sum(int(word) for word in Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[11:15])
