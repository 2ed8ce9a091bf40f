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
LABELS = {"dagster/run-id": DAGSTER, "app.kubernetes.io/component": "step_worker", "harbor/run-id": RUN}


class Place:
    def __init__(self) -> None:
        launcher = ClusterRunLauncher(job_namespace="n", service_account_name="r", trial_service_account="t")
        self.cluster = MemoryCluster()
        self.steps = JobSteps(launcher, client=self.cluster)  # type: ignore[arg-type]
        self.body = Played(metadata=Played(name=NAME, labels=dict(LABELS)))
        run = Played(run_id=DAGSTER, tags={"harbor/run_id": RUN})
        key = "trial_results.trial[t00003]"
        self.context: Any = Played(
            dagster_run=run, execute_step_args=Played(step_keys_to_execute=[key], known_state=None)
        )

    def make(self) -> None:
        self.steps.create_namespaced_job_with_retries(self.body, "n")

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
    assert place.health() is None
    assert NAME in place.cluster.jobs


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
