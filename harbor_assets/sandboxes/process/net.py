"""A sandbox's connection to the world: a pair of interfaces, one end inside. Root only.

It dies with the sandbox's network namespace, on any kill. The inner end is `eth0`.
"""

import errno
import ipaddress
import os
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harbor_assets.sandboxes.process import nat
from harbor_assets.sandboxes.process.nameservers import RELAY
from harbor_assets.sandboxes.process.netlink import ACK, CREATE, EXCLUSIVE, ROUTE, Netlink, attribute, message
from harbor_assets.sandboxes.process.owner import Owner

_NEW_LINK, _DEL_LINK, _NEW_ADDRESS, _NEW_ROUTE = 16, 17, 20, 24
_IFNAME, _LINKINFO, _ALIAS, _NET_NS_FD = 3, 18, 20, 28
_SUBNETS = 1 << 14  # /30s in a /16


@dataclass(frozen=True, slots=True)
class Link:
    """One attached sandbox: the machine's end, and the two sockets of the name service inside, if asked for."""

    name: str
    relay: tuple[socket.socket, socket.socket] | None
    relay_problem: str | None = None


def attach(namespace: int, owner: Owner, *, relay: bool) -> Link:
    """Connect a network namespace (a descriptor of it) to the world behind NAT.

    Blocking: 2 ms, more while another process holds the lock. Raises nat.NatUnavailable; OSError if the namespace died.
    """
    with nat.locked(), Netlink(ROUTE) as netlink:
        network = nat.ensure()
        name, number = _new_pair(netlink, namespace, owner)
        try:
            first = network.network_address + number * 4
            index = socket.if_nametoindex(name)
            _no_ipv6(name)
            netlink.talk(_address(index, first + 1), _link(_NEW_LINK, 0, index, True))
            sockets, problem = _inside(namespace, lambda: _set_up_inside(first, relay))
        except BaseException:
            detach(name)
            raise
    return Link(name, sockets, problem)


def detach(name: str) -> None:
    """Cut a sandbox off; live connections end. Blocking: the kernel waits some 17 ms. Idempotent."""
    with Netlink(ROUTE) as netlink:
        try:
            netlink.talk(_link(_DEL_LINK, 0, socket.if_nametoindex(name), False))
        except OSError as e:
            if e.errno not in (errno.ENODEV, errno.ENXIO):
                raise


def reap() -> list[str]:
    """Remove interfaces whose owner is dead, then what nobody needs any more. Returns what was removed."""
    gone = []
    for name in nat.interfaces():
        try:
            owner = Owner.parse(Path(f"/sys/class/net/{name}/ifalias").read_text().strip())
        except OSError:
            continue
        if owner is not None and owner.dead:
            detach(name)
            gone.append(f"interface {name}")
    return [*gone, *nat.tidy()]


def _new_pair(netlink: Netlink, namespace: int, owner: Owner) -> tuple[str, int]:
    taken = set(nat.interfaces())
    for number in range(_SUBNETS):
        name = f"{nat.PREFIX}{number}"
        if name in taken:
            continue
        peer = struct.pack("BxHiII", 0, 0, 0, 0, 0) + attribute(_IFNAME, "eth0")
        peer += attribute(_NET_NS_FD, struct.pack("i", namespace))
        info = attribute(_LINKINFO, [attribute(1, b"veth"), attribute(2, [attribute(1 | 0x8000, peer)])])
        try:
            netlink.talk(_link(_NEW_LINK, CREATE | EXCLUSIVE, 0, False, attribute(_IFNAME, name), info))
        except FileExistsError:
            continue
        # The alias names the owner; the kernel takes it only from a second message.
        netlink.talk(_link(_NEW_LINK, 0, socket.if_nametoindex(name), False, attribute(_ALIAS, str(owner))))
        return name, number
    raise nat.NatUnavailable(f"all {_SUBNETS} networks are taken")


def _set_up_inside(
    first: ipaddress.IPv4Address, relay: bool
) -> tuple[tuple[socket.socket, socket.socket] | None, str | None]:
    with Netlink(ROUTE) as netlink:
        index = socket.if_nametoindex("eth0")
        netlink.talk(_address(index, first + 2))
        netlink.talk(_link(_NEW_LINK, 0, index, True))
        # rtmsg: IPv4, default, main table, static, universe, unicast
        head = struct.pack("BBBBBBBBI", socket.AF_INET, 0, 0, 0, 254, 4, 0, 1, 0)
        gateway = attribute(5, (first + 1).packed) + attribute(4, struct.pack("i", index))
        netlink.talk(message(_NEW_ROUTE, ACK | CREATE | EXCLUSIVE, head + gateway))
    if not relay:
        return None, None
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        udp.bind((RELAY, 53))
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        tcp.bind((RELAY, 53))
        tcp.listen(16)
    except OSError as e:
        udp.close()
        tcp.close()
        return None, f"names cannot be resolved: port 53 of {RELAY} inside: {e.strerror}"
    return (udp, tcp), None


def _inside[T](namespace: int, work: Callable[[], T]) -> T:
    """Run `work` in another network namespace. Namespaces belong to threads, so a thread goes there and ends."""
    results: list[T] = []
    errors: list[BaseException] = []

    def visit() -> None:
        try:
            os.setns(namespace, os.CLONE_NEWNET)
            results.append(work())
        except BaseException as e:  # noqa: BLE001 -- raised again below
            errors.append(e)

    thread = threading.Thread(target=visit, name="sandbox-network")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _link(kind: int, flags: int, index: int, up: bool, *attributes: bytes) -> bytes:
    state = 1 if up else 0  # IFF_UP, and that it is to change
    return message(kind, flags | ACK, struct.pack("BxHiII", 0, 0, index, state, state) + b"".join(attributes))


def _address(index: int, address: ipaddress.IPv4Address) -> bytes:
    head = struct.pack("BBBBi", socket.AF_INET, 30, 0, 0, index)
    return message(
        _NEW_ADDRESS, ACK | CREATE | EXCLUSIVE, head + attribute(2, address.packed) + attribute(1, address.packed)
    )


def _no_ipv6(name: str) -> None:
    """A link-local address would reach services of the machine that listen on IPv6."""
    setting = Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6")
    if setting.exists():
        setting.write_text("1")
