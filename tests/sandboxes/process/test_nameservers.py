"""Which nameservers a sandbox asks."""

import pytest

from harbor_assets.sandboxes.process.nameservers import RELAY, Resolver, _resolver, parse, reachable


def test_parsing() -> None:
    text = "# c\nsearch example.org\nnameserver 10.0.0.1\nnameserver\n nameserver  fd00::1 \noptions ndots:2\n"
    assert parse(text) == ("10.0.0.1", "fd00::1")


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("203.0.113.53", True),
        ("127.0.0.53", False),
        ("169.254.169.254", False),  # metadata and nameserver in one
        ("168.63.129.16", False),
        ("fd00::1", False),  # IPv6 is not translated
        ("0.0.0.0", False),
        ("name", False),
    ],
)
def test_what_a_sandbox_reaches_itself(server: str, expected: bool) -> None:
    assert reachable(server) is expected


def test_a_reachable_nameserver_is_asked_as_it_is() -> None:
    text = "nameserver 203.0.113.53\nnameserver 127.0.0.1\n"
    assert _resolver(text, "", True) == Resolver(text, ())


def test_systemd_resolved_is_passed_over() -> None:
    upstream = "nameserver 203.0.113.53\nsearch lan\n"
    assert _resolver("nameserver 127.0.0.53\n", upstream, True) == Resolver(upstream, ())


def test_others_are_asked_by_the_relay() -> None:
    own = "search lan\nnameserver 127.0.0.1\nnameserver 203.0.113.53\noptions ndots:2\n"
    expected = Resolver(f"nameserver {RELAY}\nsearch lan\noptions ndots:2\n", ("127.0.0.1", "203.0.113.53"))
    assert _resolver(own, "", True) == expected
    assert _resolver("", "", True) == Resolver(f"nameserver {RELAY}\n", ("127.0.0.1",))  # resolv.conf(5)


def test_on_the_machines_own_network_nothing_is_changed() -> None:
    text = "nameserver 127.0.0.53\n"
    assert _resolver(text, "nameserver 203.0.113.53\n", False) == Resolver(text, ())
