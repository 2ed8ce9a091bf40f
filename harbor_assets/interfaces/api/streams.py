"""Files as answers: small ones whole, others in pieces, none that a browser would run under this service's origin."""

from contextlib import ExitStack
from functools import partial
from itertools import chain
from typing import BinaryIO, Final

from fastapi import Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

CHUNK: Final = 1024 * 1024  # bytes read at a time; a file below it is answered whole

# Only what this project writes itself is named for what it is. Trial folders and archives hold the work of others: a
# browser must neither show nor run it.
OWN: Final = {"X-Content-Type-Options": "nosniff"}
UNTRUSTED: Final = {**OWN, "Content-Security-Policy": "sandbox; default-src 'none'"}


class _Streamed(StreamingResponse):
    """A file in pieces; it is closed however the answer ends, also if nobody reads it."""

    def __init__(self, first: bytes, file: BinaryIO, opened: ExitStack, *, media_type: str, headers: dict[str, str]):
        super().__init__(chain([first], iter(partial(file.read, CHUNK), b"")), media_type=media_type, headers=headers)
        self._opened = opened

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._opened:
            await super().__call__(scope, receive, send)


def streamed(file: BinaryIO, opened: ExitStack, *, media_type: str, headers: dict[str, str]) -> Response:
    """The rest of `file`. Where that is too large to be answered whole, `opened` stays open with the answer."""
    first = file.read(CHUNK)
    if len(first) < CHUNK:
        return Response(first, media_type=media_type, headers=headers)
    return _Streamed(first, file, opened.pop_all(), media_type=media_type, headers=headers)
