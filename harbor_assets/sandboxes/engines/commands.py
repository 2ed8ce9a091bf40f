"""Commands in a container: run, followed, and ended in time with everything they started.

What the engine's client says of a command's end is not believed: it says 1, 125 or 137 for faults of its own too. Our
script in the container says it (`inside/run.sh`); where it says nothing, the container is looked at.

Starting an exec costs the engine some ten times what most commands do. So a client that has run a command to its end
is kept for the next one of the same user; commands at the same time have one each (`inside/serve.sh`).
"""

import asyncio
import contextlib
import os
import uuid
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable
from importlib import resources
from typing import IO

from harbor_assets.sandboxes import scripts
from harbor_assets.sandboxes.engines.cli import ended
from harbor_assets.sandboxes.engines.container import Container
from harbor_assets.sandboxes.errors import ControlPlaneError, SandboxLost, UnknownUser
from harbor_assets.sandboxes.output import CAP, OnChunk, Output

KILL_SECONDS = 20.0  # of one try to end a command's processes, which takes a fraction of a second
CLOSE_SECONDS = 5.0  # from our script's last word to the end of the client
KILLED, CANNOT_RUN = 137, 126  # as a shell says it
_CHUNK = 1 << 16
_TRAILER_MAX = 64
_NO_USER = ("no matching entries in passwd", "unable to find user", "no users found", "unable to find group")


def install(folders: str) -> bytes:
    """A shell script that puts ours into a container, as files: as arguments an agent's `pkill -f` would match them."""
    parts = [f"set -e\nmkdir -p {scripts.FOLDER}/c\nchmod 711 {scripts.FOLDER}\nchmod 1777 {scripts.FOLDER}/c\n"]
    ours = resources.files(__package__) / "inside"
    texts = {name: (ours / f"{name}.sh").read_text() for name in ("serve", "run")}
    for name, text in {**texts, "end": scripts.end().decode()}.items():
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
    stdin: IO[bytes] | None = None,
    sink: Callable[[bytes], None] | None = None,
) -> tuple[Output, int]:
    """Run a script to its end; the second value counts what the memory limit has killed in the container so far.

    `stdin`: a file, from where it stands, for the script to read. `sink` takes stdout, unbounded.
    With its time up, and when cancelled, its processes are ended; `code` is None then. Raises UnknownUser; SandboxLost
    and its kin; ControlPlaneError; what `sink` raises.
    """
    client, used = await _client(container, user), True
    if client is None:
        client, used = await _open(container, user), False
    call = _Call(uuid.uuid4().hex[:12], cap, on_chunk, sink)
    at = stdin.tell() if stdin else 0
    done = await _one(container, client, call, body, stdin, timeout)
    if used and done is not None and not call.begun:  # the kept client had gone: it is nobody's fault
        await end(container, call.id)
        if stdin:
            stdin.seek(at)
        call = _Call(uuid.uuid4().hex[:12], cap, on_chunk, sink)
        client = await _open(container, user)
        done = await _one(container, client, call, body, stdin, timeout)
    if done is None:
        return Output(None, bytes(call.out.kept), call.said(), call.dropped), -1
    if call.code is None:
        await _why(container, call, client.returncode or 0)
        return Output(KILLED, bytes(call.out.kept), call.said(), call.dropped), -1
    if client.returncode is None:
        container.idle.setdefault(user, []).append(client)
    return Output(call.code, bytes(call.out.kept), call.said(), call.dropped), call.kills


async def _client(container: Container, user: str) -> Process | None:
    """A kept client of that user which is still there."""
    while kept := container.idle.get(user):
        client = kept.pop()
        assert client.stdout
        if client.returncode is None and not client.stdout.at_eof():
            return client
        await ended(client)
    return None


async def _open(container: Container, user: str) -> Process:
    words = ["exec", "-i", "-u", user, container.name, "sh", f"{scripts.FOLDER}/serve"]
    return await container.engine.open(words, stdin=asyncio.subprocess.PIPE)


async def _one(
    container: Container,
    client: Process,
    call: "_Call",
    body: bytes,
    stdin: IO[bytes] | None,
    timeout: float | None,  # noqa: ASYNC109 - see `run`
) -> bool | None:
    """One command by a client, which has ended or may be kept afterwards. None: its time was up, and it was ended."""
    follow, keep = asyncio.ensure_future(_follow(client, call, body, stdin)), False
    try:
        done, _ = await asyncio.wait({follow}, timeout=timeout)
        if not done:
            await asyncio.shield(end(container, call.id))
            await asyncio.wait({follow}, timeout=CLOSE_SECONDS)
            return None
        follow.result()
        keep = call.code is not None
    except BaseException:
        await asyncio.shield(end(container, call.id))
        raise
    finally:
        follow.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await follow
        if not keep:
            await ended(client)
    return True


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
    heard = call.said() if call.begun else bytes(call.out.raw) + call.said()  # docker says its own faults on stdout
    said = heard.decode(errors="replace").strip()
    if not call.begun and any(words in said.lower() for words in _NO_USER):
        raise UnknownUser(f"the image has no such user: {said[-300:]}")
    await container.ask_after(said)
    if not call.begun:
        raise SandboxLost(f"commands cannot be run in the container any more: {said[-500:] or f'exit code {code}'}")
    if code <= 128:  # no signal: the client lost its engine, and the command may go on
        await end(container, call.id)
        raise ControlPlaneError(f"contact with a command was lost: {said[-500:] or f'exit code {code}'}")


