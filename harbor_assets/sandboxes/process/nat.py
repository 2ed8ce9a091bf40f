"""Address translation for the sandboxes of this machine: one static table, made by whoever comes first, removed by
whoever finds no interface of ours left.

Works beside an engine's firewall: a FORWARD chain with policy drop wins over any accept elsewhere, so two rules of ours
go into that very chain, or into DOCKER-USER where Docker keeps one for such rules.
"""

import contextlib
import errno
import fcntl
import ipaddress
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from harbor_assets.sandboxes.process import nftables as nft
from harbor_assets.sandboxes.process.nameservers import METADATA
from harbor_assets.sandboxes.process.rights import NET_ADMIN, has

PREFIX = "harbor"  # of the names of our interfaces: harbor0, harbor1, ...
TABLE = "harbor_assets"
LOCK_SECONDS = 30.0  # an attach takes milliseconds; more than a hundred may queue
_TIDY_SECONDS = 0.2  # every command tidies: it does not wait for one that hangs
COMMENT = "harbor-assets"
_STATE = Path("/run/harbor-assets-net.json")  # gone with a reboot, like the table
_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
# Where sandboxes get their /30 from: the first that overlaps no route of the machine.
_NETWORKS = ("10.213.0.0/16", "172.29.0.0/16", "10.79.0.0/16", "192.168.0.0/16", "198.18.0.0/16")


class NatUnavailable(Exception):
    """Sandboxes of this machine cannot have addresses of their own; the message says why."""


@dataclass(frozen=True, slots=True)
class _State:
    """What was changed on the machine, so that the last one out can put it back."""

    network: str
    forwarding: str  # of /proc/sys/net/ipv4/ip_forward, before
    bridges: tuple[str, ...]  # at that time; another engine may have come since and need forwarding
    chains: tuple[tuple[int, str, str], ...] = ()  # nf_tables chains with rules of ours: family, table, name
    legacy: str | None = None  # the same in the older x_tables: chain


