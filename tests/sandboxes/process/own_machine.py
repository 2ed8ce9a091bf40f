"""A machine of its own for a test: network namespace, /run, /sys and resolv.conf, with a small world beyond it.

The world is a host at 203.0.113.1 that answers each TCP connection with the address it came from, and names; the
machine's address is 203.0.113.2. Behind a bridge of the machine stands what could be a container, at 172.18.0.2. All of
it ends with the process that made it.
"""

import os
import queue
import socket
import struct
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

from harbor_assets.sandboxes.process.inside import calls
from harbor_assets.sandboxes.process.netlink import ACK, CREATE, EXCLUSIVE, ROUTE, Netlink, attribute, message

WORLD, MACHINE, METADATA, CONTAINER = "203.0.113.1", "203.0.113.2", "169.254.169.254", "172.18.0.2"


def in_own_machine(work: Callable[[], None], resolv_conf: str = f"nameserver {WORLD}\n") -> None:
    """Run `work` in a child on a machine of its own; raises AssertionError with the child's traceback if it fails."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reader)
            _make_machine(resolv_conf)
            work()
            code = 0
        except BaseException:
            os.write(writer, traceback.format_exc()[-60000:].encode())
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as f:
        text = f.read().decode(errors="replace")
    _, status = os.waitpid(pid, 0)
    assert status == 0, text


def serve(address: str, port: int) -> socket.socket:
    """A service in this thread's network namespace: it answers a connection with the address it came from."""
    listener = socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET)

    def answer() -> None:
        while True:
            connection, peer = listener.accept()
            threading.Thread(target=_talk, args=(connection, peer[0]), daemon=True).start()

    threading.Thread(target=answer, daemon=True).start()
    return listener


def serve_names(address: str, answer: str) -> None:
    """A nameserver in this thread's network namespace, by UDP and TCP: every name has the IPv4 address `answer`."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind((address, 53))
    tcp = socket.create_server((address, 53))

    def reply(query: bytes) -> bytes:
        end = query.index(b"\0", 12) + 5
        head = query[:2] + struct.pack(">HHHHH", 0x8180, 1, 1 if query[end - 4 : end - 2] == b"\0\1" else 0, 0, 0)
        record = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + socket.inet_aton(answer)
        return head + query[12:end] + (record if query[end - 4 : end - 2] == b"\0\1" else b"")

    def by_udp() -> None:
        while True:
            query, peer = udp.recvfrom(4096)
            udp.sendto(reply(query), peer)

    def by_tcp() -> None:
        while True:
            connection, _ = tcp.accept()
            with connection:
                size = struct.unpack(">H", connection.recv(2))[0]
                data = reply(connection.recv(size))
                connection.sendall(struct.pack(">H", len(data)) + data)

    for work in (by_udp, by_tcp):
        threading.Thread(target=work, daemon=True).start()


def _talk(connection: socket.socket, peer: str) -> None:
    with connection:
        connection.sendall(f"{peer}\n".encode())
        while connection.recv(1024):
            connection.sendall(b"again\n")


def _make_machine(resolv_conf: str) -> None:
    os.unshare(os.CLONE_NEWNET | os.CLONE_NEWNS)
    calls.mount("", "/", "", calls.REC | calls.PRIVATE)
    calls.mount("tmpfs", "/run", "tmpfs")
    calls.mount("sysfs", "/sys", "sysfs")
    copy = Path("/run/resolv.conf")
    copy.write_text(resolv_conf)
    calls.mount(str(copy), str(Path("/etc/resolv.conf").resolve()), "", calls.BIND)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("0")
    connected, up = threading.Event(), threading.Event()
    namespaces: queue.Queue[int] = queue.Queue()
    threading.Thread(target=_world, args=(namespaces, connected, up), daemon=True).start()
    namespace = namespaces.get(timeout=10)
    with Netlink(ROUTE) as netlink:
        for ours, theirs in (("up0", "eth0"), ("port0", "eth1")):
            peer = _head(0) + attribute(3, theirs) + attribute(28, struct.pack("i", namespace))
            info = attribute(18, [attribute(1, b"veth"), attribute(2, [attribute(1 | 0x8000, peer)])])
            netlink.talk(message(16, ACK | CREATE | EXCLUSIVE, _head(0) + attribute(3, ours) + info))
        info = attribute(18, [attribute(1, b"bridge")])
        netlink.talk(message(16, ACK | CREATE | EXCLUSIVE, _head(0) + attribute(3, "engine0") + info))
        master = attribute(10, struct.pack("i", socket.if_nametoindex("engine0")))
        netlink.talk(message(16, ACK, _head(socket.if_nametoindex("port0"), up=1) + master))
    configure("lo", [])
    configure("engine0", [("172.18.0.1", 24)])
    configure("up0", [(MACHINE, 24)], gateway=WORLD)
    connected.set()
    assert up.wait(10)


def _world(namespaces: "queue.Queue[int]", connected: threading.Event, up: threading.Event) -> None:
    os.unshare(os.CLONE_NEWNET)
    namespaces.put(os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY))
    connected.wait(10)
    configure("lo", [])
    configure("eth0", [(WORLD, 24), (METADATA, 16), ("198.51.100.7", 32)])
    configure("eth1", [(CONTAINER, 24)])
    for address in (WORLD, METADATA, "198.51.100.7", CONTAINER):
        serve(address, 80)
    serve_names(WORLD, "198.51.100.7")
    up.set()
    threading.Event().wait()


def configure(name: str, addresses: list[tuple[str, int]], gateway: str | None = None) -> None:
    """Give an interface addresses (with the length of their prefix), bring it up, and send everything to a gateway."""
    with Netlink(ROUTE) as netlink:
        index = socket.if_nametoindex(name)
        for address, bits in addresses:
            raw = socket.inet_aton(address)
            body = struct.pack("BBBBi", socket.AF_INET, bits, 0, 0, index) + attribute(2, raw) + attribute(1, raw)
            netlink.talk(message(20, ACK | CREATE | EXCLUSIVE, body))
        netlink.talk(message(16, ACK, _head(index, up=1)))
        if gateway is not None:
            body = struct.pack("BBBBBBBBI", socket.AF_INET, 0, 0, 0, 254, 4, 0, 1, 0)
            body += attribute(5, socket.inet_aton(gateway)) + attribute(4, struct.pack("i", index))
            netlink.talk(message(24, ACK | CREATE | EXCLUSIVE, body))


def _head(index: int, up: int = 0) -> bytes:
    return struct.pack("BxHiII", 0, 0, index, up, up)
