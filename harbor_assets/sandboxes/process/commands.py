"""Runs commands in a sandbox: hands init their descriptors, moves their bytes, and has them killed in time."""

import asyncio
import contextlib
import io
import marshal
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from harbor_assets.sandboxes.output import TIMED_OUT
from harbor_assets.sandboxes.process import pipes
from harbor_assets.sandboxes.process.channel import Channel
from harbor_assets.sandboxes.process.pipes import OnChunk, Output, to_the_end

GRACE_SECONDS = 0.3  # for output on its way when a command has ended; a background child may hold the pipe for ever
_KILL_SECONDS = 20.0  # for what takes milliseconds


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How a command ended. `code` is negative if a signal killed it, 124 after the timeout; `dropped` counts the bytes
    of both streams beyond the cap."""

    code: int
    stdout: bytes
    stderr: bytes
    dropped: int = 0
    timed_out: bool = False


class Commands:
    """The commands of one sandbox."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._drained: set[io.FileIO] = set()

    async def run(
        self,
        request: Mapping[str, Any],
        *,
        seconds: float | None,
        stdin: bytes | BinaryIO | None,
        on_chunk: OnChunk | None,
        cap: int,
        sink: BinaryIO | None,
    ) -> ExecResult:
        """See `Sandbox.exec`. `request`: argv, cwd, env, user, host_network. Raises SandboxLost."""
        body = marshal.dumps(dict(request))
        outputs = Output("stdout", cap, sink), Output("stderr", cap)
        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as stack:
            control, feeding, reading = await self._hand_over(stack, len(body), stdin is not None)
            pumps = [loop.create_task(o.pump(pipe, on_chunk)) for o, pipe in zip(outputs, reading, strict=True)]
            tasks = list(pumps)
            if feeding is not None and stdin is not None:
                tasks.append(loop.create_task(pipes.feed(feeding, stdin)))
            try:
                code = await self._outcome(control, body, seconds, tasks)
                await asyncio.wait(pumps, timeout=GRACE_SECONDS)
            finally:
                held = [pipe for pump, pipe in zip(pumps, reading, strict=True) if not pump.done()]
                for task in tasks:
                    task.cancel()
                ended = await asyncio.gather(*tasks, return_exceptions=True)
            for error in ended:
                if isinstance(error, Exception):
                    raise error
            for pipe in held:
                self._drain(pipe)
        dropped = sum(output.dropped for output in outputs)
        timed_out = code is None
        return ExecResult(
            TIMED_OUT if code is None else code, bytes(outputs[0].kept), bytes(outputs[1].kept), dropped, timed_out
        )

    def close(self) -> None:
        """Let go of the output of what was left running."""
        for pipe in tuple(self._drained):
            self._let_go(pipe)

    async def _hand_over(
        self, stack: contextlib.ExitStack, size: int, with_stdin: bool
    ) -> tuple[socket.socket, io.FileIO | None, list[io.FileIO]]:
        """Give init a command's descriptors; returns ours: control, stdin, [stdout, stderr]. `stack` closes them."""
        control, theirs = socket.socketpair()
        control.setblocking(False)
        stack.enter_context(control)
        with theirs, contextlib.ExitStack() as given:
            inner = [theirs.fileno()]
            feeding = None
            if with_stdin:
                reader, feeding = pipes.make()
                inner.append(given.enter_context(reader).fileno())
                stack.enter_context(feeding)
            reading = []
            for _ in range(2):
                reader, writer = pipes.make()
                inner.append(given.enter_context(writer).fileno())
                reading.append(reader)
                stack.callback(self._close, reader)
            for end in (feeding, *reading):
                if end is not None:
                    os.set_blocking(end.fileno(), False)
            await self._channel.send(("exec", size), inner)
        return control, feeding, reading

    async def _outcome(
        self, control: socket.socket, body: bytes, seconds: float | None, tasks: Sequence[asyncio.Task[None]]
    ) -> int | None:
        """The exit code; None after the timeout. If one of `tasks` fails, so does this."""
        loop = asyncio.get_running_loop()

        async def talk() -> bytes:
            await loop.sock_sendall(control, body)
            return await loop.sock_recv(control, 64)

        with _ending(loop.create_task(talk())) as answer:
            waiting: set[asyncio.Task[Any]] = {answer, *tasks}
            deadline = None if seconds is None else loop.time() + seconds
            try:
                while not answer.done():
                    left = None if deadline is None else max(0.0, deadline - loop.time())
                    done, waiting = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                    for task in done - {answer}:
                        task.result()
                    if not done:
                        break
            except BaseException:
                await to_the_end(_kill(control, answer))
                raise
            if not answer.done():
                await to_the_end(_kill(control, answer))
                return None
            try:
                line = answer.result()
            except OSError:
                line = b""
            if not line:
                raise self._channel.lost("it died under a command")
            return int(line.partition(b"\n")[0])

    def _drain(self, pipe: io.FileIO) -> None:
        """Read on and forget: a server that was left running must not die of its next line of log."""
        self._drained.add(pipe)
        asyncio.get_running_loop().add_reader(pipe.fileno(), self._read_on, pipe)

    def _read_on(self, pipe: io.FileIO) -> None:
        with contextlib.suppress(BlockingIOError):
            if not os.read(pipe.fileno(), pipes.CHUNK):
                self._let_go(pipe)

    def _let_go(self, pipe: io.FileIO) -> None:
        asyncio.get_running_loop().remove_reader(pipe.fileno())
        self._drained.discard(pipe)
        pipe.close()

    def _close(self, pipe: io.FileIO) -> None:
        if pipe not in self._drained:
            pipe.close()


@contextlib.contextmanager
def _ending(task: asyncio.Task[bytes]) -> Iterator[asyncio.Task[bytes]]:
    try:
        yield task
    finally:
        task.cancel()


async def _kill(control: socket.socket, answer: asyncio.Task[bytes]) -> None:
    """Have a command's processes killed, and wait until they are."""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_KILL_SECONDS):
            await asyncio.get_running_loop().sock_sendall(control, b"k")
            await answer
