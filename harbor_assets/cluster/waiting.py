"""From a run's Jobs, pods and events to what it and its tasks wait for. Pure: the API server's JSON in, waits out."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harbor_assets.cluster.diagnosis import events_of, job_is_over, refusal
from harbor_assets.cluster.manifests import (
    COMPONENT_LABEL,
    ROLE_LABEL,
    RUN_WORKER,
    SANDBOX,
    SETTLING,
    STEP_WORKER,
    TASK_LABEL,
)
from harbor_assets.domain.pods import WAITS_FOR, Finding, diagnose, quota
from harbor_assets.domain.waiting import RunWaits, Wait, WaitReason, wait
from harbor_assets.engine.account import Lost

type Object = Mapping[str, Any]

_FAULTS = ("Failed", "Inspect", "NetworkNotReady", "Err")  # first words of events that say what goes wrong at a start
# The scheduler's second half is about other pods
_PREEMPTION = re.compile(r"\.?(?: no new claims to deallocate,)? preemption: .*", re.DOTALL)
_FORBIDDEN = re.compile(r'^pods "[^"]*" is forbidden: ')  # each try has another name, and so another sentence

_REASONS: Mapping[str, tuple[WaitReason, str]] = {
    "unschedulable": (WaitReason.SCHEDULING, "no node takes the pod of {whose}"),
    "too_large": (WaitReason.SCHEDULING, "no node could ever take the pod of {whose}"),
    "image_pull": (WaitReason.IMAGE_PULL, "the image of {whose} cannot be pulled"),
    "image_name": (WaitReason.IMAGE_PULL, "the image of {whose} has a bad name"),
    "bad_spec": (WaitReason.CANNOT_START, "the container of {whose} cannot be made"),
    "waiting": (WaitReason.STARTING, "{whose} is starting"),
}


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at a run. `jobs` without those that have succeeded, `pods` without those that have ended, `events` of
    whatever is in the namespace. `lost`: what is recorded of tasks' workers that left no result."""

    jobs: Sequence[Object] = ()
    pods: Sequence[Object] = ()
    events: Sequence[Object] = ()
    lost: Mapping[int, Lost] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the run's execution stands in Dagster. `queued`: it was not launched yet, and `others` runs were; `over`:
    there is none, or it has ended. `slots`: how many of the run's task Jobs may be active at once."""

    slots: int
    queued: bool = False
    over: bool = False
    others: int = 0


def waits(seen: Seen, tasks: Collection[int], standing: Standing) -> RunWaits:
    """What the run and those of its `tasks` (indexes of tasks that have not ended) wait for."""
    run = _of_run(seen, standing)
    jobs = {index: job for job in seen.jobs if (index := _task(job)) is not None and not job_is_over(job)}
    pods: dict[int, list[Object]] = {}
    for pod in seen.pods:
        if (index := _task(pod)) is not None:
            pods.setdefault(index, []).append(pod)
    found: dict[int, Wait] = {}
    for index in tasks:
        if index in jobs or index in pods:
            said = _of_task(jobs.get(index), pods.get(index, ()), seen.events)
        elif lost := seen.lost.get(index):
            said = wait(WaitReason.LOST, f"its worker is gone: {lost.message}")
        elif run or standing.over:
            said = None  # what keeps the run keeps the task
        elif len(jobs) >= standing.slots:
            said = wait(WaitReason.POOL_FULL, f"waits for a slot: {len(jobs)} of {standing.slots} are taken")
        else:
            said = wait(WaitReason.STARTING, "its Job is about to be made")
        if said:
            found[index] = said
    return RunWaits(run, found)


def tasks_of(seen: Seen) -> set[int]:
    """The tasks with a Job or pod that has not ended."""
    found = [_task(job) for job in seen.jobs if not job_is_over(job)] + [_task(pod) for pod in seen.pods]
    return {index for index in found if index is not None}


