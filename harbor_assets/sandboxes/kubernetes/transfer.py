"""Archives into a pod and out of it as streams of any size, with bounded memory.

A transfer counts only if the far program said so. A cut one is done again from the start: it is idempotent. Each has a
thread of its own for the archive's side: in asyncio's shared pool both ends of a few transfers wait for each other for
ever.
"""

import asyncio
import contextlib
import io
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, BinaryIO, override

from harbor_assets.sandboxes.errors import TransferFailed
from harbor_assets.sandboxes.files import Ended
from harbor_assets.sandboxes.kubernetes.kube import (
    CHUNK,
    ApiError,
    ExecFailed,
    Sink,
    SinkFailed,
    SourceFailed,
    StreamBroken,
)
from harbor_assets.sandboxes.kubernetes.runner import Pod

TRIES = 4
QUEUED = 4  # chunks in flight between thread and loop
PADDING = 1 << 20  # bytes of zeros that may follow an archive's end: GNU tar writes up to 10 KiB
SILENT_SECONDS = 60  # after the program has ended without all of its output being seen: one of the task's own making
_MARK = b"\0\0"
# The server may drop the end of what a slow reader has not taken when the command ends (seen: 1 to 5 of 100 MB, with a
# status of success). So the command ends only when its stdin does, and that is when the archive has been read.
_HELD = """n=$1; shift
if [ "$n" = 0 ]; then "$@" </dev/null; else head -c "$n" | "$@"; fi; c=$?
printf '\\0\\0%s' $c >&2
cat >/dev/null; exit $c"""


class PodChannel:
    """Implements `sandboxes.files.Channel` over exec streams."""

    def __init__(self, pod: Pod) -> None:
        self._pod = pod

    async def send(self, command: Sequence[str], write: Callable[[BinaryIO], None]) -> Ended:
        """See `sandboxes.files.Channel`."""
        for attempt in range(TRIES):
            stream, errors = _Outward(), bytearray()
            work = _Thread(lambda outward=stream: _written(write, outward))
            try:
                code = await self._pod.exec(list(command), stdin=stream.chunks(work), err=_head(errors))
            except SourceFailed as failed:
                raise failed.__cause__ or failed from failed
            except BaseException as problem:  # noqa: BLE001 - `_again` raises what is not a cut stream
                await _again(self._pod, problem, attempt)
                continue
            finally:
                stream.close()
                with contextlib.suppress(Exception):
                    await asyncio.shield(work.result())
            return await self._ended(code, errors)
        raise AssertionError("the last try raises")

    async def receive[T](
        self, command: Sequence[str], read: Callable[[BinaryIO], T], *, limit: int, stdin: bytes = b""
    ) -> tuple[Ended, T]:
        """See `sandboxes.files.Channel`."""
        held = ["sh", "-c", _HELD, "sh", str(len(stdin)), *command]
        for attempt in range(TRIES):
            stream, errors = _Inward(limit), bytearray()
            work = _Thread(lambda inward=stream: _read(read, inward))
            try:
                feed = _until_read(stream, errors, stdin)
                code = await self._pod.exec(held, stdin=feed, out=stream.put, err=_head(errors))
                if code < 2 and not stream.complete.is_set():
                    raise StreamBroken("the archive has no end")  # noqa: TRY301 - as the server should have said
            except SinkFailed as failed:  # the archive, its limit or the disk, not the stream
                stream.end(broken=True)
                cause = failed.__cause__
                if isinstance(cause, TransferFailed):
                    raise cause from failed
                await work.result()
                raise TransferFailed(f"{command[0]}: {failed}") from failed
            except BaseException as problem:  # noqa: BLE001 - `_again` raises what is not a cut stream
                stream.end(broken=True)
                with contextlib.suppress(Exception):
                    await asyncio.shield(work.result())
                await _again(self._pod, problem, attempt)
                continue
            stream.end(broken=False)
            found = await work.result()
            return await self._ended(code, errors.partition(_MARK)[0]), found
        raise AssertionError("the last try raises")

    async def _ended(self, code: int, errors: bytearray) -> Ended:
        if code:
            await self._pod.ask(StreamBroken(f"the program ended with {code}"))
        return Ended(code, errors.decode(errors="replace"))


async def _until_read(stream: "_Inward", errors: bytearray, stdin: bytes) -> AsyncIterator[bytes]:
    """The input, and then nothing until the output has been read to its end: see `_HELD`."""
    if stdin:
        yield stdin
    silent = 0.0
    while not stream.complete.is_set():
        seen = stream.taken
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stream.complete.wait(), 1)
        _, ended, code = errors.partition(_MARK)
        silent = silent + 1 if ended and stream.taken == seen else 0.0
        if silent >= (SILENT_SECONDS if code in (b"0", b"1") else 1):
            return


