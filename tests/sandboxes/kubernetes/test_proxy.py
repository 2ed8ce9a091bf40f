# ruff: noqa: E501 - what a cluster says stands in one line
"""The egress proxy: passes, names, addresses, and that nothing else comes through."""

import asyncio
import base64
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.sandboxes.kubernetes.passes import Pass, sign, variables, verify
from harbor_assets.sandboxes.kubernetes.proxy import Proxy, is_public, parse

SECRET = b"0123456789abcdef-secret"


def claims(**changed: Any) -> Pass:
    facts: dict[str, Any] = {
        "sandbox": "s",
        "hosts": ("localhost",),
        "address": "127.0.0.1",
        "port": 1,
        "expires": 2**40,
    }
    return Pass(**{**facts, **changed})


@given(st.lists(st.text(max_size=20), max_size=5), st.integers(0, 2**40))
def test_a_pass_comes_back_as_it_was_signed(hosts: list[str], expires: int) -> None:
    made = claims(hosts=tuple(hosts), expires=expires)
    assert verify(SECRET, sign(SECRET, made)) == made


@given(st.data())
def test_a_changed_pass_is_none(data: st.DataObject) -> None:
    text = sign(SECRET, claims())
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from("abcXYZ019-_."))
    changed = text[:at] + other + text[at + 1 :]
    assert changed == text or verify(SECRET, changed) is None or verify(SECRET, changed) == claims()
    assert verify(b"another-secret-of-16", text) is None
    assert verify(SECRET, "") is None


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="16"):
        sign(b"short", claims())


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("1.1.1.1", True), ("2606:4700::1", True), ("10.96.0.1", False), ("127.0.0.1", False), ("169.254.169.254", False),
        ("192.168.1.1", False), ("100.64.0.1", False), ("0.0.0.0", False), ("::1", False), ("fe80::1%eth0", False),
        ("fd00::1", False), ("::ffff:10.0.0.1", False), ("::ffff:1.1.1.1", True), ("64:ff9b::a00:1", False),
        ("64:ff9b::101:101", True), ("2002:a00:1::", False), ("224.0.0.1", False), ("ff02::1", False),
    ],
)  # fmt: skip
def test_public_addresses(address: str, public: bool) -> None:
    assert is_public(address) is public


def test_a_plain_request_names_the_host_it_goes_to() -> None:
    head = b"GET http://a.example/x?y=1 HTTP/1.1\r\nHost: other.example\r\nProxy-Authorization: Basic czp0\r\nConnection: keep-alive\r\nX: 1\r\n\r\n"
    request, shown = parse(head)
    assert (request.host, request.port, shown, request.body) == ("a.example", 80, "t", 0)
    assert request.forwarded == b"GET /x?y=1 HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nX: 1\r\n\r\n"


