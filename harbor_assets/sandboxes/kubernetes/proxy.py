"""The egress proxy: lets sandboxes reach hosts by name, those of their pass and no other.

    python -m harbor_assets.sandboxes.kubernetes.proxy

Environment: HARBOR_ASSETS_EGRESS_SECRET or HARBOR_ASSETS_EGRESS_SECRET_FILE (shared with the workers),
HARBOR_ASSETS_EGRESS_ALLOW_PRIVATE=1 (tests only: also names that lead to private addresses),
HARBOR_ASSETS_EGRESS_TARGET_PORTS (default 80,443).

It speaks CONNECT and plain http, one request a connection. It resolves names itself and connects to the very address
it has checked: a name that leads into the cluster, to a node or to a cloud's metadata is refused. It does not look
into TLS, so a host list means the servers behind these names, with whatever else they serve.
"""

import asyncio
import base64
import contextlib
import ipaddress
import logging
import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from harbor_assets.domain.profiles import NetworkPolicy, allows
from harbor_assets.sandboxes.kubernetes.network import PORTS
from harbor_assets.sandboxes.kubernetes.passes import SECRET_MIN, Pass, verify

log = logging.getLogger(__name__)

HEAD_MAX = 64 << 10  # bytes of a request's head, its pass included
HEAD_SECONDS = 30.0
CONNECT_SECONDS = 15.0
IDLE_SECONDS = 3600.0  # of a connection that carries nothing; a silent download or stream may take long
CONNECTIONS_MAX = 256  # of one sandbox at once
CHUNK = 1 << 16
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class Refused(Exception):
    """What a sandbox asked for is not given. The message is for whoever reads the task's output."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


@dataclass(frozen=True, slots=True)
class Request:
    """The head of one request: where to, and what is passed on (None for CONNECT)."""

    host: str
    port: int
    forwarded: bytes | None
    body: int | None  # bytes that follow; None: as many as come


@dataclass
class Proxy:
    """A running proxy. `ports`: of each phase, so that a pass for one is worth nothing at the other."""

    secret: bytes
    ports: tuple[int, ...] = tuple(PORTS.values())
    allow_private: bool = False
    target_ports: frozenset[int] = frozenset({80, 443})
    connections: Counter[str] = field(default_factory=Counter)

    async def serve(self, host: str = "0.0.0.0") -> None:  # noqa: S104 - a pod's own address; policies say who comes
        """Serve until cancelled."""
        async with contextlib.AsyncExitStack() as stack:
            for port in self.ports:
                server = await asyncio.start_server(self.handle, host, port, limit=HEAD_MAX)
                await stack.enter_async_context(server)
            log.info("egress proxy on ports %s", ", ".join(map(str, self.ports)))
            await asyncio.Event().wait()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a sandbox, to its end."""
        peer, port = writer.get_extra_info("peername")[0], writer.get_extra_info("sockname")[1]
        self.connections[peer] += 1
        try:
            await self._answer(reader, writer, peer, port)
        except Refused as no:
            with contextlib.suppress(OSError):
                await _refuse(writer, no)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass  # the sandbox or the host hung up, or never made sense
        finally:
            self.connections[peer] -= 1
            if not self.connections[peer]:
                del self.connections[peer]
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: str, port: int) -> None:
        if self.connections[peer] > CONNECTIONS_MAX:
            raise Refused("429 Too Many Connections", f"more than {CONNECTIONS_MAX} connections at once")
        async with asyncio.timeout(HEAD_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        request, shown = parse(head)
        claims = self._admit(shown, peer, port)
        policy = NetworkPolicy(mode="allowlist", hosts=claims.hosts)
        ports = ", ".join(map(str, sorted(self.target_ports)))
        if request.port not in self.target_ports:
            log.info("refused %s %s:%d", claims.sandbox, request.host, request.port)
            raise Refused(
                "403 Port not allowed", f"port {request.port} of {request.host}: sandboxes reach ports {ports}"
            )
        if not allows(policy, request.host):
            log.info("refused %s %s:%d", claims.sandbox, request.host, request.port)
            raise Refused(
                "403 Host not allowed for this sandbox",
                f"{request.host} is not among what this sandbox may reach: {', '.join(claims.hosts)}, ports {ports}. "
                "The task's network policy and the deployment's sandbox profile decide.",
            )
        addresses = await self._resolve(request.host, request.port)
        far_reader, far_writer = await _connect(addresses, request.port)
        log.info("allowed %s %s:%d", claims.sandbox, request.host, request.port)
        try:
            if request.forwarded is None:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                far_writer.write(request.forwarded)
            await asyncio.gather(_pump(reader, far_writer, request.body), _pump(far_reader, writer, None))
        finally:
            far_writer.close()

    def _admit(self, shown: str | None, peer: str, port: int) -> Pass:
        if shown is None:
            raise Refused("407 Proxy Authentication Required", "no pass was shown; use the proxy variables as they are")
        claims = verify(self.secret, shown)
        if claims is None or claims.address != peer or claims.port != port or claims.expires < time.time():
            raise Refused("403 Pass not valid here", "this pass is not valid for this sandbox in this phase")
        return claims

    async def _resolve(self, host: str, port: int) -> list[str]:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, TimeoutError, UnicodeError) as error:
            raise Refused("502 Host not found", f"{host} cannot be resolved: {error}") from error
        addresses = [str(info[4][0]) for info in found]
        if not self.allow_private and not all(map(is_public, addresses)):
            log.warning("refused %s: it leads to %s", host, ", ".join(addresses))
            raise Refused("403 Address not public", f"{host} leads to an address that is not public")
        return addresses