@contextlib.contextmanager
def locked(patience: float = LOCK_SECONDS) -> Iterator[None]:
    """One at a time on this machine. The lock is on a folder that is always there, so that none is left behind.

    Raises TimeoutError: a process that was stopped while it held the lock must not stop every other.
    """
    deadline = time.monotonic() + patience
    fd = os.open("/run", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(errno.ETIMEDOUT, "another process holds the lock for networks") from None
                time.sleep(0.001)
        yield
    finally:
        os.close(fd)


def interfaces() -> list[str]:
    """Names of the sandboxes' interfaces on this machine."""
    return [name for _, name in socket.if_nameindex() if name.startswith(PREFIX) and name[len(PREFIX) :].isdigit()]


def ensure() -> ipaddress.IPv4Network:
    """Make the table and let packets pass; returns the network the sandboxes live in. The caller holds `locked()`.

    Raises NatUnavailable.
    """
    state = _load()
    try:
        if state is None:
            state = _State(str(_free_network()), _FORWARDING.read_text().strip(), _bridges())
            _save(state)  # before anything is changed: a kill in between is cleaned up
            with contextlib.suppress(FileNotFoundError):  # a table without a state is of nobody
                nft.commit(nft.delete_table(nft.INET, TABLE))
        network = ipaddress.IPv4Network(state.network)
        if _FORWARDING.read_text().strip() == "0":
            _FORWARDING.write_text("1")
        with contextlib.suppress(FileExistsError):
            nft.commit(*_table(network))
        _open_foreign_chains(state)
    except OSError as e:
        raise NatUnavailable(f"{e.filename or 'nf_tables'}: {e.strerror or e}") from e
    return network


def tidy() -> list[str]:
    """Put the machine back as it was, unless a sandbox still uses it. Cheap where there is nothing to do.

    Returns what was removed. Best effort: what cannot be put back is tried again by the next one.
    """
    if not _STATE.exists():
        return []
    with contextlib.suppress(TimeoutError), locked(_TIDY_SECONDS):
        state = _load()
        if state is None or interfaces():
            return []
        _put_back(state)
        _STATE.unlink(missing_ok=True)
        return [f"nf_tables table {TABLE}"]
    return []  # whoever holds the lock tidies up, or the next one does


def _put_back(state: _State) -> None:
    with contextlib.suppress(FileNotFoundError):
        nft.commit(nft.delete_table(nft.INET, TABLE))
    for family, table, name in state.chains:
        chain = nft.Chain(family, table, name, None, nft.ACCEPT)
        with contextlib.suppress(FileNotFoundError):
            for handle in list(nft.rules_with_comment(chain, COMMENT)):
                nft.commit(nft.delete_rule(family, table, name, handle))
    if state.legacy:
        for rule in _legacy_rules():
            _iptables("-D", state.legacy, *rule)
    if state.forwarding == "0" and not set(_bridges()) - set(state.bridges):
        _FORWARDING.write_text("0")


def problem() -> str | None:
    """Why sandboxes cannot have addresses of their own here, or None. Changes nothing."""
    if not has(NET_ADMIN):
        return "this process lacks CAP_NET_ADMIN"
    try:
        if _FORWARDING.read_text().strip() == "0" and not os.access(_FORWARDING, os.W_OK):
            return f"{_FORWARDING} is 0 and cannot be written"
        if os.statvfs("/proc/sys").f_flag & os.ST_RDONLY and _FORWARDING.read_text().strip() == "0":
            return "/proc/sys is mounted read-only"
        for _ in nft.chains():
            break
        _free_network()
    except OSError as e:
        return f"nf_tables: {e.strerror or e}"
    except NatUnavailable as e:
        return str(e)
    return None


def _table(network: ipaddress.IPv4Network) -> list[bytes]:
    def rule(chain: str, *parts: nft.Expressions) -> bytes:
        return nft.new_rule(nft.INET, TABLE, chain, *parts)

    ours = nft.from_interfaces(PREFIX)
    return [
        nft.new_table(nft.INET, TABLE),
        nft.new_chain(nft.INET, TABLE, "out", "nat", nft.POSTROUTING, 100),
        nft.new_chain(nft.INET, TABLE, "through", "filter", nft.FORWARD, -10),
        nft.new_chain(nft.INET, TABLE, "in", "filter", nft.INPUT, -10),
        rule("out", nft.ipv4(), nft.source_in(network), nft.not_to_interfaces(PREFIX), nft.masquerade()),
        # A task may send raw frames: what it claims to be is not believed. IPv6 is not translated, so none goes out.
        rule("through", ours, nft.ipv6(), nft.verdict(nft.DROP)),
        rule("through", ours, nft.ipv4(), nft.source_in(network, inside=False), nft.verdict(nft.DROP)),
        *(rule("through", ours, nft.ipv4(), nft.destination_in(cloud), nft.reject()) for cloud in METADATA),
        rule("through", ours, nft.redirected(), nft.reject()),
        rule("through", ours, nft.to_interfaces(PREFIX), nft.reject()),
        *(rule("through", ours, nft.to_interface(bridge), nft.reject()) for bridge in _engines()),
        rule("through", nft.to_interfaces(PREFIX), nft.not_an_answer(), nft.verdict(nft.DROP)),
        rule("in", ours, nft.reject()),
    ]


def _open_foreign_chains(state: _State) -> None:
    """Add two rules to every FORWARD chain that drops what it does not know."""
    found = list(nft.chains())
    dropping = [c for c in found if c.hook == nft.FORWARD and c.policy == nft.DROP and c.family in (nft.INET, nft.IPV4)]
    targets = []
    for chain in dropping:
        docker = next(
            (c for c in found if (c.family, c.table, c.name) == (chain.family, chain.table, "DOCKER-USER")), None
        )
        targets.append(docker or chain)
    legacy = _legacy_target()
    chains = tuple((c.family, c.table, c.name) for c in targets)
    if set(chains) - set(state.chains) or (legacy and not state.legacy):
        merged = tuple(dict.fromkeys((*state.chains, *chains)))
        _save(_State(state.network, state.forwarding, state.bridges, merged, legacy or state.legacy))
    for chain in targets:
        if not any(True for _ in nft.rules_with_comment(chain, COMMENT)):
            nft.commit(
                *(
                    nft.new_rule(
                        chain.family,
                        chain.table,
                        chain.name,
                        match,
                        nft.counter(),
                        nft.verdict(nft.ACCEPT),
                        first=True,
                        comment=COMMENT,
                    )
                    for match in (nft.from_interfaces(PREFIX), nft.to_interfaces(PREFIX))
                )
            )
    if legacy:
        for rule in _legacy_rules():
            if _iptables("-C", legacy, *rule) is None and _iptables("-I", legacy, *rule) is None:
                raise NatUnavailable(
                    f"the chain {legacy} of iptables drops forwarded packets, and no rule can be added"
                )


def _legacy_target() -> str | None:
    """The x_tables chain that needs our rules: DOCKER-USER or FORWARD if its policy is DROP; None if none does."""
    try:
        active = Path("/proc/net/ip_tables_names").read_text().split()
    except OSError:
        return None
    if "filter" not in active:
        return None
    rules = _iptables("-S")
    if rules is None:
        raise NatUnavailable("the machine filters packets by iptables, and no iptables program is there to look")
    if "-P FORWARD DROP" not in rules.splitlines():
        return None
    return "DOCKER-USER" if "-N DOCKER-USER" in rules.splitlines() else "FORWARD"


def _legacy_rules() -> list[list[str]]:
    return [[way, f"{PREFIX}+", "-m", "comment", "--comment", COMMENT, "-j", "ACCEPT"] for way in ("-i", "-o")]


def _iptables(*args: str) -> str | None:
    program = shutil.which("iptables-legacy", path="/usr/sbin:/sbin:/usr/bin:/bin") or shutil.which("iptables")
    if program is None:
        return None
    done = subprocess.run([program, "-w", "5", *args], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def _free_network() -> ipaddress.IPv4Network:
    used = []
    for line in Path("/proc/net/route").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[0].startswith(PREFIX) or fields[7] == "00000000":  # our own, and the default route
            continue
        address, mask = (int.from_bytes(bytes.fromhex(fields[i]), "little") for i in (1, 7))
        used.append(ipaddress.IPv4Network((address, mask.bit_count())))
    for text in _NETWORKS:
        network = ipaddress.IPv4Network(text)
        if not any(network.overlaps(other) for other in used):
            return network
    raise NatUnavailable(f"each of {', '.join(_NETWORKS)} overlaps a network of this machine")


def _engines() -> list[str]:
    """Bridges behind which containers and machines of this machine live: their services are its own. Not one that
    leads to the world."""
    rows = [line.split() for line in Path("/proc/net/route").read_text().splitlines()[1:]]
    uplinks = {row[0] for row in rows if row[1] == row[7] == "00000000"}
    return [name for name in _bridges() if name not in uplinks]


def _bridges() -> tuple[str, ...]:
    return tuple(sorted(path.parent.name for path in Path("/sys/class/net").glob("*/bridge")))


def _load() -> _State | None:
    try:
        raw = json.loads(_STATE.read_text())
        return _State(
            raw["network"],
            raw["forwarding"],
            tuple(raw["bridges"]),
            tuple((family, table, name) for family, table, name in raw["chains"]),
            raw["legacy"],
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _save(state: _State) -> None:
    new = _STATE.with_suffix(".new")
    new.write_text(json.dumps(asdict(state)))
    new.replace(_STATE)
