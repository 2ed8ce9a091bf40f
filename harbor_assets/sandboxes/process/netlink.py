"""Netlink as the kernel speaks it: messages, attributes, answers. No `ip` and no `nft`: slim systems have neither."""

import os
import socket
import struct
from collections.abc import Iterator

ROUTE, NETFILTER = 0, 12  # protocol families of netlink(7)
REQUEST, ACK, EXCLUSIVE, CREATE, APPEND, DUMP = 0x1, 0x4, 0x200, 0x400, 0x800, 0x300
NESTED = 0x8000
_ERROR, _DONE = 2, 3
_TIMEOUT_SECONDS = 10.0  # the kernel answers in microseconds; a lost answer must not hang a worker


def attribute(kind: int, value: bytes | str | list[bytes]) -> bytes:
    """One attribute: bytes as they are, text with a closing zero, a list as a nest."""
    if isinstance(value, list):
        kind, value = kind | NESTED, b"".join(value)
    elif isinstance(value, str):
        value = value.encode() + b"\0"
    return struct.pack("HH", len(value) + 4, kind) + value + b"\0" * (-len(value) % 4)


def big32(kind: int, value: int) -> bytes:
    """A number in network order, as nf_tables wants it."""
    return attribute(kind, struct.pack(">I", value))


def message(kind: int, flags: int, body: bytes) -> bytes:
    """One message with its header."""
    return struct.pack("IHHII", 16 + len(body), kind, flags | REQUEST, 1, 0) + body


def attributes(data: bytes) -> dict[int, bytes]:
    """The attributes of an answer, by kind; of a kind that repeats, the last."""
    found: dict[int, bytes] = {}
    while len(data) >= 4:
        size, kind = struct.unpack_from("HH", data)
        found[kind & 0x3FFF] = data[4:size]
        data = data[(max(size, 4) + 3) & ~3 :]
    return found


class Netlink:
    """A netlink socket. It belongs to the network namespace of the thread that opens it."""

    def __init__(self, protocol: int) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        self._socket.settimeout(_TIMEOUT_SECONDS)

    def __enter__(self) -> "Netlink":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def talk(self, *messages: bytes, acks: int | None = None) -> None:
        """Send messages (in one batch) and wait for their acknowledgements. Raises OSError with the kernel's number."""
        self._socket.send(b"".join(messages))
        wanted = len(messages) if acks is None else acks
        while wanted:
            for kind, body in self._receive():
                if kind == _ERROR:
                    number = -struct.unpack_from("i", body)[0]
                    if number:
                        raise OSError(number, os.strerror(number))
                    wanted -= 1

    def dump(self, request: bytes) -> Iterator[tuple[int, bytes]]:
        """(kind, body) of every answer to a dump request."""
        self._socket.send(request)
        while True:
            for kind, body in self._receive():
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    number = -struct.unpack_from("i", body)[0]
                    raise OSError(number, os.strerror(number))
                yield kind, body

    def _receive(self) -> Iterator[tuple[int, bytes]]:
        data = self._socket.recv(1 << 18)
        while len(data) >= 16:
            size, kind = struct.unpack_from("IH", data)
            yield kind, data[16:size]
            data = data[(size + 3) & ~3 :]
