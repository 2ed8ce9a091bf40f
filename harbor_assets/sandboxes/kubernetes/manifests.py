"""The sandbox pod as Kubernetes sees it. Pure: what goes in decides what comes out.

Security, field by field. Tasks install packages, change users and start servers, so the container runs as root with
what those need and nothing else:

* `seccompProfile: RuntimeDefault`, never privileged, no host namespaces, no host paths, no token, no service links;
* capabilities: all dropped, then the part of the runtime's own default set that the pod security level `baseline`
  allows and apt, dpkg, useradd, su, sudo and servers on low ports use. Not NET_RAW (it forges packets), not MKNOD;
* `allowPrivilegeEscalation` stays on: su and sudo of an ordinary user are set-user-ID programs.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from harbor_assets.domain.outcomes import Frozen
from harbor_assets.domain.pods import quantity
from harbor_assets.domain.profiles import SandboxProfile
from harbor_assets.sandboxes.sizes import Sizes

PART_OF = "harbor-assets"
LABEL_PART_OF = "app.kubernetes.io/part-of"
LABEL_COMPONENT = "app.kubernetes.io/component"
LABEL_RUN, LABEL_TASK, LABEL_ROLE, LABEL_NETWORK = "harbor/run-id", "harbor/task", "harbor/role", "harbor/network"
COMPONENT = "sandbox"
CONTAINER = "main"
FOLDER = "/.sandbox"  # our scripts and the output of commands; an emptyDir, so an image may be read-only there
GRACE_SECONDS = 5  # an eviction's evidence stands in the pod's status for as long; our own deletes wait for nothing
CAPABILITIES = tuple(
    """AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL NET_BIND_SERVICE SETFCAP SETGID SETPCAP SETUID
    SYS_CHROOT""".split()
)
# A shell in `wait` reaps whatever is orphaned to it; `sleep` as PID 1 would not. The kernel keeps signals without a
# handler from a PID 1, but shells bring handlers of their own (an agent's `kill -INT 1` ended dash with 130), so all
# but CHLD are ignored. The kubelet's TERM is too, its KILL after the grace makes 137: never 0, which would read as
# "Succeeded".
_IGNORED = "1 2 3 4 5 6 7 8 10 11 12 13 14 15 16 18 20 21 22 23 24 25 26 27 28 29 30 31"
# What it waits for is a shell of its own that reads a pipe into which nobody writes: held open, so that nothing an
# agent removes (`sleep`, the pipe itself) makes it spin.
_PIPE = f"{FOLDER}/idle"
IDLE = (
    "sh",
    "-c",
    f"trap '' {_IGNORED}; mkfifo -m 600 {_PIPE} && exec 9<>{_PIPE} || exit 70; "
    "while :; do read -r _ <&9 & wait $!; done",
)

# What a profile's extra pod fields may not touch: security, ownership, lifetime and our own containers.
PROTECTED = frozenset(
    """activeDeadlineSeconds automountServiceAccountToken containers enableServiceLinks ephemeralContainers hostIPC
    hostNetwork hostPID hostUsers initContainers nodeName restartPolicy securityContext serviceAccount
    serviceAccountName shareProcessNamespace terminationGracePeriodSeconds volumes""".split()
)


class Owner(Frozen):
    """The object (a trial's Job or pod) that takes the sandbox with it when it is deleted."""

    api_version: str
    kind: str
    name: str
    uid: str


class Sandbox(Frozen):
    """Everything that decides a sandbox's pod. `environment` are variables of the container, not secret ones."""

    name: str
    image: str
    role: str
    run_id: str
    task_index: int
    session: str
    network: str
    lifetime_seconds: int = Field(gt=0)
    sizes: Sizes = Sizes()
    profile: SandboxProfile
    owner: Owner | None = None


def pod_name(run_id: str, task_index: int, session: str, role: str) -> str:
    """A name for one sandbox of a trial, at most 63 characters, unique by session.

    Sessions of one trial differ by role and by Harbor's own key; the hash keeps names apart that differ in case.
    """
    digest = hashlib.sha256(session.encode()).hexdigest()[:10]
    stem = re.sub(r"[^a-z0-9]+", "-", f"{run_id}-{task_index}".lower()).strip("-")[:40].strip("-")
    return f"{stem or 'sandbox'}-{role}-{digest}"


def pod(box: Sandbox) -> dict[str, Any]:
    """The pod of a sandbox. Raises ValueError if the profile's extra fields touch what is ours."""
    profile = box.profile
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "activeDeadlineSeconds": box.lifetime_seconds,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "volumes": [{"name": "sandbox", "emptyDir": {}}],
        "containers": [
            {
                "name": CONTAINER,
                "image": box.image,
                "imagePullPolicy": "IfNotPresent",  # by digest: what is there is what was asked for
                "command": list(IDLE),
                "resources": resources(box.sizes, profile),
                "volumeMounts": [{"name": "sandbox", "mountPath": FOLDER}],
                "securityContext": {
                    "runAsUser": 0,
                    "runAsGroup": 0,
                    "privileged": False,
                    "allowPrivilegeEscalation": True,
                    "capabilities": {"drop": ["ALL"], "add": list(CAPABILITIES)},
                },
            }
        ],
    }
    if profile.node_selector:
        spec["nodeSelector"] = dict(profile.node_selector)
    if profile.tolerations:
        spec["tolerations"] = [dict(toleration) for toleration in profile.tolerations]
    if profile.runtime_class:
        spec["runtimeClassName"] = profile.runtime_class
    if profile.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in profile.image_pull_secrets]
    touched = sorted(PROTECTED & profile.pod_overrides.keys())
    if touched:
        raise ValueError(
            f"sandbox profile '{profile.name}': pod_overrides may not set {', '.join(touched)}; security, ownership "
            "and lifetime of a sandbox are fixed. Remove them from the profile."
        )
    spec = _merged(spec, profile.pod_overrides)
    metadata: dict[str, Any] = {
        "name": box.name,
        "labels": {**profile.labels, **labels(box)},
        "annotations": {**profile.annotations, "harbor/session": box.session},
    }
    if box.owner:
        owner = box.owner
        # blockOwnerDeletion needs a right on the owner's finalizers, which a trial worker does not have
        metadata["ownerReferences"] = [
            {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
        ]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def labels(box: Sandbox) -> dict[str, str]:
    """The labels that are ours: clean-up, the reaper and the network policies go by them."""
    return {
        LABEL_PART_OF: PART_OF,
        LABEL_COMPONENT: COMPONENT,
        LABEL_RUN: box.run_id,
        LABEL_TASK: str(box.task_index),
        LABEL_ROLE: box.role,
        LABEL_NETWORK: box.network,
    }


def resources(sizes: Sizes, profile: SandboxProfile) -> dict[str, dict[str, str]]:
    """Limits as asked; requests equal to them, unless the profile asks the scheduler for something else, which is never
    more than the limit: Kubernetes refuses that.

    Where nothing is asked nothing is set: a namespace's LimitRange may then decide.
    """
    at_most: dict[str, str] = {}
    if sizes.cpus is not None:
        at_most["cpu"] = f"{round(sizes.cpus * 1000)}m"
    if sizes.memory_mb is not None:
        at_most["memory"] = f"{sizes.memory_mb}Mi"
    if sizes.storage_mb is not None:
        at_most["ephemeral-storage"] = f"{sizes.storage_mb}Mi"
    asked = dict(at_most)
    for name, wanted in (("cpu", profile.requests.cpu), ("memory", profile.requests.memory)):
        if wanted is not None and not _above(wanted, at_most.get(name)):
            asked[name] = wanted
    if sizes.gpus:
        if profile.gpu_resource is None:
            raise ValueError(f"sandbox profile '{profile.name}' has no gpu_resource to ask {sizes.gpus} GPUs of")
        at_most[profile.gpu_resource] = asked[profile.gpu_resource] = str(sizes.gpus)
    return {"limits": at_most, "requests": asked}


def _above(wanted: str, limit: str | None) -> bool:
    """What is no quantity is left to the API server, which says why."""
    number, most = quantity(wanted), quantity(limit) if limit else None
    return number is not None and most is not None and number > most


def _merged(base: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings merge, lists of ours get the extra ones after them, anything else is replaced."""
    result = dict(base)
    for key, value in extra.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, Mapping):
            result[key] = _merged(old, value)
        elif isinstance(old, list) and isinstance(value, list | tuple):
            result[key] = [*old, *value]
        else:
            result[key] = value
    return result