async def _again(pod: Pod, problem: BaseException, attempt: int) -> None:
    """Returns if the transfer is to be done again; else raises the problem, or what became of the pod."""
    if not isinstance(problem, StreamBroken | ExecFailed | ApiError):
        raise problem
    if isinstance(problem, ApiError) and not (problem.passing or problem.status == 404):
        raise problem
    await pod.ask(problem)
    if attempt + 1 == TRIES:
        raise problem
    await asyncio.sleep(min(2.0**attempt * 5, 60))  # in all 35 s and the tries' own: an apiserver may be restarting


def _head(buffer: bytearray) -> Sink:
    def keep(data: bytes) -> None:
        if len(buffer) < 1 << 16:
            buffer.extend(data)

    return keep


class _Thread:
    """A function in a thread of its own, and its result on the loop."""

    def __init__(self, work: Callable[[], Any]) -> None:
        loop = asyncio.get_running_loop()
        self._future: asyncio.Future[Any] = loop.create_future()
        self._future.add_done_callback(lambda future: future.cancelled() or future.exception())  # asked for or not

        def settle(value: Any, error: BaseException | None) -> None:
            if not self._future.done():
                self._future.set_exception(error) if error else self._future.set_result(value)

        def body() -> None:
            value, error = None, None
            try:
                value = work()
            except BaseException as raised:  # noqa: BLE001 - carried over to the loop
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(settle, value, error)

        threading.Thread(target=body, daemon=True, name="sandbox-transfer").start()

    async def result(self) -> Any:
        return await asyncio.shield(self._future)


class _Closed(OSError):
    """The other end has gone."""


class _Outward(io.RawIOBase):
    """A thread writes, the loop reads."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue(QUEUED)
        self._over = threading.Event()

    @override
    def writable(self) -> bool:
        return True

    @override
    def write(self, data: Any) -> int:
        self._put(bytes(data))
        return len(data)

    def finish(self) -> None:
        self._put(None)

    def _put(self, item: bytes | None) -> None:
        if self._over.is_set():
            raise _Closed("the transfer was given up")
        asyncio.run_coroutine_threadsafe(self._queue.put(item), self._loop).result()

    @override
    def close(self) -> None:
        """Nobody reads any more: let the writer go."""
        self._over.set()
        while not self._queue.empty():
            self._queue.get_nowait()

    async def chunks(self, work: _Thread) -> AsyncIterator[bytes]:
        while (chunk := await self._queue.get()) is not None:
            yield chunk
        await work.result()


def _written(write: Callable[[BinaryIO], None], outward: _Outward) -> None:
    try:
        write(outward)  # pyright: ignore[reportArgumentType]
    finally:
        with contextlib.suppress(_Closed):
            outward.finish()


class _Inward(io.RawIOBase):
    """The loop writes, a thread reads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._room = asyncio.Semaphore(QUEUED * 8)  # frames of the server are small
        self._held = memoryview(b"")
        self._ended = self._broken = self._failed = False
        self.complete = asyncio.Event()  # the archive was read to its end, or will not be
        self.taken = 0

    async def put(self, data: bytes) -> None:
        if self._failed:
            raise _Closed("the archive could not be unpacked")
        await self._room.acquire()
        self.taken += len(data)
        if self.taken > self._limit:
            raise TransferFailed(f"more than {self._limit >> 20} MB")
        self._queue.put_nowait(data)

    def end(self, *, broken: bool) -> None:
        self._broken = self._broken or broken
        self._queue.put_nowait(None)

    def read_to_its_end(self) -> None:
        """Said by the thread."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.complete.set)

    def fail(self) -> None:
        """The reader is gone: the writer, which may be waiting for room, is to learn of it."""
        self._failed = True
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._room.release)

    @override
    def readable(self) -> bool:
        return True

    @override
    def read(self, size: int | None = -1) -> bytes:
        """What there is, at most `size` bytes: waiting for more could be waiting for ever."""
        if not self._held and not self._ended:
            item = asyncio.run_coroutine_threadsafe(self._queue.get(), self._loop).result()
            if item is None:
                self._ended = True
                if self._broken:
                    raise _Closed("the stream was cut")
            else:
                self._loop.call_soon_threadsafe(self._room.release)
                self._held = memoryview(item)
        wanted = len(self._held) if size is None or size < 0 else size
        part, self._held = self._held[:wanted], self._held[wanted:]
        return bytes(part)

    def drain(self, most: int) -> None:
        """Read what follows an archive. Raises TransferFailed after `most` bytes."""
        while chunk := self.read(CHUNK):
            most -= len(chunk)
            if most < 0:
                raise TransferFailed("the archive goes on after its end")


def _read[T](read: Callable[[BinaryIO], T], inward: _Inward) -> T:
    try:
        found = read(inward)  # pyright: ignore[reportArgumentType]
        inward.read_to_its_end()
        inward.drain(PADDING)
    except BaseException:
        inward.fail()
        inward.read_to_its_end()
        raise
    return found
