"""A probe of a cluster's network from inside: two pods, two policies, gone again however it ends.

Everything belongs to the server's Job, which ends by itself and is deleted by the cluster a minute later: after a
SIGKILL of this program nothing stays either.
"""

import json
import secrets
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

from harbor_assets.domain.errors import HarborAssetsError, ServiceUnavailable
from harbor_assets.interfaces.deployment.kubectl import Kubectl
from harbor_assets.interfaces.deployment.manifests import Object
from harbor_assets.interfaces.deployment.waiting import trouble_of
from harbor_assets.interfaces.doctor.findings import Finding, fail, ok, warn
from harbor_assets.interfaces.doctor.pods import LABEL, client_pod, policies, server_job

START_SECONDS = 120.0  # of a pod, its image's pull included
END_SECONDS = 60.0
POLL_SECONDS = 1.0
_NEVER = ("ErrImageNeverPull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError")
_NAME = "kubernetes.default.svc"


@dataclass(frozen=True, slots=True)
class Targets:
    """What is looked for from inside, as the settings write it; empty: nothing is set."""

    registry: str = ""
    insecure: Sequence[str] = ()
    buildkit: str = ""
    database: str = ""


@dataclass(frozen=True, slots=True)
class Probe:
    """`place` are pod fields that say where our own pods run and what pulls their image."""

    kubectl: Kubectl
    namespace: str
    image: str
    place: Mapping[str, Any]
    targets: Targets

    def look(self) -> Iterator[Finding]:
        """What the two pods found."""
        mark = secrets.token_hex(4)
        with self._cleaned(mark):
            job = self._create(server_job(mark, self.image, self.place, _asked(self.targets)))
            owner = {"apiVersion": "batch/v1", "kind": "Job", **{key: job["metadata"][key] for key in ("name", "uid")}}
            for policy in policies(mark, owner):
                self._create(policy)
            server = self._pod(mark, "server", _running)
            self._create(client_pod(mark, self.image, self.place, owner, server["status"]["podIP"]))
            seen = _last_word(self._pod(mark, "client", _ended))
            around = _last_word(self._pod(mark, "server", _ended))
        yield network(seen)
        yield from surroundings(around, self.targets)

    def _create(self, body: Object) -> Object:
        return json.loads(self.kubectl("create", "-n", self.namespace, "-f", "-", "-o", "json", stdin=json.dumps(body)))

    def _pod(self, mark: str, role: str, done: Any) -> Object:
        """The pod once `done` says so. Raises `ServiceUnavailable` with what keeps it."""
        until = time.monotonic() + START_SECONDS
        while True:
            pods = self.kubectl.items("pods", "-n", self.namespace, "-l", f"{LABEL}={mark},{LABEL}-role={role}")
            if pods and done(pods[0]):
                return pods[0]
            why = "; ".join(trouble_of(pods))
            hopeless = any(word in why for word in _NEVER)
            if hopeless or time.monotonic() > until:
                said = why or "nobody says why"
                raise ServiceUnavailable(
                    f"The {role} of the probe does not run ({self.image} in {self.namespace}): {said}. Name an image "
                    "with Python that the cluster can pull with --image"
                )
            time.sleep(POLL_SECONDS)

    @contextmanager
    def _cleaned(self, mark: str) -> Iterator[None]:
        """Whatever happens inside, signals too: nothing of it is left."""
        with _raised(signal.SIGTERM, signal.SIGHUP):
            try:
                yield
            finally:
                with _ignored(signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                    kinds = "jobs,pods,networkpolicies"
                    with suppress(HarborAssetsError):  # it goes by itself then, with its Job
                        self.kubectl(
                            "delete", kinds, "-n", self.namespace, "-l", f"{LABEL}={mark}", "--ignore-not-found",
                            f"--timeout={END_SECONDS:.0f}s",
                        )  # fmt: skip


def network(seen: Mapping[str, bool]) -> Finding:
    """What it means that ports are reached."""
    check = "network policies"
    if not seen["open"]:
        return fail(check, "a pod does not reach another, without a policy that forbids it", "Repair the pod network")
    loose = [name for name in ("ingress", "egress") if seen[name]]
    if loose:
        return fail(
            check,
            f"are not enforced for {' and '.join(loose)}: sandboxes would reach what they must not",
            "Install a network plugin that enforces them, such as Calico or Cilium, or switch on what your cloud has",
        )
    return ok(check, "are enforced, ingress and egress")


def surroundings(found: Mapping[str, str], targets: Targets) -> Iterator[Finding]:
    """What pods reach: each entry is empty, or says why not."""
    if why := found["dns"]:
        yield fail("dns", f"pods cannot resolve {_NAME}: {why}", "Look at the cluster's DNS in kube-system")
    else:
        yield ok("dns", f"pods resolve {_NAME}")
    for name, setting, without in (
        ("registry", targets.registry, "only tasks with a docker_image run"),
        ("buildkit", targets.buildkit, "tasks with a Dockerfile cannot be built"),
        ("database", targets.database, ""),
    ):
        variable = f"HARBOR_ASSETS_{name.upper()}"
        if not setting:
            if without:
                yield warn(name, f"{variable} is not set: {without}", f"Set {variable}, see docs/cluster.md")
        elif name not in found:
            yield warn(name, f"{setting} cannot be looked at from a pod")
        elif why := found[name]:
            yield fail(name, f"pods do not reach {setting}: {why}", "Look at its address, and at firewalls between")
        else:
            yield ok(name, f"pods reach {setting}")


def _asked(targets: Targets) -> dict[str, Any]:
    reach: dict[str, list[Any]] = {}
    for name, text in (("buildkit", targets.buildkit.removeprefix("tcp://")), ("database", targets.database)):
        host, _, port = text.rpartition(":")
        if host and port.isdigit():
            reach[name] = [host.strip("[]"), int(port)]
    host = targets.registry.partition("/")[0]
    scheme = "http" if host in targets.insecure else "https"
    return {"dns": _NAME, "reach": reach, "answer": {"registry": f"{scheme}://{host}/v2/"} if host else {}}


def _phase(pod: Object) -> str:
    return pod["status"].get("phase", "")


def _running(pod: Object) -> bool:
    return _phase(pod) == "Running" and "podIP" in pod["status"]


def _ended(pod: Object) -> bool:
    return _phase(pod) in ("Succeeded", "Failed")


def _last_word(pod: Object) -> dict[str, Any]:
    """What a pod of ours wrote at its end. Raises `ServiceUnavailable` if it did not come to that."""
    for status in pod["status"].get("containerStatuses", ()):
        ended = status.get("state", {}).get("terminated", {})
        with suppress(ValueError):
            return json.loads(ended.get("message", ""))
    why = pod["status"].get("reason", _phase(pod))
    raise ServiceUnavailable(
        f"Pod {pod['metadata']['name']} of the probe ended without a word ({why}); does its image hold python3? Name "
        "another with --image"
    )


@contextmanager
def _raised(*numbers: signal.Signals) -> Iterator[None]:
    """These signals are what Ctrl-C is, so that what must be cleaned up is."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _ignored(*numbers: signal.Signals) -> Iterator[None]:
    """These signals count for nothing, for the programs begun meanwhile neither."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
