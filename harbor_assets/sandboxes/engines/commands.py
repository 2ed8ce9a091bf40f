"""Commands in a container: run, followed, and ended in time with everything they started.

What the engine's client says of a command's end is not believed: it says 1, 125 or 137 for faults of its own too. Our
script in the container says it (`inside/run.sh`); where it says nothing, the container is looked at.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from harbor_assets.sandboxes import scripts
from harbor_assets.sandboxes.engines.cli import ended
from harbor_assets.sandboxes.engines.container import Container
from harbor_assets.sandboxes.errors import ControlPlaneError, SandboxLost, UnknownUser
from harbor_assets.sandboxes.output import CAP, OnChunk, Output

KILL_SECONDS = 20.0  # of one try to end a command's processes, which takes a fraction of a second
CLOSE_SECONDS = 5.0  # from our script's last word to the end of the client
KILLED = 137  # as a shell says it
_CHUNK = 1 << 16
_TRAILER_MAX = 64
_NO_USER = ("no matching entries in passwd", "unable to find user", "no users found", "unable to find group")


def install(folders: str) -> bytes:
    """A shell script that puts ours into a container, as files: as arguments an agent's `pkill -f` would match them."""
    parts = [f"set -e\nmkdir -p {scripts.FOLDER}/c\nchmod 711 {scripts.FOLDER}\nchmod 1777 {scripts.FOLDER}/c\n"]
    run = (resources.files(__package__) / "inside" / "run.sh").read_text()
    for name, text in (("run", run), ("end", scripts.end().decode())):
        parts.append(f"cat >{scripts.FOLDER}/{name} <<'end of {name}'\n{text}end of {name}\n")
    return ("".join(parts) + folders + "\n").encode()


async def run(
    container: Container,
    body: bytes,
    *,
    user: str,
    timeout: float | None = None,  # noqa: ASYNC109 - what happens then is ours to do
    on_chunk: OnChunk | None = None,
    cap: int = CAP,
) -> tuple[Output, int]:
    """Run a script to its end; the second value counts what the memory limit has killed in the container so far.

    With its time up, and when cancelled, its processes are ended; `code` is None then. Raises UnknownUser; SandboxLost
    and its kin; ControlPlaneError.
    """
    call = _Call(uuid.uuid4().hex[:12], cap, on_chunk)
    words = ["exec", "-i", *(["-u", user] if user else []), container.name, "sh", f"{scripts.FOLDER}/run"]
    process = await container.engine.open([*words, call.id, str(len(body))], stdin=asyncio.subprocess.PIPE)
    follow = asyncio.ensure_future(_follow(process, call, body))
    try:
        done, _ = await asyncio.wait({follow}, timeout=timeout)
        if not done:
            await asyncio.shield(end(container, call.id))
            await asyncio.wait({follow}, timeout=CLOSE_SECONDS)
            return Output(None, bytes(call.out), call.said(), call.dropped), -1
        follow.result()
    except asyncio.CancelledError:
        await asyncio.shield(end(container, call.id))
        raise
    finally:
        follow.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await follow
        await ended(process)
    if call.code is None:
        await _why(container, call, process.returncode or 0)
        return Output(KILLED, bytes(call.out), call.said(), call.dropped), -1
    return Output(call.code, bytes(call.out), call.said(), call.dropped), call.kills


async def end(container: Container, command: str) -> None:
    """End all processes of a command. Raises SandboxLost or ControlPlaneError if that cannot be made sure of."""
    said = ""
    for _ in range(3):
        with contextlib.suppress(ControlPlaneError):
            answer = await container.engine.ask(
                "exec", "-u", "0", container.name, "sh", f"{scripts.FOLDER}/end", command, seconds=KILL_SECONDS
            )
            if answer.code == 0:
                return
            said = answer.said
        await container.ask_after(said)
    raise SandboxLost(f"processes of a command that was to end are still there: {said}")


