"""Networks, each test on a machine of its own: what is reached, what is refused, what is cut, what is put back."""

import asyncio
import json
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from harbor_assets.sandboxes.process import mask, nat, net
from harbor_assets.sandboxes.process import nftables as nft
from harbor_assets.sandboxes.process.inside.keeper import remove_tree
from harbor_assets.sandboxes.process.netlink import attribute, big32
from harbor_assets.sandboxes.process.owner import Owner
from harbor_assets.sandboxes.process.reap import reap
from harbor_assets.sandboxes.process.sandbox import Sandbox

from .conftest import sandbox, sh
from .own_machine import CONTAINER, MACHINE, METADATA, WORLD, configure, in_own_machine, serve, serve_names

pytestmark = pytest.mark.req_root

CONNECT = (
    "import socket, sys\n"
    "try:\n"
    "    s = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=2)\n"
    "    print(s.recv(99).decode().strip())\n"
    "except OSError as e: print('no:', e)\n"
)


async def connect(box: Sandbox, address: str, port: int = 80) -> str:
    """What a service says to a connection from inside, or `no: ...`."""
    return (await box.exec(["python3", "-c", CONNECT, address, str(port)])).stdout.decode().strip()


@pytest.fixture
def machine(home: Path) -> Callable[..., None]:
    """Run a coroutine function of a home on a machine of its own; afterwards the machine is as it was before."""

    def call(work: Callable[[Path], Awaitable[None]], **how: str) -> None:
        def inner() -> None:
            mask._known.clear()
            own = home / "own"
            before = state()
            asyncio.run(work(own))  # pyright: ignore[reportArgumentType]
            assert state() == before
            remove_tree(str(own))

        in_own_machine(inner, **how)

    return call


def state() -> tuple[str, list[str], list[nft.Chain], list[str], list[str]]:
    return (
        Path("/proc/sys/net/ipv4/ip_forward").read_text(),
        [path.name for path in Path("/run").glob("harbor*")],
        list(nft.chains()),
        nat.interfaces(),
        [handle.hex() for chain in nft.chains() for handle in nft.rules_with_comment(chain, nat.COMMENT)],
    )


def test_without_network_there_is_lo_and_nothing_else(machine: Callable[..., None]) -> None:
    async def work(home: Path) -> None:
        async with sandbox(home) as box:
            done = await sh(
                box, "cat /proc/net/dev | tail -n +3 | cut -d: -f1; wc -l < /proc/net/route; ls /sys/class/net"
            )
            assert done.stdout.decode().split() == ["lo", "1", "lo"]
            for address in (WORLD, MACHINE, METADATA, "10.213.0.1"):
                assert (await connect(box, address)).startswith("no: [Errno 101]")  # unreachable, at once
            done = await sh(box, "python3 -c 'import socket; s = socket.create_server((\"127.0.0.1\", 80)); print(1)'")
            assert done.stdout == b"1\n"

    machine(work)


def test_a_public_network_is_an_address_behind_nat(machine: Callable[..., None]) -> None:
    async def work(home: Path) -> None:
        async with sandbox(home) as box:
            await box.attach_network()
            await box.attach_network()  # idempotent
            assert box.address_translated
            assert await connect(box, WORLD) == MACHINE  # what the world sees
            assert (await sh(box, "getent ahostsv4 any.test | head -1")).stdout.split()[0] == b"198.51.100.7"
            done = await sh(box, "tail -n +3 /proc/net/dev | cut -d: -f1; cat /proc/net/if_inet6 | grep -v ' lo$'")
            assert sorted(done.stdout.decode().split()) == ["eth0", "lo"]
            assert nat.interfaces() == ["harbor0"]
            assert Path("/sys/class/net/harbor0/ifalias").read_text().startswith(f"{os.getpid()}-")
            assert Path("/proc/sys/net/ipv4/ip_forward").read_text() == "1\n"
            assert json.loads(Path("/run/harbor-assets-net.json").read_text())["forwarding"] == "0"

    machine(work)


def test_services_of_the_machine_and_metadata_are_refused(machine: Callable[..., None]) -> None:
    async def work(home: Path) -> None:
        listeners = [serve("0.0.0.0", 8080), serve("::", 8081), serve("127.0.0.1", 8082)]
        async with sandbox(home) as box:
            await box.attach_network()
            assert await connect(box, WORLD) == MACHINE
            for address in (MACHINE, "10.213.0.1"):
                for port in (8080, 8081, 8082):
                    assert (await connect(box, address, port)).startswith("no:")
            assert (await connect(box, METADATA)).startswith("no:")
            assert socket.create_connection((CONTAINER, 80), timeout=2).recv(99) == b"172.18.0.1\n"  # the machine may
            assert (await connect(box, CONTAINER)).startswith("no:")
            assert (await connect(box, "127.0.0.1", 8082)).startswith("no:")  # its own loopback
            link_local = next(iter(_link_local("harbor0")), None)
            assert link_local is None  # IPv6 would lead around the rules
        for listener in listeners:
            listener.close()

    machine(work)