def parse(head: bytes) -> tuple[Request, str | None]:
    """A request's head, and the pass it shows. Raises Refused, ValueError."""
    lines = head.removesuffix(b"\r\n\r\n").decode("latin-1").split("\r\n")
    method, target, version = lines[0].split(" ")
    headers = [
        (name.strip().lower(), value.strip(), line) for line in lines[1:] for name, _, value in [line.partition(":")]
    ]
    shown = next((_shown(value) for name, value, _ in headers if name == "proxy-authorization"), None)
    connect = method == "CONNECT"
    url = urlsplit(f"//{target}" if connect else target)
    if not connect and url.scheme != "http":
        raise Refused("400 Bad Request", "this is a proxy: it takes CONNECT and http:// addresses")
    host = (url.hostname or "").rstrip(".")
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(host)
        raise Refused("403 Addresses are not allowed", f"{host} is an address; hosts are allowed by name")
    port = url.port or (443 if connect else 80)
    if connect:
        return Request(host, port, None, None), shown
    kept = [
        line for name, _, line in headers
        if not name.startswith("proxy-") and name not in ("connection", "host", "keep-alive", "upgrade")
    ]  # fmt: skip
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    named = f"[{host}]" if ":" in host else host
    # Host is the address's, whatever the request says: one server may have more names than the one that is allowed
    new = [
        f"{method} {path} {version}",
        f"Host: {named}" + ("" if port == 80 else f":{port}"),
        "Connection: close",
        *kept,
    ]
    chunked = any(name == "transfer-encoding" for name, _, _ in headers)
    length = next((int(value) for name, value, _ in headers if name == "content-length"), 0)
    return Request(host, port, "\r\n".join([*new, "", ""]).encode("latin-1"), None if chunked else length), shown


def is_public(address: str) -> bool:
    """Whether an address lies outside every private, local and special range, also where one form wraps another."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour
        if ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
    return ip.is_global and not ip.is_multicast


def _shown(value: str) -> str | None:
    scheme, _, rest = value.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        return base64.b64decode(rest.strip(), validate=True).decode("latin-1").partition(":")[2]
    except ValueError:
        return None


async def _connect(addresses: list[str], port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    last: Exception | None = None
    for address in addresses:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await asyncio.open_connection(address, port)
        except (OSError, TimeoutError) as error:
            last = error
    raise Refused("502 Host did not answer", f"no answer: {last}")


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most: int | None) -> None:
    """Pass bytes on until the end, or until `most` of them."""
    try:
        while most is None or most > 0:
            async with asyncio.timeout(IDLE_SECONDS):
                data = await reader.read(CHUNK if most is None else min(CHUNK, most))
            if not data:
                break
            writer.write(data)
            await writer.drain()
            most = None if most is None else most - len(data)
        if most is None and writer.can_write_eof():
            writer.write_eof()
    except (OSError, TimeoutError, RuntimeError):
        writer.close()


async def _refuse(writer: asyncio.StreamWriter, no: Refused) -> None:
    body = f"{no.message}\n".encode()
    lines = [f"HTTP/1.1 {no.status}", "Connection: close", "Content-Type: text/plain; charset=utf-8"]
    if no.status.startswith("407"):
        lines.append('Proxy-Authenticate: Basic realm="sandbox"')
    writer.write("\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body)
    await writer.drain()


def secret(environment: Mapping[str, str]) -> bytes | None:
    """The secret that workers and the proxy share, from the environment or the file it names; None if there is none."""
    if path := environment.get("HARBOR_ASSETS_EGRESS_SECRET_FILE"):
        return Path(path).read_bytes().strip()
    value = environment.get("HARBOR_ASSETS_EGRESS_SECRET", "")
    return value.encode() or None


def main() -> None:
    """Run the proxy until it is told to end."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    key = secret(os.environ)
    if key is None or len(key) < SECRET_MIN:
        sys.exit(
            f"Set HARBOR_ASSETS_EGRESS_SECRET_FILE (or HARBOR_ASSETS_EGRESS_SECRET) to at least {SECRET_MIN} bytes."
        )
    ports = os.environ.get("HARBOR_ASSETS_EGRESS_TARGET_PORTS", "80,443")
    proxy = Proxy(
        key,
        allow_private=os.environ.get("HARBOR_ASSETS_EGRESS_ALLOW_PRIVATE") == "1",
        target_ports=frozenset(int(port) for port in ports.split(",")),
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as PID 1 of its pod it would not end otherwise
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(proxy.serve())


if __name__ == "__main__":
    main()
