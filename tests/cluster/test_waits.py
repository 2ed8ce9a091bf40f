"""Who asks what a run waits for gets one look's answer, whatever the cluster does; with a real Dagster instance."""

from typing import Any

import pytest

from harbor_assets.cluster import waits as module
from harbor_assets.cluster.waits import ClusterWaits
from harbor_assets.domain.errors import Refused, ServiceUnavailable
from harbor_assets.domain.waiting import RunWaits, WaitReason
from tests.cluster.test_upkeep import Place, place  # noqa: F401 - the fixture
from tests.engine.test_execution import RUN

FULL = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: 1 too many pods."}


@pytest.fixture
def waits(place: Place) -> ClusterWaits:  # noqa: F811
    return ClusterWaits(client=place.cluster, executions=place.executions)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FRESH_SECONDS", 0.0)


def look(waits: ClusterWaits, place: Place) -> RunWaits:  # noqa: F811
    return waits.of(place.run, {0, 1, 2})


def add_job(place: Place, index: int) -> str:  # noqa: F811
    labels = {
        "harbor/run-id": RUN,
        "harbor/task": str(index),
        "app.kubernetes.io/component": "step_worker",
    }
    name = f"{RUN}-task-{index}"
    place.cluster.jobs[name] = {"metadata": {"name": name, "uid": f"uid-{name}", "labels": labels}, "status": {}}
    return name


def test_from_the_queue_to_its_pods_and_their_loss(place: Place, waits: ClusterWaits) -> None:  # noqa: F811
    assert look(waits, place) == RunWaits()
    place.executions.start(RUN)
    queued = look(waits, place).run
    assert queued is not None
    assert queued.reason is WaitReason.QUEUED
    (run,) = place.executions.unfinished(RUN)
    place.executions.instance.handle_new_event(event(run))
    name = add_job(place, 0)
    labels: Any = place.cluster.jobs[name]["metadata"]["labels"]
    place.cluster.add_pod("p", labels, name, {"phase": "Pending", "conditions": [FULL]})
    found = look(waits, place)
    assert found.run is None
    assert found.tasks[0].message == "no node takes the pod of its worker: 0/1 nodes: 1 too many pods."
    assert "list events" not in place.cluster.calls
    assert found.tasks[1].reason is WaitReason.STARTING
    place.fail_run(t1="Job x failed: container OOMKilled, exit code 137")
    lost = look(waits, place).tasks  # the execution has ended: what it left is deleted, then the next one begins
    assert {i: said.reason for i, said in lost.items()} == {0: WaitReason.SCHEDULING, 1: WaitReason.LOST}
    assert "OOMKilled, exit code 137" in lost[1].message


def event(run: Any) -> Any:
    import time

    import dagster as dg
    from dagster._core.events import DagsterEventType
    from dagster._core.events.log import EventLogEntry

    began = dg.DagsterEvent(DagsterEventType.RUN_START.value, run.job_name)
    return EventLogEntry(
        error_info=None,
        level=20,
        user_message="",
        run_id=run.run_id,
        timestamp=time.time(),
        job_name=run.job_name,
        dagster_event=began,
    )


def test_a_cluster_that_does_not_answer_is_said_and_left_alone(place: Place, waits: ClusterWaits) -> None:  # noqa: F811
    place.executions.start(RUN)
    place.cluster.fail = ServiceUnavailable("no answer")
    found = look(waits, place).run
    assert found is not None
    assert (found.reason, found.message) == (WaitReason.UNREACHABLE, "the cluster does not answer: no answer")
    place.cluster.fail = None
    assert look(waits, place).run == found  # for a while


def test_without_the_right_to_events_the_status_has_to_do(place: Place, waits: ClusterWaits) -> None:  # noqa: F811
    place.executions.start(RUN)
    add_job(place, 0)

    def refuse(uid: str | None = None) -> Any:
        raise Refused("events is forbidden")

    place.cluster.warnings = refuse  # type: ignore[method-assign]
    assert look(waits, place).tasks[0].reason is WaitReason.STARTING
    place.cluster.fail = Refused("pods is forbidden")
    assert look(waits, place) == RunWaits()


def test_one_look_serves_all_who_ask_within_it(
    place: Place,  # noqa: F811
    waits: ClusterWaits,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "FRESH_SECONDS", 60.0)
    place.executions.start(RUN)
    first = look(waits, place)
    asked = len(place.cluster.calls)
    assert look(waits, place) == first
    assert len(place.cluster.calls) == asked
