"""Why a Job failed or does not start, from what the API server says of it, its pods and events. Pure: raw JSON in."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from harbor_assets.domain import pods as pod_rules
from harbor_assets.domain.outcomes import OUTCOME_OF, Outcome, Reason
from harbor_assets.domain.pods import Finding, diagnose, quota
from harbor_assets.domain.text import visible
from harbor_assets.engine.account import Lost

START_GRACE_SECONDS = 30.0  # a registry may fail once; the kubelet tries again after 10 s, then 20 s
PULL_PATIENCE_SECONDS = 600.0  # for a registry that is away; one that says no is believed after the grace
ROOM_GRACE_SECONDS = 60.0  # for an autoscaler to say that it makes a node; for a policy that was just changed
_MESSAGE_MAX = 600  # of each fact: a registry's answer can be a page of HTML
_LOG_TAIL = 300  # of a container's last words: the end of a traceback is its point
_REFUSED, _CANNOT_START, _STOPPED = "Kubernetes refused the Job", "cannot start", "The worker was stopped"
HEALTH_CHECK = "failed health check: "  # Dagster's words before ours
_AS = re.compile(r", told as ([a-z_]+): ")  # how our sentences name the reason they were written for
_NEVER_MADE = re.compile(r"is forbidden|denied the request|is invalid", re.IGNORECASE)
_MADE_LATER = re.compile(r"failed calling webhook|timeout|connection refused", re.IGNORECASE)

# What became of a worker, in the words of outcomes.
_REASONS: Mapping[pod_rules.Reason, Reason] = {
    "out_of_memory": Reason.OUT_OF_MEMORY,
    "disk_full": Reason.STORAGE,
    "evicted": Reason.EVICTED,
    "preempted": Reason.PREEMPTED,
    "node_lost": Reason.NODE_LOST,
    "image_pull": Reason.IMAGE_PULL,
    "image_name": Reason.IMAGE_PULL,
    "bad_spec": Reason.SCHEDULING,
    "too_large": Reason.SCHEDULING,
}


@dataclass(frozen=True, slots=True)
class JobState:
    """What is known of one Job: is it over, for which reason, and with which facts from its pods.

    `stuck`: it will never start. `unclear`: its events may say more than its pods do.
    """

    failed: bool = False
    succeeded: bool = False
    stuck: bool = False
    unclear: bool = False
    reason: Reason = Reason.WORKER_LOST
    facts: str = ""


def job_state(
    job: Mapping[str, Any],
    pods: Sequence[Mapping[str, Any]],
    now: datetime,
    events: Sequence[Mapping[str, Any]] = (),
) -> JobState:
    """The state of a Job from the Job, its pods, and the events about either."""
    status = job.get("status") or {}
    failure = next((c for c in status.get("conditions") or () if c.get("type") in ("Failed", "FailureTarget")), None)
    findings = [diagnose(pod, events=list(events_of(pod, events))) for pod in pods]
    facts = [fact for pod, found in zip(pods, findings, strict=True) for fact in pod_facts(pod, found)]
    if failure:
        facts.insert(0, _say(failure.get("reason"), failure.get("message")))
    reason = next((_REASONS[found.reason] for found in findings if found.reason in _REASONS), Reason.WORKER_LOST)
    stuck = any(_stuck(found, _age(pod, now)) for pod, found in zip(pods, findings, strict=True))
    said = refusal(job, events)
    if not pods and not failure and said:
        facts.append(f"its pod is refused: {_cut(said)}")
        stuck, reason = refused_for_good(said) and _age(job, now) >= ROOM_GRACE_SECONDS, Reason.SCHEDULING
    return JobState(
        failed=bool(failure or status.get("failed")),
        succeeded=bool(status.get("succeeded")),
        stuck=stuck,
        unclear=_unclear(job, pods, findings, now),
        reason=reason,
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


def pod_facts(pod: Mapping[str, Any], found: Finding) -> Iterator[str]:
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
        if ended := (container.get("state") or {}).get("terminated"):
            yield f"container {ended.get('reason')}, exit code {ended.get('exitCode')}{_last_words(ended)}"
    if found.reason in ("image_pull", "image_name", "bad_spec"):
        yield f"container waits: {_cut('; '.join(found.evidence))}"


def refusal(job: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> str | None:
    """Why the Job controller could not make the Job's pod, as it last said; None if it said nothing."""
    said = [e for e in events_of(job, events) if e.get("reason") == "FailedCreate"]
    return str(said[-1].get("message", "")).removeprefix("Error creating: ") if said else None


