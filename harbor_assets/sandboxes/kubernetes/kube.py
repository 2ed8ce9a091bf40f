"""A small Kubernetes client on aiohttp: JSON requests, watches, and exec over the `v5.channel.k8s.io` protocol.

Why not the official one: its asyncio form has no exec, its other form needs a thread per command and buffers output
quadratically, and importing it costs a second of CPU. Inside a cluster nothing of it is needed; outside, it reads the
kubeconfig.
"""

import asyncio
import json
import os
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import aiohttp

PROTOCOL = "v5.channel.k8s.io"  # the first with a way to end stdin alone; Kubernetes 1.30 and later
STDIN, STDOUT, STDERR, STATUS, CLOSE = 0, 1, 2, 3, 255
CHUNK = 1 << 18  # bytes of one frame of stdin: the apiserver's own buffers are smaller, so more gains nothing
HEARTBEAT_SECONDS = (
    15.0  # finds a connection that stalls without a reset; keeps load balancers from closing a silent one
)
REQUEST_SECONDS = 30.0
CONNECT_SECONDS = 10.0
TOKEN_SECONDS = 60.0  # the kubelet renews a mounted token well before it ends
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})  # the server's trouble, not the request's

Sink = Callable[[bytes], Awaitable[None] | None]


class ApiError(Exception):
    """The apiserver refused a request. `status` is HTTP's, `message` the server's own words."""

    def __init__(self, status: int, text: str) -> None:
        self.status, self.message = status, _message(text)
        super().__init__(f"{status}: {self.message[:1000]}")

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in RETRIED


class Unreachable(Exception):
    """No answer from the apiserver: refused, cut or timed out."""


class StreamBroken(Exception):
    """An exec stream ended without a status. It says nothing about the command."""


class SinkFailed(Exception):
    """What the caller does with output failed; not the stream, not the command. Its cause is the error."""


class SourceFailed(Exception):
    """What the caller feeds into stdin failed; not the stream, not the command. Its cause is the error."""


class ExecFailed(Exception):
    """The runtime could not run the command (container gone, no such program): not an exit code of the command."""


@dataclass(frozen=True, slots=True)
class Access:
    """Where the apiserver is, and who we are. `headers` is asked before each request: tokens are renewed."""

    host: str
    tls: ssl.SSLContext | bool
    headers: Callable[[], dict[str, str]]


def in_cluster(account: Path = ACCOUNT) -> Access | None:
    """The access that a pod's service account gives; None outside a pod, or without a token."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    token = account / "token"
    if not host or not token.is_file():
        return None
    held: list[Any] = ["", 0.0]

    def headers() -> dict[str, str]:
        if time.monotonic() - held[1] > TOKEN_SECONDS or not held[0]:
            held[:] = [token.read_text(encoding="utf-8").strip(), time.monotonic()]
        return {"Authorization": f"Bearer {held[0]}"}

    address = f"[{host}]" if ":" in host else host
    return Access(f"https://{address}:{port}", ssl.create_default_context(cafile=str(account / "ca.crt")), headers)


def from_kubeconfig() -> Access:
    """The access that KUBECONFIG (or ~/.kube/config) gives. Raises kubernetes' ConfigException."""
    from kubernetes import client, config  # a second of CPU: outside clusters only

    found = client.Configuration()
    config.load_kube_config(client_configuration=found)
    tls: ssl.SSLContext | bool = False
    if found.host.startswith("https"):
        tls = ssl.create_default_context(cafile=found.ssl_ca_cert)
        if not found.verify_ssl:
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        if found.cert_file:
            tls.load_cert_chain(found.cert_file, found.key_file)

    def headers() -> dict[str, str]:
        token = found.get_api_key_with_prefix("authorization")
        return {"Authorization": token} if token else {}

    return Access(found.host, tls, headers)