def _of_run(seen: Seen, standing: Standing) -> Wait | None:
    """What keeps the run's own worker, its first step, or in the end what merges its results."""
    if standing.queued:
        return wait(WaitReason.QUEUED, f"in the queue of runs; {standing.others} others are being run")
    for whose, mine in (
        (
            "the run worker",
            lambda item: _label(item, COMPONENT_LABEL) == RUN_WORKER and _label(item, ROLE_LABEL) is None,
        ),
        ("the first step", lambda item: _label(item, COMPONENT_LABEL) == STEP_WORKER and _task(item) is None),
        ("the step that merges the results", lambda item: _label(item, ROLE_LABEL) == SETTLING),
    ):
        jobs = [job for job in seen.jobs if mine(job) and not job_is_over(job)]
        pods = [pod for pod in seen.pods if mine(pod)]
        for job in jobs:
            own = [pod for pod in pods if _owned(pod, job)]
            if said := _of_pods(job, own, seen.events, whose):
                return said
    return None


def _of_task(job: Object | None, pods: Sequence[Object], events: Sequence[Object]) -> Wait | None:
    workers = [pod for pod in pods if _label(pod, COMPONENT_LABEL) == STEP_WORKER]
    if said := _of_pods(job, workers, events, "its worker"):
        return said
    for worker in workers:
        if told := (worker["metadata"].get("annotations") or {}).get(WAITS_FOR):
            return _of_refusal(told, "its sandbox")
    for pod in pods:
        if _label(pod, COMPONENT_LABEL) == SANDBOX:
            whose = "its verifier's sandbox" if _label(pod, ROLE_LABEL) == "verifier" else "its sandbox"
            if said := _of_pod(pod, events, whose):
                return said
    return None


def _of_pods(job: Object | None, pods: Sequence[Object], events: Sequence[Object], whose: str) -> Wait | None:
    for pod in pods:
        return _of_pod(pod, events, whose)
    if job is None:
        return None
    if said := refusal(job, events):
        return _of_refusal(said, whose)
    return wait(WaitReason.STARTING, f"the pod of {whose} is about to be made")


def _of_pod(pod: Object, events: Sequence[Object], whose: str) -> Wait | None:
    mine = [event for event in events_of(pod, events) if str(event.get("reason", "")).startswith(_FAULTS)]
    found = diagnose(pod, events=mine)
    if found.reason == "running":
        return None
    if found.reason == "ended" and _ended_well(pod):
        return None  # its Job is about to be over
    if found.ended:
        return wait(WaitReason.LOST, f"the pod of {whose} is ending: {found}")
    reason, words = _REASONS[found.reason]
    said = _words(found)
    return wait(reason, f"{words.format(whose=whose)}{f': {said}' if said else ''}")


def _ended_well(pod: Object) -> bool:
    states = [container.get("state") or {} for container in pod["status"].get("containerStatuses") or ()]
    return all((state.get("terminated") or {}).get("exitCode") == 0 for state in states)


def _words(found: Finding) -> str:
    """The evidence that says most: a back-off has its cause in an event, the scheduler's line half of its own."""
    if not found.evidence:
        return ""
    if found.reason in ("unschedulable", "too_large"):
        return _PREEMPTION.sub("", found.evidence[0])
    if found.reason == "waiting":
        return found.evidence[-1]
    causes = [line for line in found.evidence if not line.startswith(("ImagePullBackOff", "Failed: Error: "))]
    return (causes or list(found.evidence))[0]


def _of_refusal(said: str, whose: str) -> Wait:
    text = _FORBIDDEN.sub("", said)
    verdict = quota(said)
    if verdict == "never":
        return wait(WaitReason.QUOTA, f"the pod of {whose} is larger than a quota: {text}")
    if verdict == "wait":
        return wait(WaitReason.QUOTA, f"a quota has no room for the pod of {whose}: {text}")
    return wait(WaitReason.POLICY, f"the cluster refuses the pod of {whose}: {text}")


def _label(item: Object, name: str) -> str | None:
    return (item["metadata"].get("labels") or {}).get(name)


def _task(item: Object) -> int | None:
    found = _label(item, TASK_LABEL)
    return int(found) if found is not None and found.isdecimal() else None


def _owned(pod: Object, job: Object) -> bool:
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == job["metadata"].get("uid") for owner in owners)
