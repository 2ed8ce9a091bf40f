"""Why a pod is not at work, or is gone: from its status, conditions, events and watch to one reason. Pure.

Pods come as the API server's JSON. One set of rules for the pods of task workers and of sandboxes, so that both are
told in the same words. Exit codes say nothing here: every death of a container looks like 137 to whoever had a command
in it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

Reason = Literal[
    "waiting", "unschedulable", "too_large", "image_pull", "image_name", "bad_spec", "out_of_memory", "disk_full",
    "evicted", "preempted", "node_lost", "deadline", "ended", "deleted", "lost", "running",
]  # fmt: skip

# On the pod of a task's worker: what the sandbox waits for that has no pod yet, and so nothing else to say it on.
WAITS_FOR = "harbor/waits-for"

# On a sandbox that stays after its trial, to be looked at: until when, as ISO 8601.
KEEP_UNTIL = "harbor/keep-until"

_PULL = frozenset({"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "RegistryUnavailable", "ImageInspectError"})
_SPEC = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError"})
# Said by registries and runtimes when another try cannot help.
_PERMANENT_PULL = re.compile(
    r"not found|manifest unknown|name unknown|repository does not exist|no match for platform|unauthorized|denied"
    r"|invalid reference format|authorization failed|insufficient_scope",
    re.IGNORECASE,
)
_DISRUPTION: Mapping[str, Reason] = {
    "PreemptionByScheduler": "preempted",
    "DeletionByTaintManager": "node_lost",
    "DeletionByPodGC": "node_lost",
    "EvictionByEvictionAPI": "evicted",
    "TerminationByKubelet": "evicted",
}
# Two ways of eviction, told apart in words: the one is the node's trouble, the other somebody's wish.
_EVICTERS: Mapping[str, str] = {
    "EvictionByEvictionAPI": "drained, or evicted by another request: ",
    "TerminationByKubelet": "evicted by its node: ",
}
_SCALING = frozenset({"TriggeredScaleUp", "Nominated"})  # an autoscaler is making a node
_NODES = re.compile(r"^(\d+)/(\d+) nodes are available: (.*?)(?:\.? preemption: (.*))?$", re.DOTALL)
_COUNTED = re.compile(r"(\d+) (.+?)(?:,|\.?$)")
_QUOTA_PART = re.compile(r"([\w./-]+)=([0-9.]+)([a-zA-Z]*)")
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)([a-zA-Z]*)")
_SCALE = {
    "": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason with what was seen. `hopeless`: waiting longer cannot change it."""

    reason: Reason
    evidence: tuple[str, ...] = ()
    hopeless: bool = False

    @property
    def ended(self) -> bool:
        """Whether the pod is gone or ending, as opposed to not there yet or at work."""
        return self.reason not in (
            "waiting",
            "unschedulable",
            "too_large",
            "image_pull",
            "image_name",
            "bad_spec",
            "running",
        )

    def __str__(self) -> str:
        return f"{self.reason}: {'; '.join(self.evidence) or 'no further word of the cluster'}"


def diagnose(
    pod: Mapping[str, Any] | None,
    *,
    uid: str | None = None,
    gone: bool = False,
    history: Sequence[Mapping[str, Any]] = (),
    events: Iterable[Mapping[str, Any]] = (),
) -> Finding:
    """The reason for a pod's state.

    `pod`: as it is now, None if there is none; `gone`: it was deleted, and `pod` is what it was last; `history`:
    what a watch saw before, oldest first (after an eviction with no grace it holds the only evidence); `events`: the
    pod's events.
    """
    said = tuple(_sentence(event) for event in events)[-4:]
    if pod is None or gone or (uid and pod["metadata"].get("uid") != uid):
        for past in ([] if pod is None or (uid and pod["metadata"].get("uid") != uid) else [pod]) + list(history)[::-1]:
            found = _of_status(past, said)
            if found.ended and found.reason not in ("deleted", "ended"):
                return found
        for reason, words in (("evicted", ("Evicted", "TaintManagerEviction")), ("preempted", ("Preempted",))):
            if any(line.startswith(words) for line in said):
                return Finding(reason, said)  # pyright: ignore[reportArgumentType]
        return Finding("lost", ("the pod was deleted, not by its trial", *said))
    return _of_status(pod, said)


def _of_status(pod: Mapping[str, Any], said: tuple[str, ...]) -> Finding:
    status = pod.get("status", {})
    conditions = {
        c["type"]: c for c in status.get("conditions", []) if c.get("status") != "False" or c["type"] == "PodScheduled"
    }
    container = next(iter(status.get("containerStatuses", [])), {})
    state = container.get("state", {})
    ended, waiting = state.get("terminated") or {}, state.get("waiting") or {}
    words = tuple(
        text
        for text in (
            status.get("message"),
            f"container: {ended.get('reason')}, exit code {ended.get('exitCode')}" if ended else None,
            *said,
        )
        if text
    )
    if found := _death(pod, status, conditions, ended, words):
        return found
    if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
        return _not_started(waiting, said)
    if "running" in state:
        return Finding("running")
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        text = scheduled.get("message", "")
        scaling = any(line.startswith(tuple(_SCALING)) for line in said)
        reason: Reason = "too_large" if larger_than_any_node(text) and not scaling else "unschedulable"
        return Finding(reason, (text,) if text else said, hopeless=reason == "too_large")
    return Finding("waiting", said)


