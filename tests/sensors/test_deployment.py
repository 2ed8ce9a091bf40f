"""What the sensors ask Dagster for, as its daemon evaluates them; what they look at is played."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace as Played
from typing import Any

import dagster as dg
import pytest

from harbor_assets.cluster.settlement import Order
from harbor_assets.domain.errors import NotFound
from harbor_assets.engine.notices import Told
from harbor_assets.engine.publication import Published
from harbor_assets.events import following
from harbor_assets.partitions import run_task_key
from tests.catalog.samples import body
from tests.fakes.catalog import MemoryCatalog

RUN = "run-0123456789abcdef"


@pytest.fixture
def services() -> Any:
    catalog = MemoryCatalog()
    catalog.ready_images = lambda after, limit: []  # type: ignore[attr-defined]
    return Played(
        catalog=catalog,
        engine=Played(task_files=lambda source: []),
        upkeep=Played(attend=lambda: ([f"{RUN}: is to be settled, try 1"], [Order(RUN, 1)])),
    )


@pytest.fixture
def repository(services: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The deployment's definitions, loaded as its code server loads them."""
    monkeypatch.setenv("HARBOR_ASSETS_EXECUTOR", "kubernetes")
    monkeypatch.delitem(sys.modules, "harbor_assets.definitions", raising=False)
    from harbor_assets.definitions import defs

    for module in ("sensors.deployment", "sensors.publications", "sensors.trials"):
        monkeypatch.setattr(f"{module}.wire", lambda settings: services)
    yield defs.get_repository_def()
    sys.modules.pop("harbor_assets.definitions", None)


def tick(repository: Any, name: str, instance: dg.DagsterInstance, cursor: str | None = None) -> Any:
    context = dg.SensorEvaluationContext(
        instance_ref=instance.get_ref(),
        instance=instance,
        last_tick_completion_time=None,
        last_run_key=None,
        cursor=cursor,
        repository_name=None,
        repository_def=repository,
        sensor_name=name,
    )
    return repository.get_sensor_def(name).evaluate_tick(context)


def test_an_order_becomes_a_dagster_run_of_that_partition(repository: Any, tmp_path: Path) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        data = tick(repository, "settle", instance)
        (asked,) = data.run_requests
        assert (asked.run_key, asked.partition_key) == (f"settle-{RUN}-1", RUN)
        assert asked.tags["harbor/run_id"] == RUN
        assert [(r.partitions_def_name, r.partition_keys) for r in data.dynamic_partitions_requests] == [("run", [RUN])]


def test_publications_are_events_keys_and_a_cursor(repository: Any, services: Any, tmp_path: Path) -> None:
    task, _ = services.catalog.put_task("ws", "t", body("one"))
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        data = tick(repository, "publications", instance)
        assert [event.partition for event in data.asset_events] == [f"ws/t#{task.digest[:12]}"]
        keys = {r.partitions_def_name: list(r.partition_keys) for r in data.dynamic_partitions_requests}
        assert keys["task"] == [f"ws/t#{task.digest[:12]}"]
        instance.add_dynamic_partitions("task", keys["task"])
        again = tick(repository, "publications", instance, data.cursor)
        assert (again.asset_events, again.skip_message) == ([], "nothing new")


def test_each_ended_task_is_published_once_and_the_cursor_is_kept(
    repository: Any, services: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published: list[tuple[str, int]] = []

    def publish(run_id: str, index: int) -> Published:
        if run_id.endswith("e"):
            raise NotFound(f"no run {run_id}")
        published.append((run_id, index))
        return Published(1, failed=["t: the database restarts"])

    services.engine.publish_trials = publish
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        assert tick(repository, "experiment_trials", instance).skip_message == "nothing new"
        for index in range(3):
            instance.report_runless_asset_event(
                dg.AssetMaterialization("trial_results", partition=run_task_key(RUN, index))
            )
        key = run_task_key(RUN, 3)  # no trial of it was scored
        instance.report_runless_asset_event(dg.AssetObservation("trial_results", partition=key))
        for strange in ("nonsense", run_task_key(f"{RUN[:-1]}e", 0)):
            instance.report_runless_asset_event(dg.AssetMaterialization("trial_results", partition=strange))
        data = tick(repository, "experiment_trials", instance)
        assert sorted(published) == [(RUN, index) for index in range(4)]
        assert data.skip_message == "4 trials published"
        again = tick(repository, "experiment_trials", instance, data.cursor)
        assert (again.skip_message, len(published)) == ("nothing new", 4)
        assert tick(repository, "experiment_trials", instance, "garbage").skip_message == "4 trials published"

        monkeypatch.setattr(following, "EVENTS_MAX", 2)  # a look has an end; the next goes on from there
        published.clear()
        cursor = None
        for _ in range(4):
            cursor = tick(repository, "experiment_trials", instance, cursor).cursor
        assert sorted(published) == [(RUN, index) for index in range(4)]


def test_the_webhook_is_told_by_a_sensor_whose_cursor_says_how_far(
    services: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("HARBOR_ASSETS_WEBHOOK_URL", "https://hooks.example.org/s3cr3t")
    repository = request.getfixturevalue("repository")
    seen: list[Told] = []

    def follow(told: Told) -> tuple[Told, list[str]]:
        seen.append(told)
        return told.model_copy(update={"done": ("run-1/ended",)}), ["run-1/ended: sent"]

    monkeypatch.setattr("sensors.notifications.wire", lambda settings: services)
    services.notices = Played(follow=follow)
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        data = tick(repository, "notifications", instance)
        assert data.skip_message == "run-1/ended: sent"
        tick(repository, "notifications", instance, data.cursor)
    assert seen[1].done == ("run-1/ended",)
    assert seen[1].first == seen[0].first


def test_without_a_webhook_there_is_no_such_sensor(repository: Any) -> None:
    assert "notifications" not in {sensor.name for sensor in repository.sensor_defs}
