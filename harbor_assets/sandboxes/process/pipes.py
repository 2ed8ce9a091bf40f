"""Pipes of a command, without threads: a reader that waits for ever must not hold one."""

import asyncio
import contextlib
import fcntl
import io
import os
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, BinaryIO

CHUNK = 1 << 18  # bytes, four times what a pipe holds otherwise

type OnChunk = Callable[[bytes, str], Awaitable[None] | None]


@dataclass(slots=True)
class Output:
    """One output stream of a command: what is kept of it (`cap` bytes, in memory or in `sink`), and how much is not."""

    name: str
    cap: int
    sink: BinaryIO | None = None
    kept: bytearray = field(default_factory=bytearray)
    size: int = 0
    dropped: int = 0

    async def pump(self, pipe: io.FileIO, on_chunk: OnChunk | None) -> None:
        """Read to the end."""
        while chunk := await read(pipe):
            part = chunk[: max(0, self.cap - self.size)]
            if self.sink is None:
                self.kept += part
            else:
                self.sink.write(part)
            self.size += len(part)
            self.dropped += len(chunk) - len(part)
            if on_chunk is not None and (waiting := on_chunk(chunk, self.name)) is not None:
                await waiting


def make() -> tuple[io.FileIO, io.FileIO]:
    """(reading end, writing end), both closed on exec."""
    ends = os.pipe()
    with contextlib.suppress(OSError):  # fewer turns of the event loop; a user's pages for pipes are limited
        fcntl.fcntl(ends[0], fcntl.F_SETPIPE_SZ, CHUNK)
    return io.FileIO(ends[0], "rb"), io.FileIO(ends[1], "wb")


async def feed(pipe: io.FileIO, source: bytes | BinaryIO) -> None:
    """Write all of `source` and close the pipe. A command that reads no more is no error."""
    with pipe, contextlib.suppress(BrokenPipeError):
        if isinstance(source, bytes):
            await write(pipe, source)
        else:
            while chunk := source.read(CHUNK):
                await write(pipe, chunk)


async def write(pipe: io.FileIO, data: bytes) -> None:
    """Write all of it to a non-blocking pipe."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(pipe.fileno(), rest) :]
        except BlockingIOError:
            await writable(pipe.fileno())


async def read(pipe: io.FileIO) -> bytes:
    """What there is in a non-blocking pipe, at least one byte; nothing at its end."""
    while True:
        try:
            return os.read(pipe.fileno(), CHUNK)
        except BlockingIOError:
            await readable(pipe.fileno())


async def readable(fd: int) -> None:
    """Wait until there is something to read, or the end."""
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()
    loop.add_reader(fd, _wake, waiter)
    try:
        await waiter
    finally:
        loop.remove_reader(fd)


async def writable(fd: int) -> None:
    """Wait until there is room to write, or nobody reads any more."""
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()
    loop.add_writer(fd, _wake, waiter)
    try:
        await waiter
    finally:
        loop.remove_writer(fd)


async def to_the_end[T](work: Coroutine[Any, Any, T]) -> T:
    """Finish `work` although this task is being cancelled; the cancel is raised afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as e:
            cancelled = e
    if cancelled is not None:
        raise cancelled
    return task.result()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
