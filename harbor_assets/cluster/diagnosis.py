"""Why a Job failed or does not start, from what the API server says of it and its pods. Pure: raw JSON objects in."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from harbor_assets.domain.outcomes import Reason
from harbor_assets.engine.account import Lost

# Waiting reasons that time alone does not cure (kubelet's own names).
CANNOT_START = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)
START_GRACE_SECONDS = 30.0  # a registry may fail once; the kubelet tries again after 10 s, then 20 s
_MESSAGE_MAX = 600  # of each fact: a registry's answer can be a page of HTML
_REFUSED, _CANNOT_START = "Kubernetes refused the Job", "cannot start"
_HEALTH_CHECK = "failed health check: "


@dataclass(frozen=True, slots=True)
class JobState:
    """What is known of one Job: is it over, and with which facts from its pods. `stuck`: it will never start."""

    failed: bool = False
    succeeded: bool = False
    stuck: bool = False
    facts: str = ""


def job_state(job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], now: datetime) -> JobState:
    """The state of a Job from the Job and its pods."""
    status = job.get("status") or {}
    failure = next((c for c in status.get("conditions") or () if c.get("type") in ("Failed", "FailureTarget")), None)
    facts = [fact for pod in pods for fact in pod_facts(pod)]
    if failure:
        facts.insert(0, _say(failure.get("reason"), failure.get("message")))
    return JobState(
        failed=bool(failure or status.get("failed")),
        succeeded=bool(status.get("succeeded")),
        stuck=any(_stuck(pod, now) for pod in pods),
        facts="; ".join(facts) or "no pod is left to ask",
    )


def job_is_over(job: Mapping[str, Any]) -> bool:
    """True if no pod of the Job runs or will run. A Job of which nothing is known yet is not over."""
    status = job.get("status") or {}
    if any(
        c.get("type") in ("Complete", "Failed") and c.get("status") == "True" for c in status.get("conditions") or ()
    ):
        return True
    ended = (
        status.get("succeeded") or status.get("failed") or any((status.get("uncountedTerminatedPods") or {}).values())
    )
    return bool(ended) and not status.get("active")


def pod_facts(pod: Mapping[str, Any]) -> Iterator[str]:
    """What a pod says of itself that is out of the ordinary."""
    status = pod.get("status") or {}
    if status.get("reason"):
        yield f"pod {_say(status['reason'], status.get('message'))}"
    for condition in status.get("conditions") or ():
        if condition.get("status") == "False" and condition.get("type") == "PodScheduled":
            yield f"not scheduled: {_say(condition.get('reason'), condition.get('message'))}"
        if condition.get("status") == "True" and condition.get("type") == "DisruptionTarget":
            yield f"disrupted: {_say(condition.get('reason'), condition.get('message'))}"
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        if ended := state.get("terminated"):
            yield f"container {_say(ended.get('reason'), ended.get('message'))}, exit code {ended.get('exitCode')}"
        waiting = state.get("waiting") or {}
        if waiting.get("reason") in CANNOT_START:
            yield f"container waits: {_say(waiting['reason'], waiting.get('message'))}"


def _stuck(pod: Mapping[str, Any], now: datetime) -> bool:
    made = (pod.get("metadata") or {}).get("creationTimestamp")
    if not made or (now - datetime.fromisoformat(made).astimezone(UTC)).total_seconds() < START_GRACE_SECONDS:
        return False
    containers = (pod.get("status") or {}).get("containerStatuses") or ()
    return any(((c.get("state") or {}).get("waiting") or {}).get("reason") in CANNOT_START for c in containers)


def _say(reason: str | None, message: str | None) -> str:
    text = f"{reason or 'for no reason given'}{f': {message}' if message else ''}"
    return text if len(text) <= _MESSAGE_MAX else f"{text[:_MESSAGE_MAX]}…"


def refused(name: str, why: str) -> str:
    """The sentence for a Job that the API server did not take (quota, admission, an invalid value)."""
    return f"{_REFUSED} {name}: {why}"


def cannot_start(name: str, facts: str) -> str:
    """The sentence for a Job whose pod will never run."""
    return f"Job {name} {_CANNOT_START}: {facts}"


def lost(step_error: str) -> Lost | None:
    """What a step's failure, as Dagster recorded it, says of a worker that left no outcome; None if it says nothing."""
    _, found, why = step_error.partition(_HEALTH_CHECK)
    why = why.strip()
    if not found or not why:
        return None
    if why.startswith(_REFUSED):
        return Lost(Reason.SCHEDULING, why)
    if _CANNOT_START in why and any(word in why for word in ("ImagePull", "InvalidImageName", "ErrImage")):
        return Lost(Reason.IMAGE_PULL, why)
    if _CANNOT_START in why:
        return Lost(Reason.SCHEDULING, why)
    return Lost(Reason.WORKER_LOST, why)
