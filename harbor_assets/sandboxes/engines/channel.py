"""Files into a container and out of it: a program run inside as root, an archive on one of its ends."""

import asyncio
import shlex
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, BinaryIO, cast

from harbor_assets.sandboxes.engines import commands
from harbor_assets.sandboxes.engines.container import Container
from harbor_assets.sandboxes.errors import TransferFailed
from harbor_assets.sandboxes.files import Ended

TRANSFER_SECONDS = 600.0  # Harbor's own patience with the packing of a folder
_SAID_MAX = 1 << 16


class EngineChannel:
    """Implements `files.Channel` with commands of root. `spool`: a folder for archives on their way."""

    def __init__(self, container: Container, spool: Path) -> None:
        self._container, self._spool = container, spool

    async def send(self, command: Sequence[str], write: Callable[[BinaryIO], None]) -> Ended:
        """See `files.Channel`."""
        with tempfile.TemporaryFile(dir=self._spool) as archive:
            await asyncio.to_thread(write, cast("BinaryIO", archive))
            archive.seek(0)
            return await self._run(command, archive, None)

    async def receive[T](
        self, command: Sequence[str], read: Callable[[BinaryIO], T], *, limit: int, stdin: bytes = b""
    ) -> tuple[Ended, T]:
        """See `files.Channel`."""
        with tempfile.TemporaryFile(dir=self._spool) as words, tempfile.TemporaryFile(dir=self._spool) as archive:
            words.write(stdin)
            words.seek(0)
            size = 0

            def store(data: bytes) -> None:
                nonlocal size
                size += len(data)
                if size > limit:
                    raise TransferFailed(f"more than {limit >> 20} MB")
                archive.write(data)

            ended = await self._run(command, words, store)
            archive.seek(0)
            return ended, await asyncio.to_thread(read, cast("BinaryIO", archive))

    async def _run(self, command: Sequence[str], stdin: IO[bytes], sink: Callable[[bytes], None] | None) -> Ended:
        done, _ = await commands.run(
            self._container,
            f"exec {shlex.join(command)}\n".encode(),
            user="0",
            timeout=TRANSFER_SECONDS,
            cap=_SAID_MAX,
            stdin=stdin,
            sink=sink,
        )
        if done.code is None:
            raise TransferFailed(f"it did not end within {TRANSFER_SECONDS:g} s")
        return Ended(done.code, done.err.decode(errors="replace"))