def _death(
    pod: Mapping[str, Any],
    status: Mapping[str, Any],
    conditions: Mapping[str, Mapping[str, Any]],
    ended: Mapping[str, Any],
    words: tuple[str, ...],
) -> Finding | None:
    if status.get("reason") == "DeadlineExceeded":
        return Finding("deadline", words, hopeless=True)
    if status.get("reason") == "Evicted":
        # the kubelet's own words for a limit of the pod's; without them the node itself was short of something
        own = re.search(
            r"exceeds? the (total )?limit|exceeded its local ephemeral storage limit", status.get("message", "")
        )
        return Finding("disk_full" if own else "evicted", words, hopeless=True)
    if target := conditions.get("DisruptionTarget"):
        because = _DISRUPTION.get(target.get("reason", ""), "evicted")
        who = _EVICTERS.get(target.get("reason", ""), "")
        return Finding(because, (f"{who}{target.get('reason')}: {target.get('message', '')}", *words), hopeless=True)
    if ended.get("reason") == "OOMKilled":
        return Finding("out_of_memory", words, hopeless=True)
    if status.get("reason") in ("NodeLost", "NodeShutdown", "NodeAffinity", "Terminated"):
        return Finding("node_lost", (str(status["reason"]), *words), hopeless=True)
    if status.get("reason") in ("OutOfcpu", "OutOfmemory", "OutOfpods", "UnexpectedAdmissionError"):
        return Finding("preempted", (str(status["reason"]), *words), hopeless=True)
    if pod["metadata"].get("deletionTimestamp"):
        return Finding("deleted", ("the pod is being deleted, not by its trial", *words), hopeless=True)
    if ended or status.get("phase") in ("Failed", "Succeeded"):
        return Finding("ended", (f"phase {status.get('phase')}", *words), hopeless=True)
    return None


def _not_started(waiting: Mapping[str, Any], said: tuple[str, ...]) -> Finding:
    why, text = waiting["reason"], str(waiting.get("message", ""))
    words = (f"{why}: {text}", *(line for line in said if line.startswith(("Failed", "InspectFailed"))))
    if why == "InvalidImageName":
        return Finding("image_name", words, hopeless=True)
    if why in _PULL:
        # ImagePullBackOff has no cause of its own in older kubelets: the events have it
        return Finding("image_pull", words, hopeless=any(_PERMANENT_PULL.search(word) for word in words))
    if why in _SPEC:
        return Finding("bad_spec", words, hopeless=True)
    return Finding("waiting", words)


def pull_can_get_better(message: str) -> bool:
    """Whether another try may bring an image that could not be pulled: no registry said that it never will."""
    return not _PERMANENT_PULL.search(message) and "image_name" not in message and "no image" not in message


def larger_than_any_node(message: str) -> bool:
    """Whether the scheduler's message says that the pod would not fit any node, even an empty one.

    `0/3 nodes are available: 3 Insufficient memory. preemption: 0/3 nodes are available: 3 Preemption is not helpful
    for scheduling.` A node that is only full answers "No preemption victims found" in the second half; one that is
    too small, or not of the wanted kind, answers that preemption does not help (kubernetes
    pkg/scheduler/framework/plugins/noderesources/fit.go). Nodes with a taint may lose it, so with one of those the
    pod waits.
    """
    match = _NODES.match(message.strip())
    if not match or match[1] != "0" or match[2] == "0" or not match[4]:
        return False
    kinds = [kind for _, kind in _COUNTED.findall(match[3])]
    if any("taint" in kind or "unschedulable" in kind or "disk" in kind.lower() for kind in kinds):
        return False
    helpless = sum(int(n) for n, kind in _COUNTED.findall(match[4].partition(": ")[2]) if "not helpful" in kind)
    known = all(kind.startswith("Insufficient") or "affinity" in kind or "selector" in kind for kind in kinds)
    return known and helpless == int(match[2])


def quota(message: str) -> Literal["wait", "never"] | None:
    """What a refusal (HTTP 403) by a resource quota means: it may fit later, or never; None: it is no such refusal.

    `exceeded quota: q, requested: limits.cpu=2, used: limits.cpu=1, limited: limits.cpu=2`: what is asked alone is
    above the limit, or only together with what is used.
    """
    if "exceeded quota:" not in message:
        return None
    parts = {name: _quantities(message, name) for name in ("requested", "limited")}
    above = any(value > parts["limited"].get(name, float("inf")) for name, value in parts["requested"].items())
    return "never" if above else "wait"


def quantity(text: str) -> float | None:
    """A Kubernetes quantity ("50m", "64Mi") as a number; None if it is none that we know."""
    match = _QUANTITY.fullmatch(text)
    return float(match[1]) * _SCALE[match[2]] if match and match[2] in _SCALE else None


def _quantities(message: str, part: str) -> dict[str, float]:
    match = re.search(rf"{part}: ([^ ]+)", message)
    return {
        name: float(number) * _SCALE.get(unit, 1.0)
        for name, number, unit in _QUOTA_PART.findall(match[1] if match else "")
    }


def _sentence(event: Mapping[str, Any]) -> str:
    return f"{event.get('reason', '')}: {event.get('message', '')}"


def kept(pod: Mapping[str, Any], now: datetime) -> bool:
    """Whether this pod stays for somebody to look at, and so is not yet to be cleaned away. `now` knows its zone."""
    until = ((pod.get("metadata") or {}).get("annotations") or {}).get(KEEP_UNTIL)
    try:
        return until is not None and datetime.fromisoformat(until) > now
    except (TypeError, ValueError):
        return False
