"""Which phase may reach what, and what proves it."""

import ipaddress

import pytest

from harbor_assets.domain.profiles import NetworkPolicy, SandboxProfile
from harbor_assets.sandboxes.kubernetes.network import NOTHING, PORTS, Reach, policies, proof, reach

OPEN = SandboxProfile(name="open", hosts=("*",))
STANDARD = SandboxProfile(name="standard", hosts=("api.example",), install_hosts=("site.test",))
SHUT = SandboxProfile(name="shut")
PUBLIC = NetworkPolicy(mode="public")
NONE = NetworkPolicy(mode="no-network")
LISTED = NetworkPolicy(mode="allowlist", hosts=("api.example", "other.example"))


@pytest.mark.parametrize(
    ("policy", "profile", "install", "run"),
    [
        (PUBLIC, OPEN, Reach("public"), Reach("public")),
        (NONE, OPEN, NOTHING, NOTHING),
        (LISTED, OPEN, Reach("install", LISTED.hosts), Reach("proxy", LISTED.hosts)),
        (PUBLIC, STANDARD, Reach("install", ("api.example", "site.test")), Reach("proxy", ("api.example",))),
        (LISTED, STANDARD, Reach("install", ("api.example",)), Reach("proxy", ("api.example",))),
        (NONE, STANDARD, NOTHING, NOTHING),
        (PUBLIC, SHUT, NOTHING, NOTHING),
        (PUBLIC, SandboxProfile(name="p", install_hosts=("*",)), Reach("public"), NOTHING),
    ],
)
def test_the_tasks_policy_is_narrowed_by_the_profile(
    policy: NetworkPolicy, profile: SandboxProfile, install: Reach, run: Reach
) -> None:
    assert reach(policy, profile, "install") == install
    assert reach(policy, profile, "run") == run


def test_what_is_denied_is_what_the_mode_before_allowed() -> None:
    """Else an address that was closed all along would "prove" it."""
    public, proxied, install = Reach("public"), Reach("proxy", ("a",)), Reach("install", ("a", "b"))
    fresh = proof(None, NOTHING, egress=None, node="10.1.1.1")
    assert (fresh.allowed, set(fresh.denied)) == ("-", {"api", "dns", "10.1.1.1:10250"})
    assert proof(public, NOTHING, egress=None, node="n").denied == ("dns",)
    assert proof(proxied, NOTHING, egress="10.2.2.2", node="n").denied == ("10.2.2.2:3128",)
    assert proof(NOTHING, public, egress=None, node="n").allowed == "dns"
    narrowed = proof(install, proxied, egress="10.2.2.2", node="n")
    assert (narrowed.allowed, narrowed.denied) == ("10.2.2.2:3128", ("10.2.2.2:3129",))


def test_what_ends_at_a_switch() -> None:
    public, one, two = Reach("public"), Reach("proxy", ("a",)), Reach("proxy", ("b",))
    assert proof(None, public, egress=None, node=None).end == "none"
    assert proof(public, NOTHING, egress=None, node=None).end == "open"
    assert proof(one, two, egress="e", node=None).end == "open"
    assert proof(NOTHING, public, egress=None, node=None).end == "none"
    assert proof(public, public, egress=None, node=None, installed=True).end == "all"


def test_the_policies_close_what_has_no_label_and_every_private_range() -> None:
    found = {p["metadata"]["name"]: p for p in policies(["203.0.113.7"])}
    closed = found["harbor-assets-sandbox-closed"]["spec"]
    assert (closed["ingress"], closed["egress"]) == ([], [])
    assert "harbor/network" not in closed["podSelector"]["matchLabels"]
    assert all(p["spec"]["ingress"] == [] for p in found.values())
    world = found["harbor-assets-sandbox-public"]["spec"]["egress"][1]["to"][0]["ipBlock"]
    excepted = [ipaddress.ip_network(text) for text in world["except"]]
    for inside in ("10.96.0.1", "172.20.1.1", "192.168.1.1", "169.254.169.254", "100.100.100.200", "203.0.113.7"):
        assert any(ipaddress.ip_address(inside) in net for net in excepted)
    assert not any(ipaddress.ip_address("1.1.1.1") in net for net in excepted)
    for label, port in PORTS.items():
        rule = found[f"harbor-assets-sandbox-{label}"]["spec"]["egress"]
        assert [r["ports"] for r in rule] == [[{"protocol": "TCP", "port": port}]]
