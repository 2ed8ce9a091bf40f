"""The step handler before an API server that refuses, forgets, or does not answer; Dagster's context is played."""

from types import SimpleNamespace as Played
from typing import Any

import pytest

from harbor_assets.cluster.launcher import ClusterRunLauncher
from harbor_assets.cluster.steps import JobSteps
from harbor_assets.domain.errors import Refused, ServiceUnavailable
from tests.fakes.cluster import MemoryCluster

RUN, DAGSTER = "run-0123456789abcdef", "d-1"
NAME = f"{RUN}-task-3"
LABELS = {
    "dagster/run-id": DAGSTER,
    "app.kubernetes.io/component": "step_worker",
    "harbor/run-id": RUN,
    "harbor/task": "3",
}


class Place:
    def __init__(self, max_active: int | None = None) -> None:
        launcher = ClusterRunLauncher(job_namespace="n", service_account_name="r", trial_service_account="t")
        self.cluster = MemoryCluster()
        self.steps = JobSteps(launcher, self.cluster, max_active=max_active)  # type: ignore[arg-type]
        self.body = Played(metadata=Played(name=NAME, labels=dict(LABELS)))
        run = Played(run_id=DAGSTER, tags={"harbor/run_id": RUN})
        key = "trial_results.trial[t00003]"
        self.context: Any = Played(
            dagster_run=run, execute_step_args=Played(step_keys_to_execute=[key], known_state=None)
        )

    def make(self) -> None:
        self.steps.create_namespaced_job_with_retries(self.body, "n")

    def make_task(self, index: int) -> str:
        name = f"{RUN}-task-{index}"
        labels = {**LABELS, "harbor/task": str(index)}
        self.steps.create_namespaced_job_with_retries(Played(metadata=Played(name=name, labels=labels)), "n")
        return name

    def health(self) -> str | None:
        self.steps._listed_at = float("-inf")
        result = self.steps.check_step_health(self.context)
        return None if result.is_healthy else result.unhealthy_reason


@pytest.fixture
def place() -> Place:
    return Place()


def test_a_refused_job_is_told_at_the_next_look(place: Place) -> None:
    place.cluster.refuse[NAME] = Refused("exceeded quota: few-jobs")
    place.make()
    assert "refused the Job" in (place.health() or "")
    assert "exceeded quota: few-jobs" in (place.health() or "")


def test_a_job_that_could_not_be_sent_is_sent_later(place: Place) -> None:
    place.cluster.fail = ServiceUnavailable("no answer")
    place.make()
    assert place.health() is None
    place.cluster.fail = None
    place.steps.send_waiting()
    assert NAME not in place.cluster.jobs  # not at every turn of the loop: an API server in trouble is left alone
    place.steps._pause_until = float("-inf")
    place.steps.send_waiting()
    assert NAME in place.cluster.jobs
    assert place.health() is None


@pytest.fixture
def two() -> Place:
    return Place(max_active=2)


OVER = [
    {"uncountedTerminatedPods": {"succeeded": ["uid"]}},
    {"succeeded": 1},
    {"failed": 1},
    {"succeeded": 1, "active": 0, "conditions": [{"type": "Complete", "status": "True"}]},
    {"conditions": [{"type": "Failed", "status": "True"}]},
]


