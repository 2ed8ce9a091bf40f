"""Files into a sandbox and out of it as tar streams of any size, with bounded memory.

A transfer counts only if the far `tar` said so. A cut one is done again from the start: it is idempotent. Each has a
thread of its own for the tar side: in asyncio's shared pool both ends of a few transfers wait for each other for ever.
"""

import asyncio
import contextlib
import io
import tarfile
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import IO, Any, BinaryIO, override

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
from harbor_assets.sandboxes.process.transfer import Unpacked, unpack

TRIES = 4
QUEUED = 4  # chunks in flight between thread and loop
SILENT_SECONDS = 60  # after tar has ended without the end of its archive being seen: a tar of the task's own making
_MARK = b"\0\0"
# The server may drop the end of what a slow reader has not taken when the command ends (seen: 1 to 5 of 100 MB, with a
# status of success). So the command ends only when its stdin does, and that is when the archive has been read.
_PACK = """n=$1; shift; l=/.sandbox/names.$$
[ "$n" = 0 ] || { head -c "$n" >$l; set -- "$@" --null -T $l; }
tar -cf - "$@"; c=$?
printf '\\0\\0%s' $c >&2
cat >/dev/null; rm -f $l; exit $c"""
_INTO = 'mkdir -p "$1" && exec tar -xf - -o -C "$1"'
_AS = '[ -d "$2" ] && exit 91; mkdir -p "$1" && exec tar -xf - -o -C "$1"'
NOT_A_FILE = 91


def folder(source: Path) -> Callable[[BinaryIO], None]:
    """Packs what is in a folder, links as links. The folder's own mode stays out: the target keeps its own."""

    def pack(out: BinaryIO) -> None:
        with tarfile.open(fileobj=out, mode="w|", bufsize=CHUNK) as archive:
            for child in sorted(source.iterdir()):
                archive.add(child, arcname=child.name)

    return pack


def file(source: Path, name: str) -> Callable[[BinaryIO], None]:
    """Packs one file, which may be a link to it, under another name."""

    def pack(out: BinaryIO) -> None:
        with tarfile.open(fileobj=out, mode="w|", bufsize=CHUNK, dereference=True) as archive:
            archive.add(source, arcname=name, recursive=False)

    return pack


async def upload_folder(pod: Pod, source: Path, target: str) -> None:
    """The content of a folder into a folder, which is made. Raises RuntimeError with tar's words, OSError."""
    await _upload(pod, folder(source), _INTO, target)


async def upload_file(pod: Pod, source: Path, target: str) -> None:
    """One file to a path; into it, if a folder is there. Raises RuntimeError with tar's words, OSError."""
    parent, _, name = target.rstrip("/").rpartition("/")
    if await _upload(pod, file(source, name), _AS, parent or "/", target) == NOT_A_FILE:
        await _upload(pod, file(source, source.name), _INTO, target)


async def download(
    pod: Pod,
    what: list[str],
    target: Path,
    *,
    limit: int,
    names: bytes | None = None,
    accept: Callable[[int, str], bool],
) -> Unpacked:
    """What `tar -cf - WHAT` packs in the pod, into a folder of ours; only what is safe there (see `unpack`).

    `names`: the files to pack, each ended by a zero byte. `limit` bounds the bytes of all files. `accept(code, stderr)`
    says which ends of tar are fine (1: a file changed while it was read). Raises RuntimeError with tar's words,
    Unsafe, TarError, OSError.
    """
    command = ["sh", "-c", _PACK, "sh", str(len(names or b"")), *what]
    for attempt in range(TRIES):
        stream, errors = _Inward(), bytearray()
        work = _Thread(lambda inward=stream: _unpacked(inward, target, limit))
        try:
            code = await pod.exec(command, stdin=_until_read(stream, errors, names), out=stream.put, err=_head(errors))
            said = errors.partition(_MARK)[0].decode(errors="replace")
            if code < 2 and not stream.complete.is_set():
                raise StreamBroken("the archive has no end")  # noqa: TRY301 - as the server should have said
        except SinkFailed as failed:  # the archive or the disk, not the stream
            stream.end(broken=True)
            await work.result()
            raise RuntimeError(f"download of {' '.join(what)}: {failed}") from failed
        except BaseException as problem:  # noqa: BLE001 - `_again` raises what is not a cut stream
            stream.end(broken=True)
            with contextlib.suppress(Exception):
                await asyncio.shield(work.result())
            await _again(pod, problem, attempt)
            continue
        stream.end(broken=False)
        try:
            unpacked = await work.result()
        except tarfile.TarError:
            if accept(code, said):
                raise
            unpacked = Unpacked()
        if accept(code, said):
            return unpacked
        await pod.ask(StreamBroken(f"tar ended with {code}"))
        raise RuntimeError(f"download of {' '.join(what)}: {said[-500:].strip() or f'exit code {code}'}")
    raise AssertionError("the last try raises")


async def _until_read(stream: "_Inward", errors: bytearray, names: bytes | None) -> AsyncIterator[bytes]:
    """The names, and then nothing until the archive has been read to its end: see `_PACK`."""
    if names:
        yield names
    silent = 0.0
    while not stream.complete.is_set():
        seen = stream.taken
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stream.complete.wait(), 1)
        _, ended, code = errors.partition(_MARK)
        silent = silent + 1 if ended and stream.taken == seen else 0.0
        if silent >= (SILENT_SECONDS if code in (b"0", b"1") else 1):
            return


async def _upload(pod: Pod, pack: Callable[[BinaryIO], None], script: str, *args: str) -> int:
    for attempt in range(TRIES):
        stream, errors = _Outward(), bytearray()
        work = _Thread(lambda outward=stream: _packed(pack, outward))
        try:
            code = await pod.exec(["sh", "-c", script, "sh", *args], stdin=stream.chunks(work), err=_head(errors))
        except SourceFailed as failed:
            raise failed.__cause__ or failed from failed
        except BaseException as problem:  # noqa: BLE001 - `_again` raises what is not a cut stream
            await _again(pod, problem, attempt)
            continue
        finally:
            stream.close()
            with contextlib.suppress(Exception):
                await asyncio.shield(work.result())
        if code in (0, NOT_A_FILE):
            return code
        await pod.ask(StreamBroken(f"tar ended with {code}"))
        raise RuntimeError(
            f"upload to {args[-1]}: {errors.decode(errors='replace')[-500:].strip() or f'exit code {code}'}"
        )
    raise AssertionError("the last try raises")


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


def _packed(pack: Callable[[BinaryIO], None], outward: _Outward) -> None:
    try:
        pack(outward)  # pyright: ignore[reportArgumentType]
    finally:
        with contextlib.suppress(_Closed):
            outward.finish()


class _Inward(io.RawIOBase):
    """The loop writes, a thread reads."""

    def __init__(self) -> None:
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


def _unpacked(inward: _Inward, target: Path, limit: int) -> Unpacked:
    try:
        reader: IO[bytes] = inward  # pyright: ignore[reportAssignmentType]
        found = unpack(reader, target, limit=limit)  # pyright: ignore[reportArgumentType]
        inward.read_to_its_end()
        while inward.read(CHUNK):  # what tar pads an archive with
            pass
    except BaseException:
        inward.fail()
        inward.read_to_its_end()
        raise
    return found