@contextlib.asynccontextmanager
async def proxied(**how: Any) -> AsyncIterator[tuple[int, int]]:
    """A proxy, and a web server that says what it was asked; their ports."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nseen " + head.split(b"\r\n")[0])
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as web:
        target = web.sockets[0].getsockname()[1]
        proxy = Proxy(SECRET, target_ports=frozenset({target}), **{"allow_private": True, **how})
        async with await asyncio.start_server(proxy.handle, "127.0.0.1", 0) as front:
            yield front.sockets[0].getsockname()[1], target


async def ask(port: int, head: str, shown: str | None, then: bytes = b"") -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    auth = f"Proxy-Authorization: Basic {base64.b64encode(f'sandbox:{shown}'.encode()).decode()}\r\n" if shown else ""
    writer.write(f"{head}\r\n{auth}\r\n".encode())
    if then:
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        writer.write(then)
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return answer


def test_listed_hosts_come_through_and_others_do_not() -> None:
    async def work() -> None:
        async with proxied() as (port, target):
            good = sign(SECRET, claims(port=port))
            assert await ask(port, f"GET http://localhost:{target}/x HTTP/1.1", good) == (
                b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nseen GET /x HTTP/1.1"
            )
            through = await ask(port, f"CONNECT localhost:{target} HTTP/1.1", good, b"GET /t HTTP/1.1\r\n\r\n")
            assert through.endswith(b"seen GET /t HTTP/1.1")
            for head, shown, status in (
                (f"CONNECT other:{target} HTTP/1.1", good, b"403"),
                (f"CONNECT 127.0.0.1:{target} HTTP/1.1", good, b"403"),
                ("CONNECT localhost:22 HTTP/1.1", good, b"403"),
                (f"CONNECT localhost:{target} HTTP/1.1", None, b"407"),
                (f"CONNECT localhost:{target} HTTP/1.1", "made.up", b"403"),
                (f"CONNECT localhost:{target} HTTP/1.1", sign(SECRET, claims(port=port + 1)), b"403"),
                (f"CONNECT localhost:{target} HTTP/1.1", sign(SECRET, claims(port=port, address="10.0.0.9")), b"403"),
                (f"CONNECT localhost:{target} HTTP/1.1", sign(SECRET, claims(port=port, expires=int(time.time()) - 1)), b"403"),
                (f"CONNECT localhost:{target} HTTP/1.1", sign(b"another-secret-of-16", claims(port=port)), b"403"),
                ("GET /relative HTTP/1.1", good, b"400"),
            ):  # fmt: skip
                assert (await ask(port, head, shown)).split(b" ", 2)[1] == status, head

    asyncio.run(work())


def test_a_name_that_leads_inside_is_refused() -> None:
    async def work() -> None:
        async with proxied(allow_private=False) as (port, target):
            answer = await ask(port, f"CONNECT localhost:{target} HTTP/1.1", sign(SECRET, claims(port=port)))
            assert answer.startswith(b"HTTP/1.1 403 Address not public")

    asyncio.run(work())


def test_a_name_that_changes_where_it_leads_is_held_to_what_was_checked() -> None:
    """DNS rebinding: a second look at the name would lead inside."""

    async def work() -> None:
        looks: list[str] = []
        opened: list[str] = []
        loop = asyncio.get_running_loop()
        real_look, real_open = loop.getaddrinfo, asyncio.open_connection

        async def look(host: Any, port: Any, **how: Any) -> Any:
            if not str(host).endswith(".example"):
                return await real_look(host, port, **how)
            looks.append(host)
            inside = len(looks) > 1 or host.startswith("half")
            answer = [(2, 1, 6, "", ("1.1.1.1", port))]
            return [*answer, (2, 1, 6, "", ("10.0.0.1", port))] if inside else answer

        async def connect(host: Any, port: Any) -> Any:
            opened.append(host)
            raise OSError("not from a test")

        loop.getaddrinfo = look  # type: ignore[method-assign]
        async with proxied(allow_private=False) as (port, target):
            good = sign(SECRET, claims(port=port, hosts=("*.example",)))
            reader, writer = await real_open("127.0.0.1", port)
            asyncio.open_connection = connect  # type: ignore[assignment]
            try:
                auth = base64.b64encode(f"s:{good}".encode()).decode()
                writer.write(
                    f"CONNECT a.example:{target} HTTP/1.1\r\nProxy-Authorization: Basic {auth}\r\n\r\n".encode()
                )
                assert (await reader.read()).startswith(b"HTTP/1.1 502")
            finally:
                asyncio.open_connection = real_open
                writer.close()
            assert (looks, opened) == (["a.example"], ["1.1.1.1"])
            for host in ("a.example", "half.example"):
                assert (await ask(port, f"CONNECT {host}:{target} HTTP/1.1", good)).startswith(b"HTTP/1.1 403 Address")

    asyncio.run(work())


@pytest.mark.parametrize(
    ("host", "status"),
    [("a.localhost", b"502"), ("a.b.localhost", b"502"), ("localhost", b"403"), ("notlocalhost", b"403"), ("a.localhost.", b"502"),
     ("A.LOCALHOST", b"502"), ("2130706433", b"403"), ("0x7f000001", b"403"), ("[::1]", b"403"), ("a.localhost@b", b"403")],
)  # fmt: skip
def test_wildcards_mean_names_below(host: str, status: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """502 is past the list: the name was looked up, and is none."""

    async def work() -> None:
        async with proxied(allow_private=False) as (port, target):
            good = sign(SECRET, claims(port=port, hosts=("*.localhost",)))
            loop = asyncio.get_running_loop()

            async def none(*_: Any, **__: Any) -> Any:
                raise OSError("no such name")

            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            monkeypatch.setattr(loop, "getaddrinfo", none)
            auth = base64.b64encode(f"s:{good}".encode()).decode()
            writer.write(f"CONNECT {host}:{target} HTTP/1.1\r\nProxy-Authorization: Basic {auth}\r\n\r\n".encode())
            assert (await reader.read()).split(b" ", 2)[1] == status
            writer.close()

    asyncio.run(work())


def test_variables_in_both_cases() -> None:
    found = variables("t.s", "10.0.0.1", 3128)
    assert found["https_proxy"] == found["HTTPS_PROXY"] == "http://sandbox:t.s@10.0.0.1:3128"
    assert found["no_proxy"] == "localhost,127.0.0.1,::1"
