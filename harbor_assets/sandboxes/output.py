"""What a command in a sandbox gives: its exit code and its output, bounded."""

import codecs
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

CAP = 64 << 20  # bytes kept of each stream of one command; Harbor holds them in memory
TIMED_OUT = 124  # as timeout(1)

type Stream = Literal["stdout", "stderr"]
type OnChunk = Callable[[bytes, str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Output:
    """A command's end. `code` is None if its time was up; `dropped` bytes were beyond CAP; `kills`: processes of the
    sandbox that the memory limit has killed meanwhile."""

    code: int | None
    out: bytes
    err: bytes
    dropped: int = 0
    kills: int = 0


def decoding(callback: Callable[[str, Stream], Awaitable[None]]) -> OnChunk:
    """For output as it comes: bytes to text, chunk by chunk, since a character may be cut in two."""
    decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")}

    async def call(chunk: bytes, stream: str) -> None:
        if text := decoders[stream].decode(chunk):
            await callback(text, stream)  # pyright: ignore[reportArgumentType]

    return call
