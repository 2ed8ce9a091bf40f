"""The worker's line to keeper and init: messages with descriptors, in order, and what the two say on standard error."""

import asyncio
import marshal
import os
import socket
from collections.abc import Sequence
from typing import Any

from harbor_assets.sandboxes.errors import SandboxLost
from harbor_assets.sandboxes.process import pipes
from harbor_assets.sandboxes.process.inside.init import receive
from harbor_assets.sandboxes.process.pipes import to_the_end

_LOG_SHOWN = 2000  # bytes of the log that a message quotes


class Channel:
    """A socket pair and a log in memory. `theirs` goes to the keeper; who starts it closes it here."""

    def __init__(self) -> None:
        self._ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.setblocking(False)
        self._asking = asyncio.Lock()
        self.log: int = os.memfd_create("sandbox-log")
        self._closed = False

    def close(self) -> None:
        """Init takes it as the order to end. Idempotent."""
        if not self._closed:
            self._closed = True
            self._ours.close()
            self.theirs.close()

    def close_log(self) -> None:
        """When nothing is to be read from it any more. Idempotent."""
        if self.log != -1:
            os.close(self.log)
            self.log = -1

    async def send(self, message: tuple[Any, ...], fds: Sequence[int] = ()) -> None:
        """Raises SandboxLost."""
        data = marshal.dumps(message)
        while True:
            if self._closed:
                raise SandboxLost("the sandbox is not running")
            try:
                socket.send_fds(self._ours, [data], list(fds))
            except BlockingIOError:
                await pipes.writable(self._ours.fileno())
            except OSError as e:
                raise self.lost(e.strerror) from e
            else:
                return

    async def receive(self) -> tuple[tuple[Any, ...], list[int]]:
        """A message of keeper or init and its descriptors; an empty one when they are gone."""
        await pipes.readable(self._ours.fileno())
        try:
            return receive(self._ours)
        except OSError:
            return (), []

    async def ask(self, message: tuple[Any, ...], fds: Sequence[int] = ()) -> Any:
        """Send a request to init and wait for its answer, also if cancelled: the next one must not get it.

        Raises SandboxLost.
        """
        async with self._asking:
            return await to_the_end(self._exchange(message, fds))

    async def _exchange(self, message: tuple[Any, ...], fds: Sequence[int]) -> Any:
        await self.send(message, fds)
        match await self.receive():
            case ("done", value), _:
                return value
            case _:
                raise self.lost(None)

    def lost(self, why: str | None) -> SandboxLost:
        """An error that quotes the log."""
        return SandboxLost(f"the sandbox is gone{f' ({why})' if why else ''}. {self.logged()}".rstrip())

    def logged(self) -> str:
        """The end of what keeper and init said."""
        if self.log == -1:
            return ""
        size = os.fstat(self.log).st_size
        return os.pread(self.log, _LOG_SHOWN, max(0, size - _LOG_SHOWN)).decode(errors="replace").strip()
