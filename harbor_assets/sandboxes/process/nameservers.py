"""Which nameservers a sandbox asks, and a relay to those it cannot reach itself.

Behind NAT a sandbox reaches other machines and nothing of this one. A nameserver at 127.x (dnsmasq, systemd-resolved),
at an address of the machine or at a metadata address (some clouds) is asked by a relay: it listens inside the sandbox
and asks from the machine.
"""

import asyncio
import contextlib
import ipaddress
import socket
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from harbor_assets.sandboxes.process.rights import privileged

RELAY = "127.0.0.11"  # where Docker puts its own
METADATA = (  # addresses at which clouds tell machines about themselves, credentials included
    ipaddress.IPv4Network("169.254.0.0/16"),
    ipaddress.IPv4Network("100.100.100.200/32"),  # Alibaba Cloud
    ipaddress.IPv4Network("168.63.129.16/32"),  # Azure
    ipaddress.IPv4Network("192.0.0.192/32"),  # Oracle
)
_UPSTREAM = Path("/run/systemd/resolve/resolv.conf")  # what systemd-resolved's stub at 127.0.0.53 asks
_QUERY_SECONDS = 10.0  # twice a resolver's own patience
_QUERY_BYTES = 65_535
_QUERIES = 256  # at once, for each sandbox: a task must not use up the worker's descriptors


@dataclass(frozen=True, slots=True)
class Resolver:
    """`text` is the resolv.conf to show; `relayed` the machine's nameservers that a relay asks, empty without one."""

    text: str
    relayed: tuple[str, ...]


def resolv_conf() -> str:
    """The text of /etc/resolv.conf for a sandbox."""
    return resolver().text


def resolver() -> Resolver:
    """What this machine's resolv.conf means for a sandbox."""
    return _resolver(_read(Path("/etc/resolv.conf")), _read(_UPSTREAM), privileged())


@lru_cache(maxsize=8)
def _resolver(own: str, upstream: str, behind_nat: bool) -> Resolver:
    servers = parse(own)
    if not behind_nat:  # the machine's network, as it is
        return Resolver(own, ())
    if upstream and servers and all(server.startswith("127.") for server in servers):
        own, servers = upstream, parse(upstream)
    servers = servers or ("127.0.0.1",)  # resolv.conf(5): the default
    if reachable(servers[0]):
        return Resolver(own, ())
    kept = [line for line in own.splitlines() if line.split()[:1] != ["nameserver"]]
    return Resolver("\n".join([f"nameserver {RELAY}", *kept]) + "\n", servers)


def parse(text: str) -> tuple[str, ...]:
    """The nameservers of a resolv.conf, in order."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == "nameserver":
            found.append(words[1])
    return tuple(found)


def reachable(server: str) -> bool:
    """Whether a sandbox behind NAT may ask the server itself: IPv4, another machine, no metadata address."""
    try:
        address = ipaddress.IPv4Address(server)
    except ValueError:
        return False
    if address.is_loopback or address.is_unspecified or any(address in network for network in METADATA):
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.bind((server, 0))  # works for addresses of this machine only
        except OSError:
            return True
    return False


class Relay:
    """Answers queries that arrive at two sockets inside a sandbox by asking the machine's nameservers."""

    def __init__(self, udp: socket.socket, tcp: socket.socket, servers: tuple[str, ...]) -> None:
        self._udp, self._tcp, self._servers = udp, tcp, servers
        self._tasks: set[asyncio.Task[None]] = set()
        udp.setblocking(False)
        tcp.setblocking(False)
        self._start(self._serve_udp())
        self._start(self._serve_tcp())

    async def close(self) -> None:
        """Stop answering. Idempotent."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._udp.close()
        self._tcp.close()

    def _start(self, coroutine) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve_udp(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                query, sender = await loop.sock_recvfrom(self._udp, _QUERY_BYTES)
            except OSError:
                continue
            if len(self._tasks) < _QUERIES:
                self._start(self._ask(query, sender))

    async def _ask(self, query: bytes, sender: tuple[str, int]) -> None:
        loop = asyncio.get_running_loop()
        for server in self._servers:
            try:
                async with asyncio.timeout(_QUERY_SECONDS / len(self._servers)):
                    with _socket_to(server, socket.SOCK_DGRAM) as out:
                        await loop.sock_connect(out, (server, 53))
                        await loop.sock_sendall(out, query)
                        answer = await loop.sock_recv(out, _QUERY_BYTES)
                    await loop.sock_sendto(self._udp, answer, sender)
                    return
            except (OSError, TimeoutError):
                continue

    async def _serve_tcp(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                inner, _ = await loop.sock_accept(self._tcp)
            except OSError:
                await asyncio.sleep(0.1)
                continue
            if len(self._tasks) < _QUERIES:
                self._start(self._splice(inner))
            else:
                inner.close()

    async def _splice(self, inner: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with inner:
            for server in self._servers:
                with _socket_to(server, socket.SOCK_STREAM) as outer, contextlib.suppress(OSError, TimeoutError):
                    async with asyncio.timeout(_QUERY_SECONDS):
                        await loop.sock_connect(outer, (server, 53))
                        inner.setblocking(False)
                        done, rest = await asyncio.wait(
                            [asyncio.create_task(_copy(inner, outer)), asyncio.create_task(_copy(outer, inner))],
                            return_when=asyncio.FIRST_COMPLETED,
                        )
                        for task in (*done, *rest):
                            task.cancel()
                        await asyncio.gather(*done, *rest, return_exceptions=True)
                        return


async def _copy(source: socket.socket, target: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(source, _QUERY_BYTES):
        await loop.sock_sendall(target, data)


def _socket_to(server: str, kind: socket.SocketKind) -> socket.socket:
    s = socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, kind)
    s.setblocking(False)
    return s


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
