"""The size a request's body may have and the time it may take, held to while it arrives, whatever its headers say."""

import asyncio
from typing import Final

from fastapi import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harbor_assets.interfaces.problems import BODY_TOO_LARGE, BODY_TOO_SLOW

# A taskset of 50,000 pinned members with names of 200 characters, or a task with every text at its own limit, fits.
BODY_MAX: Final = 16 * 1024 * 1024
BODY_SECONDS: Final = 60.0  # for all of it: 16 MiB at 2 Mbit/s
SILENCE_SECONDS: Final = 60.0  # between two pieces of a file, which may be large and come over a slow line

_FILES: Final = "/apis/files/"  # bodies that are streamed, with a limit of their own


class TooLarge(HTTPException):
    """413: the body is above what this service reads."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            BODY_TOO_LARGE, f"The body is above {limit} bytes, the most this service reads; send a smaller request"
        )


class TooSlow(HTTPException):
    """408: the body does not come on; whoever sends it holds a connection and, for a file, space for nothing."""

    def __init__(self, seconds: float, what: str) -> None:
        super().__init__(BODY_TOO_SLOW, f"{what} within {seconds:g} s; send the request again", {"Connection": "close"})


class BodyLimit:
    """ASGI middleware: 413 for a body above `limit` bytes, 408 for one that takes longer than `seconds`.

    The size of files is left to their own route; these may take their time, but not fall silent.
    """

    def __init__(
        self,
        app: ASGIApp,
        limit: int = BODY_MAX,
        seconds: float = BODY_SECONDS,
        silence: float = SILENCE_SECONDS,
    ) -> None:
        self._app, self._limit, self._seconds, self._silence = app, limit, seconds, silence

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "PUT" and scope["path"].startswith(_FILES):
            await self._app(scope, self._lively(receive), send)
            return
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self._limit:
            await JSONResponse({"detail": TooLarge(self._limit).detail}, BODY_TOO_LARGE)(scope, receive, send)
            return
        await self._app(scope, self._counted(receive), send)

    def _counted(self, receive: Receive) -> Receive:
        seen, whole = 0, False
        until: float | None = None

        async def counted() -> Message:
            nonlocal seen, whole, until
            if whole:  # what comes now is the caller's going away, which an answer may wait for
                return await receive()
            until = until or asyncio.get_running_loop().time() + self._seconds
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                raise TooSlow(self._seconds, "The body did not arrive") from None
            seen += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if seen > self._limit:
                raise TooLarge(self._limit)  # the framework passes this kind on
            return message

        return counted

    def _lively(self, receive: Receive) -> Receive:
        whole = False

        async def lively() -> Message:
            nonlocal whole
            if whole:
                return await receive()
            try:
                async with asyncio.timeout(self._silence):
                    message = await receive()
            except TimeoutError:
                raise TooSlow(self._silence, "No more of the file arrived") from None
            whole = not message.get("more_body", False)
            return message

        return lively
