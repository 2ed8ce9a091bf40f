"""httpx over an ASGI application in this process, body by body: httpx's own collects a whole answer in memory first."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
from starlette.types import ASGIApp, Message

_QUEUED = 2  # pieces of an answer that wait to be read: the application may be one ahead, no more


class InProcessTransport(httpx.AsyncBaseTransport):
    """Calls `app` for each request. What the application raises is raised to the caller, so that nothing is hidden."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        call = _Call(self._app, _scope(request), await request.aread())
        try:
            start = await call.next()
            assert start is not None, "the application returned without an answer"
        except BaseException:
            await call.aclose()
            raise
        return httpx.Response(start["status"], headers=start.get("headers", []), stream=call)


class _Call(httpx.AsyncByteStream):
    """One call of the application, and the stream of its answer's body."""

    def __init__(self, app: ASGIApp, scope: dict[str, Any], body: bytes) -> None:
        self._messages: asyncio.Queue[Message | Exception | None] = asyncio.Queue(_QUEUED)
        self._request: Message | None = {"type": "http.request", "body": body, "more_body": False}
        self._gone = asyncio.Event()
        self._task = asyncio.create_task(self._run(app, scope))

    async def _run(self, app: ASGIApp, scope: dict[str, Any]) -> None:
        end: Exception | None = None
        try:
            await app(scope, self._receive, self._messages.put)
        except Exception as error:  # noqa: BLE001 carried to the caller, who raises it
            end = error
        await self._messages.put(end)

    async def _receive(self) -> Message:
        message, self._request = self._request, None
        if message is None:
            await self._gone.wait()
            return {"type": "http.disconnect"}
        return message

    async def next(self) -> Message | None:
        """The next message of the application, None at its end. Raises what it raised."""
        message = await self._messages.get()
        if isinstance(message, Exception):
            raise message
        return message

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (message := await self.next()) is not None:
            if body := message.get("body"):
                yield body

    async def aclose(self) -> None:
        self._gone.set()
        self._task.cancel()
        await asyncio.wait([self._task])


def _scope(request: httpx.Request) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": request.method,
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "scheme": request.url.scheme,
        "path": request.url.path,
        "raw_path": request.url.raw_path.split(b"?")[0],
        "query_string": request.url.query,
        "server": (request.url.host, request.url.port),
        "client": ("127.0.0.1", 0),
        "root_path": "",
    }
