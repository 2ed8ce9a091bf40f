from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from harbor_assets.cluster import diagnosis
from harbor_assets.cluster.diagnosis import JobState, job_state
from harbor_assets.domain.outcomes import Reason

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


def pod(age: float = 60, **status: Any) -> dict[str, Any]:
    made = (NOW - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"metadata": {"name": "p", "uid": "p", "creationTimestamp": made}, "status": status}


def event(about: str, reason: str, message: str) -> dict[str, Any]:
    at = "2030-01-01T11:59:00Z"
    return {"metadata": {}, "involvedObject": {"uid": about}, "reason": reason, "message": message, "lastTimestamp": at}


def ended(reason: str, code: int) -> dict[str, Any]:
    return {"containerStatuses": [{"state": {"terminated": {"reason": reason, "exitCode": code}}}]}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"containerStatuses": [{"state": {"waiting": {"reason": reason, "message": message}}}]}


FAILED = {
    "status": {"failed": 1, "conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]}
}


def test_a_pod_out_of_memory_is_told() -> None:
    state = job_state(FAILED, [pod(**ended("OOMKilled", 137))], NOW)
    assert state.failed
    assert "OOMKilled, exit code 137" in state.facts


def test_an_evicted_pod_is_told() -> None:
    state = job_state(FAILED, [pod(reason="Evicted", message="The node was low on resource: memory.")], NOW)
    assert "Evicted: The node was low on resource: memory." in state.facts


def test_a_failed_job_without_pods_says_so() -> None:
    state = job_state({"status": {"conditions": [{"type": "FailureTarget", "reason": "DeadlineExceeded"}]}}, [], NOW)
    assert (state.failed, state.facts) == (True, "DeadlineExceeded")
    assert job_state({"status": {"failed": 1}}, [], NOW).facts == "no pod is left to ask"


@pytest.mark.parametrize(
    ("age", "said", "stuck"),
    [
        (10, "registry says: not found", False),
        (31, "registry says: not found", True),
        (31, "dial tcp 10.0.0.1:443: i/o timeout", False),
        (601, "dial tcp 10.0.0.1:443: i/o timeout", True),
    ],
)
def test_a_pull_that_fails_gets_a_grace_and_a_registry_that_is_away_a_longer_one(
    age: float, said: str, stuck: bool
) -> None:
    state = job_state({}, [pod(age, **waiting("ErrImagePull", said))], NOW)
    assert (state.stuck, state.failed, state.reason) == (stuck, False, Reason.IMAGE_PULL)
    assert said in state.facts


def test_a_back_off_without_a_cause_takes_it_from_the_events() -> None:
    waits = pod(40, **waiting("ImagePullBackOff", "Back-off pulling image"))
    assert (job_state({}, [waits], NOW).stuck, job_state({}, [waits], NOW).unclear) == (False, True)
    state = job_state({}, [waits], NOW, [event("p", "Failed", 'Failed to pull image "x": not found')])
    assert state.stuck
    assert 'Failed to pull image "x": not found' in state.facts


TOO_LARGE = (
    "0/1 nodes are available: 1 Insufficient memory. "
    "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
)


def test_a_pod_that_no_node_could_hold_is_given_up_unless_a_node_is_being_made() -> None:
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": TOO_LARGE}
    assert not job_state({}, [pod(59, conditions=[waits])], NOW).stuck
    state = job_state({}, [pod(61, conditions=[waits])], NOW)
    assert (state.stuck, state.reason) == (True, Reason.SCHEDULING)
    scaling = [event("p", "TriggeredScaleUp", "pod triggered scale-up")]
    assert not job_state({}, [pod(61, conditions=[waits])], NOW, scaling).stuck


@pytest.mark.parametrize(
    ("message", "stuck"),
    [
        ('pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2', False),
        ('pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0', True),
        ('pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true', True),
        ('admission webhook "p.test" denied the request: no', True),
        ('Internal error occurred: failed calling webhook "p.test": connection refused', False),
    ],
)
def test_a_refused_pod_is_given_up_where_the_refusal_stays(message: str, stuck: bool) -> None:
    job = {"metadata": {"uid": "j", "creationTimestamp": "2030-01-01T11:58:00Z"}, "status": {}}
    assert job_state(job, [], NOW).unclear
    state = job_state(job, [], NOW, [event("j", "FailedCreate", f"Error creating: {message}")])
    assert (state.stuck, state.reason) == (stuck, Reason.SCHEDULING)
    assert message in state.facts
    job["metadata"]["creationTimestamp"] = "2030-01-01T11:59:50Z"
    assert not job_state(job, [], NOW).unclear


def disrupted(reason: str) -> dict[str, Any]:
    return {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "said"}]}


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (ended("OOMKilled", 137), Reason.OUT_OF_MEMORY),
        (ended("Error", 137), Reason.WORKER_LOST),
        ({"reason": "Evicted", "message": "The node was low on resource: memory."}, Reason.EVICTED),
        ({"reason": "Evicted", "message": "Pod ephemeral local storage usage exceeds the total limit"}, Reason.STORAGE),
        (disrupted("EvictionByEvictionAPI"), Reason.EVICTED),
        (disrupted("PreemptionByScheduler"), Reason.PREEMPTED),
        (disrupted("DeletionByTaintManager"), Reason.NODE_LOST),
        (disrupted("DeletionByPodGC"), Reason.NODE_LOST),
    ],
)
def test_the_ways_a_worker_is_lost_are_told_apart(status: dict[str, Any], reason: Reason) -> None:
    state = job_state(FAILED, [pod(phase="Failed", **status)], NOW)
    assert (state.failed, state.reason) == (True, reason)
    told = diagnosis.lost(f"Step x failed health check: {diagnosis.failed('j', state)}")
    assert told is not None
    assert told.reason is reason