class Kube:
    """One connection pool to one apiserver. Use as an async context manager; belongs to the loop that entered it.

    `requests` counts what was sent. Methods raise ApiError and Unreachable.
    """

    def __init__(self, access: Access) -> None:
        self.access = access
        self.requests = 0
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, ssl=self.access.tls, keepalive_timeout=30)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()
            await asyncio.sleep(0)  # lets the transports close before a loop ends

    @property
    def session(self) -> aiohttp.ClientSession:
        """The pool. Raises Unreachable if it was closed."""
        if self._session is None or self._session.closed:
            raise Unreachable("the client is closed")
        return self._session

    async def call(
        self, method: str, path: str, body: Any = None, *, kind: str = "application/json", **query: str
    ) -> Any:
        """One request, JSON both ways; None for an empty answer."""
        self.requests += 1
        try:
            async with self.session.request(
                method,
                self.access.host + path,
                params=query,
                data=None if body is None else json.dumps(body),
                headers={**self.access.headers(), "Content-Type": kind},
                timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=CONNECT_SECONDS),
            ) as answer:
                text = await answer.text(errors="replace")
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Unreachable(f"{method} {path}: {error!r}") from error
        if answer.status >= 400:
            raise ApiError(answer.status, text)
        return json.loads(text) if text else None

    async def watch(self, path: str, *, seconds: int, **query: str) -> AsyncIterator[dict[str, Any]]:
        """Events of one watch, until the server ends it after `seconds`."""
        self.requests += 1
        query = {"watch": "1", "timeoutSeconds": str(seconds), **query}
        try:
            async with self.session.get(
                self.access.host + path,
                params=query,
                headers=self.access.headers(),
                timeout=aiohttp.ClientTimeout(total=seconds + 30, sock_connect=CONNECT_SECONDS),
                read_bufsize=1 << 20,  # one pod is one line
            ) as answer:
                if answer.status >= 400:
                    raise ApiError(answer.status, await answer.text(errors="replace"))
                async for line in answer.content:
                    yield json.loads(line)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise Unreachable(f"watch {path}: {error!r}") from error

    async def exec(
        self,
        namespace: str,
        pod: str,
        command: Sequence[str],
        *,
        stdin: AsyncIterator[bytes] | bytes | None = None,
        out: Sink | None = None,
        err: Sink | None = None,
        container: str = "main",
    ) -> int:
        """Run a command to its end; its output goes to the sinks as it comes. Returns its exit code.

        Returns only if the server sent a status. Raises StreamBroken without one, ExecFailed if the runtime could not
        run it, ApiError if the server refused, SinkFailed, SourceFailed. `command` stands in audit logs: no secrets.
        """
        query = [("container", container), ("stdout", "1"), ("stderr", "1"), *(("command", word) for word in command)]
        if stdin is not None:
            query.append(("stdin", "1"))
        url = f"{self.access.host}/api/v1/namespaces/{namespace}/pods/{pod}/exec?{urlencode(query)}"
        socket = await self._connect(url)
        failure: list[Exception] = []
        feeder = asyncio.create_task(_feed(socket, stdin, failure)) if stdin is not None else None
        try:
            status = await _read(socket, out, err)
        except (aiohttp.ClientError, OSError) as error:
            raise StreamBroken(repr(error)) from error
        finally:
            if feeder:
                feeder.cancel()
                await asyncio.gather(feeder, return_exceptions=True)
            await asyncio.shield(socket.close())
        if failure:
            raise SourceFailed(str(failure[0])) from failure[0]
        if status is None:
            raise StreamBroken(f"closed without a status, code {socket.close_code}")
        return _exit_code(status)

    async def _connect(self, url: str) -> aiohttp.ClientWebSocketResponse:
        self.requests += 1
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                return await self.session.ws_connect(
                    url,
                    protocols=(PROTOCOL,),
                    headers=self.access.headers(),
                    heartbeat=HEARTBEAT_SECONDS,
                    max_msg_size=0,
                )
        except aiohttp.WSServerHandshakeError as error:
            raise ApiError(error.status, error.message) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise StreamBroken(f"not connected: {error!r}") from error


async def _feed(
    socket: aiohttp.ClientWebSocketResponse, stdin: AsyncIterator[bytes] | bytes, failure: list[Exception]
) -> None:
    if isinstance(stdin, bytes):
        for at in range(0, len(stdin), CHUNK):
            await socket.send_bytes(b"\0" + stdin[at : at + CHUNK])
    else:
        try:
            async for chunk in stdin:
                try:
                    await socket.send_bytes(b"\0" + chunk)
                except (aiohttp.ClientError, OSError):
                    return  # the reader of this socket learns of it too
        except Exception as error:  # noqa: BLE001 - raised by the reader of this socket
            failure.append(error)
            await socket.close()  # else the command would wait for more
    await socket.send_bytes(bytes([CLOSE, STDIN]))  # without it `tar -x` and `cat` would wait for ever


async def _read(socket: aiohttp.ClientWebSocketResponse, out: Sink | None, err: Sink | None) -> dict[str, Any] | None:
    status = None
    async for message in socket:
        data = message.data.encode() if message.type is aiohttp.WSMsgType.TEXT else message.data
        if message.type not in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY) or not data:
            break
        channel, payload = data[0], data[1:]
        if channel == STATUS:
            status = json.loads(payload)
        elif payload and (sink := {STDOUT: out, STDERR: err}.get(channel)):
            try:
                if (waiting := sink(payload)) is not None:
                    await waiting
            except Exception as error:
                raise SinkFailed(str(error)) from error
    return status


def _exit_code(status: dict[str, Any]) -> int:
    if status.get("status") == "Success":
        return 0
    if status.get("reason") == "NonZeroExitCode":
        for cause in status.get("details", {}).get("causes", []):
            if cause.get("reason") == "ExitCode":
                return int(cause["message"])
    raise ExecFailed(status.get("message") or json.dumps(status))


def _message(text: str) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text