def refused_for_good(said: str) -> bool:
    """Whether a refusal will be one for ever: a policy, or a quota below what is asked."""
    if (verdict := quota(said)) is not None:
        return verdict == "never"
    return bool(_NEVER_MADE.search(said)) and not _MADE_LATER.search(said)


def events_of(thing: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The events about one object, oldest first."""
    uid = (thing.get("metadata") or {}).get("uid")
    return sorted((e for e in events if uid and (e.get("involvedObject") or {}).get("uid") == uid), key=_when)


def _when(event: Mapping[str, Any]) -> str:
    series = event.get("series") or {}
    times = (event.get("lastTimestamp"), series.get("lastObservedTime"), event.get("eventTime"))
    return str(max((t for t in times if t), default=event["metadata"].get("creationTimestamp") or ""))


def _stuck(found: Finding, age: float) -> bool:
    if found.reason == "too_large":
        return age >= ROOM_GRACE_SECONDS
    if found.reason in ("image_pull", "image_name", "bad_spec"):
        return age >= (START_GRACE_SECONDS if found.hopeless else PULL_PATIENCE_SECONDS)
    return False


def _unclear(
    job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], findings: Sequence[Finding], now: datetime
) -> bool:
    if not pods:
        return not job_is_over(job) and _age(job, now) >= START_GRACE_SECONDS
    return any(
        found.reason in ("image_pull", "too_large") and _age(pod, now) >= START_GRACE_SECONDS
        for pod, found in zip(pods, findings, strict=True)
    )


def _age(thing: Mapping[str, Any], now: datetime) -> float:
    """Seconds since it was made; 0 where that is not known."""
    made = (thing.get("metadata") or {}).get("creationTimestamp")
    return (now - datetime.fromisoformat(made).astimezone(UTC)).total_seconds() if made else 0.0


def _last_words(ended: Mapping[str, Any]) -> str:
    """The end of what the container printed, which the kubelet keeps of one that failed."""
    text = visible(" ".join(str(ended.get("message") or "").split()))
    return f": …{text[-_LOG_TAIL:]}" if len(text) > _LOG_TAIL else f": {text}" if text else ""


def _say(reason: str | None, message: str | None) -> str:
    return _cut(f"{reason or 'for no reason given'}{f': {message}' if message else ''}")


def _cut(text: str) -> str:
    return text if len(text) <= _MESSAGE_MAX else f"{text[:_MESSAGE_MAX]}…"


# --- sentences that travel as the failure of a step, and back ---------------------------------------------------------


def refused(name: str, why: str) -> str:
    """The sentence for a Job that the API server did not take (quota, admission, an invalid value)."""
    return f"{_REFUSED} {name}: {why}"


def cannot_start(name: str, state: JobState) -> str:
    """The sentence for a Job whose pod will never run."""
    return f"Job {name} {_CANNOT_START}, told as {state.reason}: {state.facts}"


def failed(name: str, state: JobState) -> str:
    """The sentence for a Job that failed."""
    return f"Job {name} failed, told as {state.reason}: {state.facts}"


def stopped(pod: Mapping[str, Any] | None) -> str:
    """What a worker that is told to stop says of itself, from its own pod; without one it knows nothing."""
    if pod is None:
        return f"{_STOPPED}, told as {Reason.WORKER_LOST}: nobody knows why"
    found = diagnose(pod)
    facts = "; ".join(pod_facts(pod, found)) or str(found)
    return f"{_STOPPED}, told as {_REASONS.get(found.reason, Reason.WORKER_LOST)}: {facts}"


def lost(step_error: str) -> Lost | None:
    """What a step's failure, as Dagster recorded it, says of a worker that left no outcome; None if it says nothing."""
    _, found, why = step_error.partition(HEALTH_CHECK)
    if not found:
        _, found, why = step_error.partition(_STOPPED)
        why = f"{found}{why}"
    why = why.strip()
    if not found or not why:
        return None
    if why.startswith(_REFUSED):
        return Lost(Reason.SCHEDULING, why)
    named = _AS.search(why)
    if named and named[1] in Reason and OUTCOME_OF[Reason(named[1])] is Outcome.INFRA_FAILED:
        return Lost(Reason(named[1]), why)
    return Lost(Reason.WORKER_LOST, why)
