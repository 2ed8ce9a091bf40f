"""The size a request's body may have, enforced while it arrives, whatever its headers claim."""

from typing import Final

from fastapi import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harbor_assets.interfaces.problems import BODY_TOO_LARGE

# A taskset of 50,000 pinned members with names of 200 characters, or a task with every text at its own limit, fits.
BODY_MAX: Final = 16 * 1024 * 1024


_FILES: Final = "/apis/files/"  # bodies that are streamed, with a limit of their own


class TooLarge(HTTPException):
    """413: the body is above what this service reads."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            BODY_TOO_LARGE, f"The body is above {limit} bytes, the most this service reads; send a smaller request"
        )


class BodyLimit:
    """ASGI middleware: 413 for a body above `limit` bytes. Files are left to their own route."""

    def __init__(self, app: ASGIApp, limit: int = BODY_MAX) -> None:
        self._app, self._limit = app, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or (scope["method"] == "PUT" and scope["path"].startswith(_FILES)):
            await self._app(scope, receive, send)
            return
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self._limit:
            await JSONResponse({"detail": TooLarge(self._limit).detail}, BODY_TOO_LARGE)(scope, receive, send)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._limit:
                raise TooLarge(self._limit)  # the framework passes this one kind on
            return message

        await self._app(scope, counted, send)
