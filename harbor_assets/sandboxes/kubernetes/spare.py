"""An exec stream that is open before a command needs it.

Opening one takes the apiserver, the kubelet and the runtime a tenth of a second and more; beside a command that runs,
nobody waits for it. A spare becomes the command (`inside/spare.sh`), so that all an exec stream says of a command, and
all that its end does not say, holds as for one that was opened for it.
"""

import asyncio
import os
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any

from harbor_assets.sandboxes.kubernetes.kube import CHUNK, Sink
from harbor_assets.sandboxes.kubernetes.manifests import FOLDER

Stdin = AsyncIterator[bytes] | bytes | None


class Spare:
    """One stream, for one command. `opener` is `Kube.exec` for a pod; it is called at once."""

    def __init__(self, opener: Callable[..., Coroutine[Any, Any, int]]) -> None:
        self._job: asyncio.Future[tuple[Sequence[str], Stdin]] = asyncio.get_running_loop().create_future()
        self._sinks: dict[str, Sink | None] = {}
        self._task = asyncio.create_task(
            opener(["sh", f"{FOLDER}/spare"], stdin=self._stdin(), out=self._sink("out"), err=self._sink("err"))
        )
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())  # asked for or not

    @property
    def over(self) -> bool:
        """Whether it broke, or what waits in the pod was ended: of no use any more."""
        return self._task.done()

    def use(self, command: Sequence[str], stdin: Stdin, out: Sink | None, err: Sink | None) -> asyncio.Task[int]:
        """Run a command; the task ends as `Kube.exec` does. Cancelling it closes the stream."""
        self._sinks = {"out": out, "err": err}
        self._job.set_result((command, stdin))
        return self._task

    async def close(self) -> None:
        """Give it up unused."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _sink(self, name: str) -> Sink:
        def take(data: bytes) -> Awaitable[None] | None:
            sink = self._sinks.get(name)
            return sink(data) if sink else None

        return take

    async def _stdin(self) -> AsyncIterator[bytes]:
        command, stdin = await self._job
        words = os.fsencode(shlex.join(command))
        yield b"%d\n%s\n" % (words.count(b"\n") + 1, words)
        if isinstance(stdin, bytes):
            for at in range(0, len(stdin), CHUNK):
                yield stdin[at : at + CHUNK]
        elif stdin is not None:
            async for chunk in stdin:
                yield chunk
