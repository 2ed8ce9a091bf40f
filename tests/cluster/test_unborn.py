"""Run workers that wait for a place are not dead; those that can never start end early, with the cluster's words."""

from datetime import UTC, datetime
from typing import Any

import dagster as dg
import pytest
from dagster._core.events import DagsterEventType
from dagster._core.events.log import EventLogEntry

from harbor_assets.cluster import executions as module
from harbor_assets.domain.outcomes import Reason
from harbor_assets.engine.account import Lost
from tests.cluster.test_upkeep import Place, place  # noqa: F401 - the fixture
from tests.engine.test_execution import RUN

LONG_AGO = "2026-01-01T00:00:00Z"
FULL = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: 1 too many pods."}


def launch(place: Place) -> dg.DagsterRun:  # noqa: F811
    """As the daemon does, up to where it makes the Job."""
    assert place.executions.start(RUN)
    (run,) = place.executions.unfinished(RUN)
    began = dg.DagsterEvent(DagsterEventType.RUN_STARTING.value, run.job_name)
    now = datetime.now(UTC).timestamp()
    place.executions.instance.handle_new_event(EventLogEntry(None, 20, "", run.run_id, now, None, run.job_name, began))
    return run


def give_job(place: Place, run: dg.DagsterRun, **status: Any) -> None:  # noqa: F811
    labels = {"dagster/run-id": run.run_id, "app.kubernetes.io/component": "run_worker", "harbor/run-id": RUN}
    meta = {"name": "worker", "uid": "uid-worker", "labels": labels, "creationTimestamp": LONG_AGO}
    place.cluster.jobs["worker"] = {"metadata": meta, "status": {}}
    if status:
        place.cluster.add_pod("p", labels, "worker", status)
        place.cluster.pods["p"]["metadata"]["creationTimestamp"] = LONG_AGO


def pull(message: str) -> dict[str, Any]:
    waiting = {"reason": "ErrImagePull", "message": message}
    return {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]}


def test_one_that_waits_for_a_place_is_alive(place: Place) -> None:  # noqa: F811
    run = launch(place)
    assert place.executions.alive(RUN)
    give_job(place, run, phase="Pending", conditions=[FULL])
    assert place.executions.alive(RUN)
    assert place.executions.lost(RUN) == {}


def test_one_whose_image_is_not_there_ends_and_tells_every_task(place: Place) -> None:  # noqa: F811
    run = launch(place)
    give_job(place, run, **pull("registry.test/worker:1: not found"))
    assert not place.executions.alive(RUN)
    assert place.dagster() == ["FAILURE"]
    lost = place.executions.lost(RUN)
    assert set(lost) == {0, 1, 2}
    assert {each.reason for each in lost.values()} == {Reason.IMAGE_PULL}
    assert "registry.test/worker:1: not found" in lost[0].message
    assert place.executions.alive(RUN) is False
    assert place.settle() != []  # what it left is deleted
    place.cluster.end_pods()
    assert place.settle() == [f"{RUN}: goes on as its next execution"]
    assert place.executions.lost(RUN) == {}


def test_one_whose_maker_was_killed_is_made_anew(
    place: Place,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launch(place)
    assert place.executions.alive(RUN)
    monkeypatch.setattr(module, "UNBORN_SECONDS", -1.0)
    assert not place.executions.alive(RUN)
    assert place.executions.lost(RUN)[0] == Lost(
        Reason.WORKER_LOST, "The run's Job was never made: whoever was to make it is gone"
    )
