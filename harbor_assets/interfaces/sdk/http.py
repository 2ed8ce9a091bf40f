"""Calls to the REST API from plain code, with answers as bytes and refusals as our own errors."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx

from harbor_assets.domain.errors import ServiceUnavailable
from harbor_assets.interfaces.problems import from_answer


class Answer(NamedTuple):
    status: int
    content: bytes


class Http:
    """Calls over `transport`, all on one event loop that is kept from call to call."""

    def __init__(self, transport: httpx.AsyncBaseTransport, base_url: str) -> None:
        self._runner = asyncio.Runner()
        # In process there is no network: nothing to time out, no proxy or certificate of the environment to look at.
        self._client = httpx.AsyncClient(transport=transport, base_url=base_url, trust_env=False, timeout=None)  # noqa: S113

    def close(self) -> None:
        """Wait for what is still under way, then close."""
        self._runner.run(self._client.aclose())
        self._runner.close()

    def run[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Run a piece of asynchronous work to its end."""
        return self._runner.run(work)

    def call(self, method: str, path: str, **options: Any) -> Answer:
        """Ask and read the whole answer. `options` are httpx's. Raises the error the answer stands for."""
        return self.run(self._call(method, path, **options))

    async def _call(self, method: str, path: str, **options: Any) -> Answer:
        try:
            answer = await self._client.request(method, path, **options)
        except httpx.TransportError as error:
            raise ServiceUnavailable(f"The service did not answer ({type(error).__name__}); try again") from error
        if answer.status_code >= 400:
            raise from_answer(answer.status_code, answer.content)
        return Answer(answer.status_code, answer.content)

    @asynccontextmanager
    async def stream(self, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """The body of a GET in pieces, inside `run`. Raises the error the answer stands for."""
        try:
            async with self._client.stream("GET", path) as answer:
                if answer.status_code >= 400:
                    raise from_answer(answer.status_code, await answer.aread())
                yield answer.aiter_raw()
        except httpx.TransportError as error:
            raise ServiceUnavailable(f"The service broke off ({type(error).__name__}); try again") from error


def segment(text: str) -> str:
    """One segment of a path, quoted whatever it holds."""
    return quote(text, safe="")


def query(**values: object) -> Mapping[str, str]:
    """Query parameters; those that are None are left out."""
    given = {key: value for key, value in values.items() if value is not None}
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in given.items()}
