"""The few nf_tables messages the NAT needs: a table, its chains and rules, and guests' rules in foreign chains.

Numbers are those of linux/netfilter/nf_tables.h. The expressions in foreign chains are ones that `iptables-nft` reads
too: it refuses a whole table in which it meets one it does not know.
"""

import ipaddress
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harbor_assets.sandboxes.process.netlink import (
    ACK,
    APPEND,
    CREATE,
    DUMP,
    EXCLUSIVE,
    NETFILTER,
    REQUEST,
    Netlink,
    attribute,
    attributes,
    big32,
    message,
)

INET, IPV4 = 1, 2  # address families of tables
INPUT, FORWARD, POSTROUTING = 1, 2, 4  # hooks
DROP, ACCEPT = 0, 1
_NEW_TABLE, _DEL_TABLE, _NEW_CHAIN, _GET_CHAIN, _NEW_RULE, _GET_RULE, _DEL_RULE = 0, 2, 3, 4, 6, 7, 8
_SUBSYSTEM = 10 << 8
_BATCH_BEGIN, _BATCH_END = 16, 17
_SOURCE, _DESTINATION = 12, 16  # offsets in the IPv4 header
_ESTABLISHED_OR_RELATED = 0x6
_NAME_SIZE = 16  # IFNAMSIZ
_DESTINATION_CHANGED = 0x20  # IPS_DST_NAT

type Expressions = Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Chain:
    """A base chain of the machine: where it hooks in, and what happens to packets that no rule of it decides on."""

    family: int
    table: str
    name: str
    hook: int | None
    policy: int


def new_table(family: int, table: str) -> bytes:
    """Make a table; the batch fails with EEXIST if there is one."""
    return _nf(_NEW_TABLE, family, CREATE | EXCLUSIVE | ACK, attribute(1, table))


def delete_table(family: int, table: str) -> bytes:
    return _nf(_DEL_TABLE, family, ACK, attribute(1, table))


def new_chain(family: int, table: str, name: str, kind: str, hook: int, priority: int) -> bytes:
    """A base chain with policy accept."""
    where = attribute(4, [big32(1, hook), attribute(2, struct.pack(">i", priority))])
    return _nf(_NEW_CHAIN, family, CREATE | ACK, attribute(1, table), attribute(3, name), where, attribute(7, kind))


def new_rule(family: int, table: str, chain: str, *parts: Expressions, first: bool = False, comment: str = "") -> bytes:
    """A rule at the end of a chain, or at its beginning."""
    body = [attribute(1, table), attribute(2, chain), attribute(4, [e for part in parts for e in part])]
    if comment:
        text = comment.encode() + b"\0"
        body.append(attribute(7, bytes([0, len(text)]) + text))
    return _nf(_NEW_RULE, family, CREATE | ACK | (0 if first else APPEND), *body)


def delete_rule(family: int, table: str, chain: str, handle: bytes) -> bytes:
    return _nf(_DEL_RULE, family, ACK, attribute(1, table), attribute(2, chain), attribute(3, handle))


def from_interfaces(prefix: str) -> Expressions:
    """Packets that came in by an interface whose name begins so."""
    return [_meta(6), _compare(prefix.encode())]


def to_interfaces(prefix: str) -> Expressions:
    """Packets that go out by such an interface."""
    return [_meta(7), _compare(prefix.encode())]


def to_interface(name: str) -> Expressions:
    """Packets that go out by the interface of that name."""
    return [_meta(7), _compare(name.encode().ljust(_NAME_SIZE, b"\0"))]


def not_to_interfaces(prefix: str) -> Expressions:
    return [_meta(7), _compare(prefix.encode(), equal=False)]


def ipv4() -> Expressions:
    return [_meta(15), _compare(bytes([2]))]


def ipv6() -> Expressions:
    return [_meta(15), _compare(bytes([10]))]


def source_in(network: ipaddress.IPv4Network, inside: bool = True) -> Expressions:
    return _address(_SOURCE, network, inside)