def _link_local(name: str) -> list[str]:
    rows = [line.split() for line in Path("/proc/net/if_inet6").read_text().splitlines()]
    return [row[0] for row in rows if row[-1] == name]


def test_a_port_that_an_engine_publishes_is_refused(machine: Callable[..., None]) -> None:
    """A redirected packet is forwarded, not delivered: the rule for the machine itself does not see it."""

    async def work(home: Path) -> None:
        ip = nft.IPV4
        to_machine = [*nft.destination_in(_host(MACHINE)), *_port(5432)]
        target = [_expression("immediate", big32(1, 1), attribute(2, [attribute(1, bytes([203, 0, 113, 1]))]))]
        target += [_expression("immediate", big32(1, 2), attribute(2, [attribute(1, struct.pack(">H", 80))]))]
        target += [_expression("nat", big32(1, 1), big32(2, 2), big32(3, 1), big32(5, 2))]
        nft.commit(
            nft.new_table(ip, "engine"),
            nft.new_chain(ip, "engine", "pre", "nat", 0, -100),
            nft.new_rule(ip, "engine", "pre", to_machine, target),
        )
        async with sandbox(home) as box:
            await box.attach_network()
            assert await connect(box, WORLD) == MACHINE
            assert (await connect(box, MACHINE, 5432)).startswith("no:")
        nft.commit(nft.delete_table(ip, "engine"))

    machine(work)


def _host(address: str):
    import ipaddress

    return ipaddress.IPv4Network(address)


def _port(number: int) -> list[bytes]:
    load = _expression("payload", big32(1, 1), big32(2, 2), big32(3, 2), big32(4, 2))
    return [load, _expression("cmp", big32(1, 1), big32(2, 0), attribute(3, [attribute(1, struct.pack(">H", number))]))]


def _expression(name: str, *parts: bytes) -> bytes:
    return attribute(1, [attribute(1, name), attribute(2, list(parts))])


def test_two_tasks_on_one_port_do_not_meet(machine: Callable[..., None]) -> None:
    server = (
        "import socket\ns = socket.create_server(('0.0.0.0', 80))\nwhile 1: c = s.accept()[0]; c.send(b'{}'); c.close()"
    )

    async def work(home: Path) -> None:
        async with sandbox(home) as one, sandbox(home) as two:
            for box, name in ((one, "one"), (two, "two")):
                await box.attach_network()
                await sh(box, f'python3 -c "{server.format(name)}" >/dev/null 2>&1 & sleep 0.5')
            assert [await connect(one, "127.0.0.1"), await connect(two, "127.0.0.1")] == ["one", "two"]
            assert [await connect(one, "10.213.0.2"), await connect(two, "10.213.0.6")] == ["one", "two"]
            assert (await connect(one, "10.213.0.6")).startswith("no:")
            assert (await connect(two, "10.213.0.2")).startswith("no:")

    machine(work)


def test_a_mode_switch_cuts_what_is_connected(machine: Callable[..., None]) -> None:
    talk = (
        "import socket, time\n"
        f"s = socket.create_connection(('{WORLD}', 80), timeout=1)\n"
        "print(s.recv(99).decode().strip(), flush=True)\n"
        "try:\n"
        "    while True: s.send(b'x'); s.recv(9); time.sleep(0.05)\n"
        "except OSError as e: print('cut', flush=True)\n"
    )

    async def work(home: Path) -> None:
        async with sandbox(home) as box:
            await box.attach_network()
            task = asyncio.create_task(box.exec(["python3", "-c", talk], timeout=20))
            await asyncio.sleep(1)
            assert not task.done()
            await box.detach_network()
            assert (await task).stdout.decode().split() == [MACHINE, "cut"]
            assert (await connect(box, WORLD)).startswith("no:")
            await box.attach_network()
            assert await connect(box, WORLD) == MACHINE

    machine(work)


@pytest.mark.parametrize("docker", [False, True])
def test_beside_a_firewall_that_drops_what_it_does_not_know(machine: Callable[..., None], docker: bool) -> None:
    async def work(home: Path) -> None:
        drop = attribute(5, struct.pack(">I", nft.DROP))
        made = [
            nft.new_table(nft.IPV4, "filter"),
            _with(nft.new_chain(nft.IPV4, "filter", "FORWARD", "filter", 2, 0), drop),
        ]
        if docker:
            made.append(_plain_chain("filter", "DOCKER-USER"))
            jump = [
                _expression(
                    "immediate",
                    big32(1, 0),
                    attribute(2, [attribute(2, [big32(1, 0xFFFFFFFD), attribute(2, "DOCKER-USER")])]),
                )
            ]
            made.append(nft.new_rule(nft.IPV4, "filter", "FORWARD", jump))
        nft.commit(*made)
        async with sandbox(home) as one, sandbox(home) as two:
            await one.attach_network()
            await two.attach_network()
            assert [await connect(one, WORLD), await connect(two, WORLD)] == [MACHINE, MACHINE]
            found = {
                chain.name: len(list(nft.rules_with_comment(chain, nat.COMMENT)))
                for chain in nft.chains()
                if chain.table == "filter"
            }
            assert found == ({"FORWARD": 0, "DOCKER-USER": 2} if docker else {"FORWARD": 2})
        assert not any(list(nft.rules_with_comment(chain, nat.COMMENT)) for chain in nft.chains())
        nft.commit(nft.delete_table(nft.IPV4, "filter"))

    machine(work)


