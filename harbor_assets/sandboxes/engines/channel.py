"""Files into a container and out of it: a program run inside as root, an archive on one of its ends."""

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, BinaryIO, cast

from harbor_assets.sandboxes.engines.cli import ended
from harbor_assets.sandboxes.engines.container import Container
from harbor_assets.sandboxes.errors import SandboxLost, TransferFailed
from harbor_assets.sandboxes.files import Ended

TRANSFER_SECONDS = 600.0  # Harbor's own patience with the packing of a folder
_CHUNK = 1 << 20
_SAID_MAX = 1 << 16


class EngineChannel:
    """Implements `files.Channel` with the engine's `exec`. `spool`: a folder for archives on their way."""

    def __init__(self, container: Container, spool: Path) -> None:
        self._container, self._spool = container, spool

    async def send(self, command: Sequence[str], write: Callable[[BinaryIO], None]) -> Ended:
        """See `files.Channel`."""
        with tempfile.TemporaryFile(dir=self._spool) as archive:
            await asyncio.to_thread(write, cast("BinaryIO", archive))
            archive.seek(0)
            return await self._run(command, archive, None, None)

    async def receive[T](
        self, command: Sequence[str], read: Callable[[BinaryIO], T], *, limit: int, stdin: bytes = b""
    ) -> tuple[Ended, T]:
        """See `files.Channel`."""
        with tempfile.TemporaryFile(dir=self._spool) as words, tempfile.TemporaryFile(dir=self._spool) as archive:
            words.write(stdin)
            words.seek(0)
            ended = await self._run(command, words, archive, limit)
            archive.seek(0)
            return ended, await asyncio.to_thread(read, cast("BinaryIO", archive))

    async def _run(self, command: Sequence[str], stdin: IO[bytes], out: IO[bytes] | None, limit: int | None) -> Ended:
        box = self._container
        process = await box.engine.open(["exec", "-i", "-u", "0", box.name, *command], stdin=stdin)
        assert process.stdout
        assert process.stderr
        said = bytearray()
        try:
            async with asyncio.timeout(TRANSFER_SECONDS), asyncio.TaskGroup() as group:
                group.create_task(_store(process.stdout, out, limit))
                group.create_task(_head(process.stderr, said))
                group.create_task(process.wait())
        except TimeoutError as error:
            await box.ask_after("a transfer that did not end")
            raise TransferFailed(f"it did not end within {TRANSFER_SECONDS:g} s") from error
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            await ended(process)
        words = said.decode(errors="replace")
        code = process.returncode or 0
        if code:  # the program's own end, or that of the container or the engine?
            await box.ask_after(words)
            if code in (125, 126, 127) and not words.strip():
                raise SandboxLost("programs cannot be run in the container any more")
        return Ended(code, words)


async def _store(stream: asyncio.StreamReader, out: IO[bytes] | None, limit: int | None) -> None:
    size = 0
    while data := await stream.read(_CHUNK):
        size += len(data)
        if limit is not None and size > limit:
            raise TransferFailed(f"more than {limit >> 20} MB")
        if out is not None:
            out.write(data)


async def _head(stream: asyncio.StreamReader, said: bytearray) -> None:
    while data := await stream.read(_CHUNK):
        said += data[: max(0, _SAID_MAX - len(said))]
