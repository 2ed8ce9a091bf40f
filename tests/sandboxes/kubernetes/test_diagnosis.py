# ruff: noqa: E501 - what a cluster says stands in one line
"""From what Kubernetes says of a pod to one reason. The statuses are those a real cluster (1.34) gave."""

from typing import Any

import pytest

from harbor_assets.domain.pods import diagnose, larger_than_any_node, quota
from harbor_assets.sandboxes import errors
from harbor_assets.sandboxes.kubernetes.diagnosis import error_of

RUNNING = {"state": {"running": {"startedAt": "x"}}}


def made(uid: str = "u", deleting: bool = False, **status: Any) -> dict[str, Any]:
    meta: dict[str, Any] = {"uid": uid, "name": "p"}
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": meta, "status": status}


def container(**state: Any) -> list[dict[str, Any]]:
    return [{"name": "main", "state": state}]


ENDED = {"reason": "Error", "exitCode": 137}
EVICTED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API"}
FULL = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
TOO_SMALL = "0/3 nodes are available: 3 Insufficient memory. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
TAINTED = "0/1 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
ELSEWHERE = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
MIXED = "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."


@pytest.mark.parametrize(
    ("pod", "reason", "error"),
    [
        (made(phase="Running", containerStatuses=[RUNNING]), "running", None),
        (made(phase="Failed", reason="DeadlineExceeded"), "deadline", errors.SandboxDeadline),
        (
            made(phase="Failed", reason="Evicted", message="Pod ephemeral local storage usage exceeds the total limit of containers 50Mi."),
            "disk_full",
            errors.SandboxDiskFull,
        ),
        (made(phase="Failed", reason="Evicted", message="The node was low on resource: memory."), "evicted", errors.SandboxEvicted),
        (
            made(deleting=True, phase="Running", conditions=[EVICTED], containerStatuses=container(terminated=ENDED)),
            "evicted",
            errors.SandboxEvicted,
        ),
        (
            made(phase="Failed", containerStatuses=container(terminated={"reason": "OOMKilled", "exitCode": 137})),
            "out_of_memory",
            errors.SandboxOutOfMemory,
        ),
        (made(phase="Failed", containerStatuses=container(terminated=ENDED)), "ended", errors.SandboxLost),
        (made(deleting=True, phase="Running", containerStatuses=[RUNNING]), "deleted", errors.SandboxLost),
        (made(phase="Failed", reason="OutOfcpu"), "preempted", errors.SandboxPreempted),
        (made(phase="Failed", reason="NodeShutdown"), "node_lost", errors.SandboxNodeLost),
    ],
)  # fmt: skip
def test_the_ways_a_sandbox_ends(pod: dict[str, Any], reason: str, error: type[Exception] | None) -> None:
    found = diagnose(pod, uid="u")
    assert found.reason == reason
    assert found.ended == (error is not None)
    if error:
        assert type(error_of(found, was_ready=True)) is error
        assert str(error_of(found, was_ready=True, role="verifier")) == f"{found} (the verifier's sandbox)"


@pytest.mark.parametrize(
    ("waiting", "reason", "hopeless"),
    [
        ({"reason": "ErrImagePull", "message": 'failed to resolve "r/x:1": r/x:1: not found'}, "image_pull", True),
        ({"reason": "ErrImagePull", "message": "pull access denied, repository does not exist"}, "image_pull", True),
        ({"reason": "ErrImagePull", "message": "dial tcp 10.0.0.1:443: i/o timeout"}, "image_pull", False),
        ({"reason": "InvalidImageName", "message": "couldn't parse"}, "image_name", True),
        ({"reason": "CreateContainerError", "message": "no command specified"}, "bad_spec", True),
        ({"reason": "ContainerCreating"}, "waiting", False),
        ({"reason": "PodInitializing"}, "waiting", False),
    ],
)
def test_what_a_start_waits_for(waiting: dict[str, str], reason: str, hopeless: bool) -> None:
    found = diagnose(made(phase="Pending", containerStatuses=container(waiting=waiting)), uid="u")
    assert (found.reason, found.hopeless, found.ended) == (reason, hopeless, False)


def test_a_back_off_takes_its_cause_from_the_events() -> None:
    pod = made(
        phase="Pending", containerStatuses=container(waiting={"reason": "ImagePullBackOff", "message": "Back-off"})
    )
    events = [{"reason": "Failed", "message": 'Failed to pull image "x": manifest unknown'}]
    assert not diagnose(pod).hopeless
    assert diagnose(pod, events=events).hopeless


def test_an_eviction_without_grace_is_known_by_the_watch_alone() -> None:
    before = made(phase="Running", conditions=[EVICTED], containerStatuses=[RUNNING])
    last = made(phase="Running", containerStatuses=[RUNNING])
    assert diagnose(last, uid="u", gone=True, history=[before]).reason == "evicted"
    assert diagnose(None, uid="u", gone=True, history=[before]).reason == "evicted"
    assert diagnose(None, uid="u", gone=True, events=[{"reason": "Preempted", "message": "by x"}]).reason == "preempted"


def test_a_pod_that_was_deleted_or_replaced_is_lost() -> None:
    running = made(phase="Running", containerStatuses=[RUNNING])
    for found in (
        diagnose(None),
        diagnose(running, uid="u", gone=True),
        diagnose(running, uid="other"),
        diagnose(made(deleting=True, containerStatuses=container(terminated=ENDED)), uid="u", gone=True),
    ):
        assert found.reason == "lost"
        assert type(error_of(found, was_ready=True)) is errors.SandboxLost
        assert type(error_of(found, was_ready=False)) is errors.SandboxStartError


@pytest.mark.parametrize(
    ("message", "never"),
    [
        (FULL, False),
        (TOO_SMALL, True),
        (TAINTED, False),
        (ELSEWHERE, True),
        (MIXED, False),
        ("", False),
        ("no nodes available", False),
    ],
)
def test_too_large_for_any_node(message: str, never: bool) -> None:
    assert larger_than_any_node(message) is never
    unscheduled = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]
    found = diagnose(made(phase="Pending", conditions=unscheduled))
    assert (found.reason, found.hopeless) == (("too_large", True) if never else ("unschedulable", False))


def test_a_node_that_is_being_made_is_waited_for() -> None:
    unscheduled = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": TOO_SMALL}]
    events = [{"reason": "TriggeredScaleUp", "message": "pod triggered scale-up"}]
    assert diagnose(made(phase="Pending", conditions=unscheduled), events=events).reason == "unschedulable"


@pytest.mark.parametrize(
    ("message", "verdict"),
    [
        ('pods "x" is forbidden: exceeded quota: q, requested: limits.cpu=2, used: limits.cpu=1, limited: limits.cpu=2', "wait"),
        ('pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3', "wait"),
        ('pods "x" is forbidden: exceeded quota: q, requested: cpu=1500m,memory=1Gi, used: cpu=0, limited: cpu=1,memory=2Gi', "never"),
        ('pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0', "never"),
        ('pods "x" is forbidden: maximum cpu usage per Container is 1', None),
        ('pods "x" is forbidden: violates PodSecurity "restricted:latest"', None),
    ],
)  # fmt: skip
def test_quota(message: str, verdict: str | None) -> None:
    assert quota(message) == verdict
