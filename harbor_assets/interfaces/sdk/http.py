"""Calls to the REST API, with answers as bytes and refusals as our own errors. Calls that may be repeated are."""

import random
from asyncio import sleep
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, Self
from urllib.parse import quote

import httpx

from harbor_assets.domain.errors import Refused, ServiceUnavailable
from harbor_assets.interfaces.problems import from_answer

# A service that restarts is back within a few seconds; what takes longer is told, and `--watch` goes on asking.
RETRY_PAUSES = (0.2, 0.5, 1.0, 2.0)  # seconds between the five attempts of a call that may be repeated
RETRY_AFTER_MAX = 30.0  # seconds a service may ask us to wait; whoever is to wait for longer is told instead
JITTER = 0.25  # of a pause, so that clients which were sent away together do not come back together
TOO_MANY = 429
UNAVAILABLE = frozenset({502, 503, 504})  # what a service, or a proxy before it, answers while there is none
REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE"})  # a PUT of ours says what is to be there, so twice is once
IDEMPOTENCY_KEY = "Idempotency-Key"  # a POST with it is one request however often it is sent
NOT_FOUND = 404
CONNECT_SECONDS = 10.0
# A merge of a large run or a publication of thousands of tasks is one answer; silence for longer is a lost connection.
READ_SECONDS = 120.0
# httpcore closes connections over its limit of idle ones, also one that a request of another task was just given
# (https://github.com/encode/httpcore/blob/1.0.9/httpcore/_async/connection_pool.py): the request is lost with "bad file
# descriptor". Without that limit none is closed; 100 connections is httpx's own limit of all of them.
LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=None)

type Parameters = Mapping[str, str] | Sequence[tuple[str, str]]


class Answer(NamedTuple):
    status: int
    content: bytes


class Bearer(httpx.Auth):
    """Sends a token with each request. It shows itself in no text."""

    def __init__(self, token: str) -> None:
        self._token = token

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """See httpx."""
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request


class Http:
    """Calls over `transport`.

    With `where`, the URL of a service that may be away, calls that may be repeated are, and errors say where it was.
    """

    def __init__(
        self, transport: httpx.AsyncBaseTransport | None, base_url: str, *, where: str | None = None, **client: Any
    ) -> None:
        self._where = where
        self._client = httpx.AsyncClient(transport=transport, base_url=base_url, **client)

    @classmethod
    def in_process(cls, transport: httpx.AsyncBaseTransport) -> Self:
        """No network: nothing to time out, no proxy or certificate of the environment to look at."""
        return cls(transport, "http://in-process", trust_env=False, timeout=None)

    @classmethod
    def remote(cls, base_url: str, token: str | None = None) -> Self:
        """A service elsewhere. Proxies and certificates are the environment's (`HTTPS_PROXY`, `SSL_CERT_FILE`).

        No redirect is followed, so that a token goes to this address and no other.
        """
        url = service_url(base_url)
        timeout = httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
        auth = Bearer(token) if token else None
        return cls(None, url, where=url, timeout=timeout, limits=LIMITS, follow_redirects=False, auth=auth)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def call(
        self, method: str, path: str, *, pieces: Callable[[], AsyncIterator[bytes]] | None = None, **options: Any
    ) -> Answer:
        """Ask and read the whole answer. `options` are httpx's; `pieces` makes a body that is sent as it is read,
        afresh for each attempt. Raises the error the answer stands for."""
        repeatable = method in REPEATABLE or IDEMPOTENCY_KEY in options.get("headers", {})
        pauses = iter(RETRY_PAUSES if self._where else ())
        lost = False  # an attempt whose effect is not known
        while True:
            pause = next(pauses, None)
            try:
                body: dict[str, Any] = {"content": pieces()} if pieces else {}
                answer = await self._client.request(method, path, **options, **body)
            except httpx.TransportError as error:
                if pause is None or not repeatable:
                    raise self._lost(error) from error
                lost = True
            else:
                wait = retry_after(answer.headers)
                again = answer.status_code == TOO_MANY or (repeatable and answer.status_code in UNAVAILABLE)
                if pause is None or not again or (wait or 0) > RETRY_AFTER_MAX:
                    if lost and method == "DELETE" and answer.status_code == NOT_FOUND:
                        return Answer(204, b"")  # the attempt whose answer was lost had deleted it
                    return self._answer(answer)
                lost = lost or answer.status_code != TOO_MANY
                pause = max(pause, wait or 0)
            await sleep(pause * random.uniform(1, 1 + JITTER))  # noqa: S311 no secret hangs on it

    def _answer(self, answer: httpx.Response) -> Answer:
        if answer.status_code >= 400:
            raise from_answer(answer.status_code, answer.content, retry_after=retry_after(answer.headers))
        if self._where and not answer.is_success:
            raise Refused(
                f"{self._where} answered {answer.status_code}, which no harbor-assets service does; is the URL right?"
            )
        return Answer(answer.status_code, answer.content)

    @asynccontextmanager
    async def stream(self, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """The body of a GET in pieces, asked for once. Raises the error the answer stands for."""
        try:
            async with self._client.stream("GET", path) as answer:
                if answer.status_code >= 400:
                    wait = retry_after(answer.headers)
                    raise from_answer(answer.status_code, await answer.aread(), retry_after=wait)
                yield answer.aiter_raw()
        except httpx.TransportError as error:
            raise self._lost(error) from error

    async def repeated[T](self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What `work` gives; it is done again, a few times, while the service is away. It must bear that."""
        for pause in RETRY_PAUSES if self._where else ():
            try:
                return await work()
            except ServiceUnavailable:
                await sleep(pause)
        return await work()

    def _lost(self, error: httpx.TransportError) -> ServiceUnavailable:
        what = f"{type(error).__name__}{f': {error}' if str(error) else ''}"
        if self._where is None:
            return ServiceUnavailable(f"The service did not answer ({what}); try again")
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return ServiceUnavailable(
                f"No service answers at {self._where} ({what}). See that the URL is right, the service runs and this "
                f"machine reaches it: curl {self._where}/healthz"
            )
        return ServiceUnavailable(f"The connection to {self._where} broke off ({what}); try again")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds an answer asks to wait, None if it does not say (RFC 9110, 10.2.3: seconds, or a date)."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        until = parsedate_to_datetime(text)
    except ValueError:
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())


def service_url(text: str) -> str:
    """`text` as the URL of a service, without a slash at its end. Raises `Refused` for anything else."""
    try:
        url = httpx.URL(text.strip())
    except httpx.InvalidURL as error:
        raise Refused(f"'{text}' is no URL ({error}); write http://HOST:PORT") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise Refused(f"'{text}' is no URL of a service; write http://HOST:PORT or https://HOST")
    if url.userinfo or url.query or url.fragment:
        raise Refused("The URL of a service holds no user, password, query or fragment; write http://HOST:PORT")
    return str(url).rstrip("/")


def segment(text: str) -> str:
    """One segment of a path, quoted whatever it holds."""
    return quote(text, safe="")


def below(base: str, path: str) -> str:
    """`base` and a path of several segments."""
    return "/".join([base, *map(segment, path.split("/"))])


def query(**values: object) -> dict[str, str]:
    """Query parameters; those that are None are left out."""
    given = {key: value for key, value in values.items() if value is not None}
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in given.items()}