def test_a_worker_that_is_told_to_stop_says_what_its_pod_says() -> None:
    said = diagnosis.stopped(pod(phase="Running", **disrupted("EvictionByEvictionAPI")))
    told = diagnosis.lost(f"dagster._core.errors.DagsterExecutionInterruptedError: {said}\n")
    assert told is not None
    assert (told.reason, told.message) == (Reason.EVICTED, said)
    assert "EvictionByEvictionAPI: said" in said
    told = diagnosis.lost(diagnosis.stopped(None))
    assert told is not None
    assert told.reason is Reason.WORKER_LOST


def test_the_last_words_of_a_container_are_kept_by_their_end() -> None:
    status = {"containerStatuses": [{"state": {"terminated": {"reason": "Error", "exitCode": 1}}}]}
    status["containerStatuses"][0]["state"]["terminated"]["message"] = "x" * 999 + "\nKeyError: 'no such task'\n"
    facts = job_state(FAILED, [pod(**status)], NOW).facts
    assert facts.endswith("x KeyError: 'no such task'")
    assert len(facts) < 500


def test_a_pod_that_only_waits_for_room_is_never_stuck() -> None:
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    state = job_state({}, [pod(99_999, conditions=[waits])], NOW)
    assert not state.stuck
    assert "Unschedulable: 0/1 nodes" in state.facts


def test_a_page_of_words_is_cut() -> None:
    assert len(job_state({}, [pod(**waiting("ErrImagePull", "x" * 9999))], NOW).facts) < 1000


@pytest.mark.parametrize(
    ("why", "reason"),
    [
        (diagnosis.refused("j", "exceeded quota: jobs"), Reason.SCHEDULING),
        (diagnosis.cannot_start("j", JobState(reason=Reason.IMAGE_PULL, facts="not found")), Reason.IMAGE_PULL),
        (diagnosis.failed("j", JobState(reason=Reason.OUT_OF_MEMORY, facts="OOMKilled")), Reason.OUT_OF_MEMORY),
        (diagnosis.failed("j", JobState(reason=Reason.NODE_LOST, facts="x, told as evicted: y")), Reason.NODE_LOST),
        (diagnosis.failed("j", JobState(facts="x, told as evicted: y")), Reason.WORKER_LOST),
        ("Job j failed, told as graded: by somebody", Reason.WORKER_LOST),
        ("Job j failed: container OOMKilled, exit code 137", Reason.WORKER_LOST),
        ("Job j is gone, and its step told no result", Reason.WORKER_LOST),
    ],
)
def test_what_a_failed_health_check_says_becomes_a_reason(why: str, reason: Reason) -> None:
    lost = diagnosis.lost(f"Step trial_results.trial[t00001] failed health check: {why}")
    assert lost is not None
    assert (lost.reason, lost.message) == (reason, why)


def test_other_failures_of_a_step_say_nothing_of_its_worker() -> None:
    assert diagnosis.lost("dagster._core.definitions.events.Failure: 1 of 1 trials have no score") is None