def destination_in(network: ipaddress.IPv4Network) -> Expressions:
    return _address(_DESTINATION, network, True)


def not_an_answer() -> Expressions:
    """Packets of connections that were not begun from the other side."""
    return [_expression("ct", big32(1, 1), big32(2, 0)), _mask(_ESTABLISHED_OR_RELATED), _compare(bytes(4))]


def redirected() -> Expressions:
    """Packets whose destination somebody changed: a port that an engine publishes on the machine's address."""
    return [
        _expression("ct", big32(1, 1), big32(2, 2)),
        _mask(_DESTINATION_CHANGED),
        _compare(bytes(4), equal=False),
    ]


def masquerade() -> Expressions:
    return [_expression("masq")]


def reject() -> Expressions:
    """Refuse with "administratively prohibited", so that a connect fails at once."""
    return [_expression("reject", big32(1, 2), attribute(2, bytes([3])))]


def verdict(code: int) -> Expressions:
    return [_expression("immediate", big32(1, 0), attribute(2, [attribute(2, [big32(1, code)])]))]


def counter() -> Expressions:
    return [_expression("counter")]


def commit(*messages: bytes) -> None:
    """Do all of it or nothing. Raises OSError."""
    edge = struct.pack(">BBH", 0, 0, 10)
    with Netlink(NETFILTER) as netlink:
        netlink.talk(message(_BATCH_BEGIN, 0, edge), *messages, message(_BATCH_END, 0, edge), acks=len(messages))


def chains() -> Iterator[Chain]:
    """Every chain of every table of this network namespace."""
    with Netlink(NETFILTER) as netlink:
        for _, body in netlink.dump(_nf(_GET_CHAIN, 0, DUMP)):
            found = attributes(body[4:])
            hook = attributes(found[4]).get(1) if 4 in found else None
            yield Chain(
                family=body[0],
                table=_text(found[1]),
                name=_text(found[3]),
                hook=struct.unpack(">I", hook)[0] if hook else None,
                policy=struct.unpack(">I", found[5])[0] if 5 in found else ACCEPT,
            )


def rules_with_comment(chain: Chain, comment: str) -> Iterator[bytes]:
    """Handles of the rules of a chain that carry the comment."""
    request = _nf(_GET_RULE, chain.family, DUMP, attribute(1, chain.table), attribute(2, chain.name))
    with Netlink(NETFILTER) as netlink:
        for _, body in netlink.dump(request):
            found = attributes(body[4:])
            if _text(found[2]) == chain.name and comment.encode() in found.get(7, b""):
                yield found[3]


def _nf(kind: int, family: int, flags: int, *parts: bytes) -> bytes:
    return message(_SUBSYSTEM | kind, flags | REQUEST, struct.pack(">BBH", family, 0, 0) + b"".join(parts))


def _expression(name: str, *parts: bytes) -> bytes:
    return attribute(1, [attribute(1, name), attribute(2, list(parts))])


def _meta(key: int) -> bytes:
    return _expression("meta", big32(1, 1), big32(2, key))


def _compare(value: bytes, *, equal: bool = True) -> bytes:
    return _expression("cmp", big32(1, 1), big32(2, 0 if equal else 1), attribute(3, [attribute(1, value)]))


def _mask(bits: int) -> bytes:
    return _bitwise(struct.pack("I", bits))


def _bitwise(mask: bytes) -> bytes:
    return _expression(
        "bitwise",
        big32(1, 1),
        big32(2, 1),
        big32(3, 4),
        attribute(4, [attribute(1, mask)]),
        attribute(5, [attribute(1, bytes(4))]),
    )


def _address(offset: int, network: ipaddress.IPv4Network, inside: bool) -> Expressions:
    return [
        _expression("payload", big32(1, 1), big32(2, 1), big32(3, offset), big32(4, 4)),
        _bitwise(network.netmask.packed),
        _compare(network.network_address.packed, equal=inside),
    ]


def _text(value: bytes) -> str:
    return value.rstrip(b"\0").decode(errors="replace")