@pytest.mark.parametrize("over", OVER)
def test_a_job_waits_until_another_is_over_not_only_its_step(two: Place, over: dict[str, Any]) -> None:
    first, second, third = (two.make_task(i) for i in range(3))
    two.steps.step_ended(RUN, "trial_results.trial[t00000]")
    two.steps.send_waiting()
    assert set(two.cluster.jobs) == {first, second}
    two.cluster.jobs[first]["status"] = {"active": 1, "conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]}
    two.steps.send_waiting()
    assert third not in two.cluster.jobs
    two.cluster.jobs[first]["status"] = over
    two.steps.send_waiting()
    assert third in two.cluster.jobs


def test_jobs_of_a_worker_that_was_lost_count(two: Place) -> None:
    first, second = two.make_task(0), two.make_task(1)
    resumed = Place(max_active=2)
    resumed.steps._client = two.cluster  # type: ignore[assignment]
    waits = resumed.make_task(2)
    assert set(two.cluster.jobs) == {first, second}
    two.cluster.delete_job(second)
    resumed.steps.send_waiting()
    assert set(two.cluster.jobs) == {first, waits}


def test_jobs_of_other_executions_and_other_steps_do_not_count(two: Place) -> None:
    bare = {name: value for name, value in LABELS.items() if name != "harbor/task"}
    for name, labels in (("plan", bare), ("other", {**LABELS, "dagster/run-id": "d-2"})):
        two.cluster.create_job(Played(metadata=Played(name=name, labels=labels)))
    assert {two.make_task(0), two.make_task(1)} < set(two.cluster.jobs)


def test_a_process_that_does_not_end_gives_its_slot_on_at_last(two: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    _, second, third = (two.make_task(i) for i in range(3))
    monkeypatch.setattr("harbor_assets.cluster.steps.LINGER_SECONDS", -1.0)
    two.steps.step_ended(RUN, "trial_results.trial[t00000]")
    two.steps.send_waiting()
    two.steps.send_waiting()
    assert set(two.cluster.jobs) == {second, third}


def test_a_job_that_waits_is_neither_sick_nor_made_after_a_cancel(two: Place) -> None:
    for i in range(3):
        two.make_task(i)
    two.body.metadata.name = NAME
    two.make()
    assert two.health() is None
    two.steps.delete_all(two.context.dagster_run)
    two.steps.send_waiting()
    assert two.cluster.jobs == {}


def test_an_outage_fails_no_step(place: Place) -> None:
    place.make()
    place.cluster.fail = ServiceUnavailable("no answer")
    assert place.health() is None


def test_a_job_of_this_run_is_adopted_and_a_strange_one_is_not(place: Place) -> None:
    place.make()
    place.make()
    assert place.health() is None
    place.cluster.jobs[NAME]["metadata"]["labels"]["dagster/run-id"] = "another"
    place.make()
    assert "belongs to another execution" in (place.health() or "")


def test_a_job_that_is_gone_or_failed_is_told(place: Place) -> None:
    place.make()
    place.cluster.jobs[NAME]["status"] = {"failed": 1}
    status = {"containerStatuses": [{"state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}]}
    place.cluster.add_pod("p", {**LABELS, "batch.kubernetes.io/job-name": NAME}, status=status)
    assert "OOMKilled, exit code 137" in (place.health() or "")
    place.cluster.delete_job(NAME)
    assert "is gone" in (place.health() or "")


def test_a_job_whose_pod_is_refused_for_good_is_given_up(place: Place) -> None:
    place.make()
    job = place.cluster.jobs[NAME]["metadata"]
    said = 'pods "x" is forbidden: violates PodSecurity "restricted:latest"'
    event = {"metadata": {}, "reason": "FailedCreate", "message": f"Error creating: {said}", "type": "Warning"}
    place.cluster.events = [event | {"involvedObject": {"uid": job["uid"]}}]
    assert place.health() is None
    assert "list events" not in place.cluster.calls  # it is young: nothing is out of the ordinary
    job["creationTimestamp"] = "2026-01-01T00:00:00Z"
    assert said in (place.health() or "")
    assert NAME not in place.cluster.jobs


def test_a_job_whose_pod_waits_for_a_quota_is_not(place: Place) -> None:
    place.make()
    job = place.cluster.jobs[NAME]["metadata"]
    job["creationTimestamp"] = "2026-01-01T00:00:00Z"
    assert place.health() is None  # without a word
    said = 'pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2'
    event = {"metadata": {}, "reason": "FailedCreate", "message": f"Error creating: {said}", "type": "Warning"}
    place.cluster.events = [event | {"involvedObject": {"uid": job["uid"]}}]
    assert place.health() is None


def test_a_job_that_ended_in_silence_gets_a_grace(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.make()
    place.cluster.jobs[NAME]["status"] = {"succeeded": 1}
    assert place.health() is None
    monkeypatch.setattr("harbor_assets.cluster.steps.SILENT_EXIT_GRACE_SECONDS", -1.0)
    assert "ended without a result" in (place.health() or "")


def test_a_cancel_deletes_the_jobs_of_this_run_only(place: Place) -> None:
    place.make()
    other = Played(metadata=Played(name="other", labels={**LABELS, "dagster/run-id": "another"}))
    place.steps.create_namespaced_job_with_retries(other, "n")
    assert place.steps.delete_all(place.context.dagster_run) == [NAME]
    assert set(place.cluster.jobs) == {"other"}