async def _why(container: Container, call: "_Call", code: int) -> None:
    """Our script did not say how the command ended. Returns if it was killed by what runs in the container."""
    heard = call.said() if call.begun else bytes(call.out) + call.said()  # docker says its own faults on stdout
    said = heard.decode(errors="replace").strip()
    if not call.begun and any(words in said.lower() for words in _NO_USER):
        raise UnknownUser(f"the image has no such user: {said[-300:]}")
    await container.ask_after(said)
    if not call.begun:
        raise SandboxLost(f"commands cannot be run in the container any more: {said[-500:] or f'exit code {code}'}")
    if code <= 128:  # no signal: the client lost its engine, and the command may go on
        await end(container, call.id)
        raise ControlPlaneError(f"contact with a command was lost: {said[-500:] or f'exit code {code}'}")


async def _follow(process: asyncio.subprocess.Process, call: "_Call", body: bytes) -> None:
    """Move the bytes of a client until it ends, or a little after our script's last word."""
    assert process.stdin
    assert process.stdout
    assert process.stderr
    pumps: list[asyncio.Future[Any]] = [
        asyncio.ensure_future(_pump(process.stdout, call.take_out)),
        asyncio.ensure_future(_pump(process.stderr, call.take_err)),
    ]
    try:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            process.stdin.write(body)
            await process.stdin.drain()
        process.stdin.close()
        over = asyncio.ensure_future(call.over.wait())
        pumps.append(over)
        waiting = set(pumps)
        while not over.done() and waiting - {over}:
            finished, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for future in finished:
                future.result()
        rest = [pump for pump in pumps[:2] if not pump.done()]
        if rest:
            await asyncio.wait(rest, timeout=CLOSE_SECONDS)
        for pump in pumps[:2]:
            if pump.done():
                pump.result()
        await call.finish()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await process.wait()
    finally:
        for pump in pumps:
            pump.cancel()


async def _pump(stream: asyncio.StreamReader, take: Callable[[bytes], Awaitable[None]]) -> None:
    while data := await stream.read(_CHUNK):
        await take(data)


@dataclass
class _Call:
    """One command: what is held of its output, and what our script said of it."""

    id: str
    cap: int
    on_chunk: OnChunk | None
    out: bytearray = field(default_factory=bytearray)
    err: bytearray = field(default_factory=bytearray)
    dropped: int = 0
    begun: bool = False
    code: int | None = None
    kills: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)
    _raw: bytearray = field(default_factory=bytearray)  # of stderr, not yet told apart from our script's words

    async def take_out(self, data: bytes) -> None:
        await self._keep(self.out, data, "stdout")

    async def take_err(self, data: bytes) -> None:
        if self.over.is_set():
            return
        self._raw += data
        if not self.begun:
            mark = b"\0" + self.id.encode() + b"\0"
            at = self._raw.find(mark)
            if at < 0:
                return
            del self._raw[: at + len(mark)]
            self.begun = True
        mark = b"\0" + self.id.encode() + b" "
        at = self._raw.find(mark)
        stop = self._raw.find(b"\0", at + 1) if at >= 0 else -1
        if stop >= 0:
            code, kills = self._raw[at + len(mark) : stop].split()
            self.code, self.kills = int(code), int(kills)
            del self._raw[at:]
            await self.finish()
            self.over.set()
            return
        held = self._raw.find(b"\0", max(0, len(self._raw) - _TRAILER_MAX)) if at < 0 else at
        free = len(self._raw) if held < 0 else held
        piece = bytes(self._raw[:free])
        del self._raw[:free]
        await self._keep(self.err, piece, "stderr")

    async def finish(self) -> None:
        """What is still held back is the command's own."""
        if self.begun and self._raw:
            piece = bytes(self._raw)
            self._raw.clear()
            await self._keep(self.err, piece, "stderr")

    def said(self) -> bytes:
        """Stderr; of a command that did not begin, the client's words."""
        return bytes(self.err or self._raw)

    async def _keep(self, buffer: bytearray, data: bytes, stream: str) -> None:
        room = max(0, self.cap - len(buffer))
        buffer += data[:room]
        self.dropped += max(0, len(data) - room)
        if self.on_chunk and data:
            await self.on_chunk(data, stream)