async def _follow(client: Process, call: "_Call", body: bytes, stdin: IO[bytes] | None) -> None:
    """Move the bytes of one command until our script's last word, or the client's end."""
    assert client.stdin
    assert client.stdout
    assert client.stderr
    try:
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(_send(client.stdin, call.id, body, stdin))
            pumps = [
                group.create_task(_pump(client.stdout, call.out)),
                group.create_task(_pump(client.stderr, call.err)),
            ]
            await asyncio.wait(pumps)
            sending.cancel()  # a command that has ended has read everything; a client that has will read no more
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    await call.finish()
    if call.code is None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await client.wait()


async def _send(to: asyncio.StreamWriter, name: str, body: bytes, stdin: IO[bytes] | None) -> None:
    size = os.fstat(stdin.fileno()).st_size - stdin.tell() if stdin else 0
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        to.write(f"{name} {len(body)} {size}\n".encode() + body)
        await to.drain()
        while stdin and (data := stdin.read(_CHUNK)):
            to.write(data)
            await to.drain()


async def _pump(stream: asyncio.StreamReader, words: "_Stream") -> None:
    while not words.over and (data := await stream.read(_CHUNK)):
        await words.take(data)


class _Stream:
    """One stream of a command, told apart from our script's words around it. `keep` takes what is the command's."""

    def __init__(self, name: str, keep: Callable[[bytes], Awaitable[None]]) -> None:
        self._name, self._keep = name.encode(), keep
        self.raw = bytearray()  # not yet told apart
        self.kept = bytearray()
        self.begun = False
        self.over: tuple[int, int] | None = None  # exit code, processes killed

    async def take(self, data: bytes) -> None:
        self.raw += data
        if not self.begun:
            mark = b"\0" + self._name + b"\0"
            at = self.raw.find(mark)
            if at < 0:
                return
            del self.raw[: at + len(mark)]
            self.begun = True
        mark = b"\0" + self._name + b" "
        at = self.raw.find(mark)
        stop = self.raw.find(b"\0", at + 1) if at >= 0 else -1
        if stop >= 0:
            code, kills = self.raw[at + len(mark) : stop].split()
            self.over = int(code), int(kills)
            del self.raw[at:]
            await self.finish()
            return
        held = self.raw.find(b"\0", max(0, len(self.raw) - _TRAILER_MAX)) if at < 0 else at
        free = len(self.raw) if held < 0 else held
        piece = bytes(self.raw[:free])
        del self.raw[:free]
        if piece:
            await self._keep(piece)

    async def finish(self) -> None:
        """What is still held back is the command's own."""
        if self.begun and self.raw:
            piece = bytes(self.raw)
            self.raw.clear()
            await self._keep(piece)


class _Call:
    """One command: what is held of its output, and what our script said of it."""

    def __init__(
        self, name: str, cap: int, on_chunk: OnChunk | None, sink: Callable[[bytes], None] | None = None
    ) -> None:
        self.id, self._cap, self._on_chunk, self._sink = name, cap, on_chunk, sink
        self.dropped = 0
        self.out, self.err = _Stream(name, self._out), _Stream(name, self._err)

    @property
    def begun(self) -> bool:
        return self.err.begun

    @property
    def code(self) -> int | None:
        return self.err.over[0] if self.err.over and self.out.over else None

    @property
    def kills(self) -> int:
        return self.err.over[1] if self.err.over else -1

    async def finish(self) -> None:
        await self.out.finish()
        await self.err.finish()

    def said(self) -> bytes:
        """Stderr; of a command that did not begin, the client's words."""
        return bytes(self.err.kept or self.err.raw)

    async def _out(self, data: bytes) -> None:
        if self._sink:
            self._sink(data)
        else:
            await self._hold(self.out, data, "stdout")

    async def _err(self, data: bytes) -> None:
        await self._hold(self.err, data, "stderr")

    async def _hold(self, stream: _Stream, data: bytes, name: str) -> None:
        room = max(0, self._cap - len(stream.kept))
        stream.kept += data[:room]
        self.dropped += max(0, len(data) - room)
        if self._on_chunk:
            await self._on_chunk(data, name)