def _with(request: bytes, part: bytes) -> bytes:
    size, rest = struct.unpack_from("I", request)[0], request[4:]
    return struct.pack("I", size + len(part)) + rest + part


def _plain_chain(table: str, name: str) -> bytes:
    from harbor_assets.sandboxes.process.netlink import ACK, CREATE, message

    body = struct.pack(">BBH", nft.IPV4, 0, 0) + attribute(1, table) + attribute(3, name)
    return message(10 << 8 | 3, ACK | CREATE, body)


@pytest.mark.parametrize("nameserver", ["127.0.0.1", MACHINE])
def test_names_where_the_machine_is_its_own_nameserver(machine: Callable[..., None], nameserver: str) -> None:
    query = (
        "import socket, struct\n"
        "s = socket.create_connection(('127.0.0.11', 53), timeout=3)\n"
        "q = struct.pack('>HHHHHH', 7, 256, 1, 0, 0, 0) + b'\\3any\\4test\\0\\0\\1\\0\\1'\n"
        "s.sendall(struct.pack('>H', len(q)) + q)\n"
        "d = s.recv(4096)\n"
        "print(socket.inet_ntoa(d[-4:]))\n"
    )

    async def work(home: Path) -> None:
        serve_names(nameserver, "192.0.2.99")
        async with sandbox(home) as box:
            assert (await sh(box, "cat /etc/resolv.conf")).stdout == b"nameserver 127.0.0.11\noptions timeout:1\n"
            assert (await sh(box, "getent ahostsv4 any.test")).code != 0
            await box.attach_network()
            assert box.notes == []
            answers = await asyncio.gather(*(sh(box, "getent ahostsv4 any.test | head -1") for _ in range(5)))
            assert {answer.stdout.split()[0] for answer in answers} == {b"192.0.2.99"}
            assert (await box.exec(["python3", "-c", query])).stdout == b"192.0.2.99\n"
            assert (await connect(box, nameserver, 53)).startswith("no:")
            await box.detach_network()
            assert (await sh(box, "getent ahostsv4 any.test")).code != 0

    machine(work, resolv_conf=f"nameserver {nameserver}\noptions timeout:1\n")


def test_networks_of_the_machine_are_avoided(machine: Callable[..., None]) -> None:
    async def work(home: Path) -> None:
        configure("up0", [("10.213.7.1", 24)])
        async with sandbox(home) as box:
            await box.attach_network()
            assert await connect(box, WORLD) == MACHINE
            assert b"172.29.0.2" in (await sh(box, "hostname -I")).stdout

    machine(work)


def test_without_nat_the_machines_network_is_used_and_said(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise nat.NatUnavailable("no nf_tables here")

    monkeypatch.setattr(nat, "ensure", refuse)

    async def work(home: Path) -> None:
        async with sandbox(home) as box:
            await box.attach_network()
            assert not box.address_translated
            assert "no nf_tables here" in box.notes[0]
            assert await connect(box, WORLD) == MACHINE
            first = await sh(box, "sleep 300 >/dev/null 2>&1 & echo $!")
            task = asyncio.create_task(sh(box, "sleep 301"))
            await asyncio.sleep(0.2)
            await box.detach_network()
            assert (await task).code == -9
            done = await sh(box, f"kill -0 {int(first.stdout)} || tail -n +3 /proc/net/dev | cut -d: -f1")
            assert done.stdout.split() == [b"lo"]
            await box.attach_network()
            assert await connect(box, WORLD) == MACHINE

    machine(work)


def test_interfaces_of_the_dead_are_removed(machine: Callable[..., None]) -> None:
    async def work(home: Path) -> None:
        async with sandbox(home) as box:
            assert box._namespace is not None
            dead = Owner(os.getpid(), 1, Owner.me().namespace)
            link = await asyncio.to_thread(lambda: net.attach(box._namespace, dead, relay=False))
            assert nat.interfaces() == [link.name]
            assert reap(home) == [f"interface {link.name}", "nf_tables table harbor_assets"]

    machine(work)


def test_forwarding_that_was_on_stays_on(machine: Callable[..., None]) -> None:
    async def work(home: Path) -> None:
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        async with sandbox(home) as box:
            await box.attach_network()
        assert Path("/proc/sys/net/ipv4/ip_forward").read_text() == "1\n"
        Path("/proc/sys/net/ipv4/ip_forward").write_text("0")

    machine(work)


def test_a_process_that_holds_the_lock_stops_nobody(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nat, "_TIDY_SECONDS", 0.05)

    async def work(home: Path) -> None:
        async with sandbox(home) as box:
            await box.attach_network()
            with nat.locked():
                assert await asyncio.to_thread(reap, home) == []
                with pytest.raises(TimeoutError), nat.locked(0.05):
                    pass

    machine(work)
