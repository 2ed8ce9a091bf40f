"""The way for files into a sandbox and out of it: archives on standard input or output of a program inside."""

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

from harbor_assets.sandboxes.errors import TransferFailed
from harbor_assets.sandboxes.files import Ended
from harbor_assets.sandboxes.process.sandbox import Sandbox

TRANSFER_SECONDS = 600.0  # Harbor's own patience with the packing of a folder
SPOOL = 8 << 20  # bytes of a transfer kept in memory, then in an unnamed file
_SAID = 1 << 16  # bytes kept of what the program says on stderr


class SandboxChannel:
    """Implements `sandboxes.files.Channel`. An archive is whole before the other side sees it."""

    def __init__(self, box: Sandbox) -> None:
        self._box = box

    async def send(self, command: Sequence[str], write: Callable[[BinaryIO], None]) -> Ended:
        """See `sandboxes.files.Channel`."""
        with self._spool() as archive:
            await asyncio.to_thread(write, archive)
            archive.seek(0)
            done = await self._box.exec(command, stdin=archive, timeout=TRANSFER_SECONDS, cap=_SAID)
        return Ended(done.code, done.stderr.decode(errors="replace"))

    async def receive[T](
        self, command: Sequence[str], read: Callable[[BinaryIO], T], *, limit: int, stdin: bytes = b""
    ) -> tuple[Ended, T]:
        """See `sandboxes.files.Channel`."""
        size = 0

        def bound(chunk: bytes, stream: str) -> None:
            nonlocal size
            size += len(chunk) if stream == "stdout" else 0
            if size > limit:
                raise TransferFailed(f"{command[0]}: more than {limit >> 20} MB")

        with self._spool() as archive:
            done = await self._box.exec(
                command, stdin=stdin or None, timeout=TRANSFER_SECONDS, on_chunk=bound, cap=limit, sink=archive
            )
            archive.seek(0)
            found = await asyncio.to_thread(read, archive)
        return Ended(done.code, done.stderr.decode(errors="replace")), found

    def _spool(self) -> Any:
        """An unnamed file on the disk where sandboxes live: /tmp may be small, or memory."""
        return tempfile.SpooledTemporaryFile(max_size=SPOOL, dir=str(self._box.folder))
