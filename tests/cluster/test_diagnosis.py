from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from harbor_assets.cluster import diagnosis
from harbor_assets.cluster.diagnosis import job_state
from harbor_assets.domain.outcomes import Reason

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


def pod(age: float = 60, **status: Any) -> dict[str, Any]:
    made = (NOW - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"metadata": {"name": "p", "creationTimestamp": made}, "status": status}


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


@pytest.mark.parametrize(("age", "stuck"), [(10, False), (31, True)])
def test_a_pull_that_fails_gets_a_grace(age: float, stuck: bool) -> None:
    state = job_state({}, [pod(age, **waiting("ImagePullBackOff", "registry says: not found"))], NOW)
    assert (state.stuck, state.failed) == (stuck, False)
    assert "registry says: not found" in state.facts


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
        (diagnosis.cannot_start("j", "container waits: ErrImagePull: not found"), Reason.IMAGE_PULL),
        (diagnosis.cannot_start("j", "container waits: CreateContainerConfigError: no key"), Reason.SCHEDULING),
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
