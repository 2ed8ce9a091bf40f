"""What a sandbox may reach in each phase: four static NetworkPolicies chosen by one pod label, and their proof. Pure.

| label | may reach | DNS |
|---|---|---|
| none | nothing | no |
| install | the egress proxy's port for the time an agent installs itself | no |
| proxy | the egress proxy's port for the time it runs and is graded | no |
| public | everything but private, link-local and node addresses | the cluster's |

One more policy selects every sandbox and allows nothing, so a missing or unknown label is closed, and no sandbox takes
connections from anybody. The two proxy ports make the phase a matter of the label, which a sandbox cannot change: what
an installer was given to show the proxy is worth nothing at the other port.

A label is not yet a policy in force (a fresh pod is open for up to a second), so each mode is proven from inside before
anything of the task runs. What proves it is an address that the mode before allowed.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from harbor_assets.domain.profiles import PUBLIC, NetworkPolicy, SandboxProfile, narrow
from harbor_assets.sandboxes.kubernetes.manifests import (
    COMPONENT,
    LABEL_COMPONENT,
    LABEL_NETWORK,
    LABEL_PART_OF,
    PART_OF,
)

Label = Literal["none", "install", "proxy", "public"]
Phase = Literal["install", "run"]

EGRESS = "harbor-assets-egress"  # the proxy's Service
EGRESS_COMPONENT = "egress"
PORTS: dict[Label, int] = {"proxy": 3128, "install": 3129}
DNS_PORT = 53
KUBELET_PORT = 10250
# Private and special ranges of IPv4 (RFC 6890) that a cluster or a cloud may use inside. The metadata address of
# clouds, 169.254.169.254, is in them. Nodes with public addresses are to be added. IPv6 is closed altogether.
PRIVATE = (
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/4",
    "240.0.0.0/4",
)


@dataclass(frozen=True, slots=True)
class Reach:
    """What a sandbox may reach now: the label that makes it so, and the hosts the proxy lets it name."""

    label: Label
    hosts: tuple[str, ...] = ()

    @property
    def proxied(self) -> bool:
        """Whether the egress proxy is the only way out."""
        return self.label in PORTS


NOTHING = Reach("none")


def reach(policy: NetworkPolicy, profile: SandboxProfile, phase: Phase) -> Reach:
    """What a phase gets: the task's policy narrowed by the profile; while an agent installs itself the profile's
    `install_hosts` are open beside its `hosts`."""
    wide = profile
    if phase == "install" and profile.hosts != PUBLIC:
        hosts = PUBLIC if profile.install_hosts == PUBLIC else profile.hosts + profile.install_hosts
        wide = profile.model_copy(update={"hosts": hosts})
    narrowed = narrow(policy, wide)
    if narrowed.mode == "public":
        return Reach("public")
    if narrowed.mode == "no-network":
        return NOTHING
    return Reach("install" if phase == "install" else "proxy", narrowed.hosts)


def wider(new: Reach, old: Reach) -> bool:
    """Whether everything the old reach allows the new one allows too."""
    if old == NOTHING or new.label == "public":
        return True
    return new.label == old.label and set(old.hosts) <= set(new.hosts)


@dataclass(frozen=True, slots=True)
class Proof:
    """What to look at: an address that must answer ("-": none), addresses that must not, and which processes end.

    "api" and "dns" stand for the pod's own addresses of them. `end`: "all" of them, those with "open" connections,
    or "none".
    """

    allowed: str
    denied: tuple[str, ...]
    end: Literal["all", "open", "none"]


def proof(
    before: Reach | None, after: Reach, *, egress: str | None, node: str | None, installed: bool = False
) -> Proof:
    """How to prove that a sandbox went from one reach to another; `before` None: it is fresh, and may be wide open.

    `egress`: the proxy's address, where it is in use; `node`: the address of the pod's node. `installed`: the agent's
    installation has just ended, and what it left ends with it.
    """
    allowed = "-"
    if after.label == "public":
        allowed = "dns"
    elif after.proxied and egress:
        allowed = f"{egress}:{PORTS[after.label]}"
    denied: list[str] = []
    if before is None:
        denied += ["api", *([f"{node}:{KUBELET_PORT}"] if node else [])]
    if after.label != "public" and (before is None or before.label == "public"):
        denied.append("dns")
    if egress:
        for label, port in PORTS.items():
            if label != after.label and (before is None or before.label == label):
                denied.append(f"{egress}:{port}")
    if installed:
        return Proof(allowed, tuple(denied), "all")
    same = before is None or before in (after, NOTHING)
    return Proof(allowed, tuple(denied), "none" if same else "open")


def policies(nodes: Iterable[str] = (), *, dns_namespace: str = "kube-system") -> list[dict[str, Any]]:
    """The NetworkPolicies of a namespace that holds sandboxes. `nodes`: addresses or ranges of the cluster's nodes
    and of its apiserver, needed where they are public ones."""
    dns = {
        "to": [
            {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": dns_namespace}},
                "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
            }
        ],
        "ports": [{"protocol": protocol, "port": DNS_PORT} for protocol in ("UDP", "TCP")],
    }
    world = {"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": _excepted(nodes)}}]}
    return [
        _policy("harbor-assets-sandbox-closed", {}, []),
        _policy("harbor-assets-sandbox-public", {LABEL_NETWORK: "public"}, [dns, world]),
        *(
            _policy(
                f"harbor-assets-sandbox-{label}",
                {LABEL_NETWORK: label},
                [
                    {
                        "to": [{"podSelector": {"matchLabels": egress_labels()}}],
                        "ports": [{"protocol": "TCP", "port": port}],
                    }
                ],
            )
            for label, port in PORTS.items()
        ),
    ]


def egress_labels() -> dict[str, str]:
    """The labels by which policies and the Service find the proxy's pods."""
    return {LABEL_PART_OF: PART_OF, LABEL_COMPONENT: EGRESS_COMPONENT}


def _excepted(nodes: Iterable[str]) -> list[str]:
    ranges = [ipaddress.ip_network(text, strict=False) for text in (*PRIVATE, *nodes)]
    four = [net for net in ranges if isinstance(net, ipaddress.IPv4Network)]
    return [str(net) for net in ipaddress.collapse_addresses(four)]


def _policy(name: str, extra: dict[str, str], egress: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "labels": {LABEL_PART_OF: PART_OF}},
        "spec": {
            "podSelector": {"matchLabels": {LABEL_PART_OF: PART_OF, LABEL_COMPONENT: COMPONENT, **extra}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [],
            "egress": list(egress),
        },
    }
