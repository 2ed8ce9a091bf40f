"""The sensor of a laptop's home, as the daemon of `harbor-assets ui` evaluates it."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from harbor_assets.domain.tasks import EvaluatorTask, TaskInput, TasksetInput
from harbor_assets.local import locks
from harbor_assets.settings import Settings
from harbor_assets.wiring import wire
from tests.sensors.test_deployment import tick


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("HARBOR_ASSETS_HOME", str(tmp_path / "home"))
    settings = Settings.load()
    settings.prepare_home()
    return settings


@pytest.fixture
def repository(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The definitions of that home, loaded as its code server loads them."""
    monkeypatch.delitem(sys.modules, "harbor_assets.definitions", raising=False)
    from harbor_assets.definitions import defs

    yield defs.get_repository_def()
    sys.modules.pop("harbor_assets.definitions", None)


def test_what_was_published_without_a_run_is_told_once(
    repository: Any, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = wire(settings).catalog
    task, _ = catalog.put_task("ws", "t", TaskInput(spec=EvaluatorTask(kind="evaluator", intent="x")))
    taskset, _ = catalog.put_taskset("ws", "s", TasksetInput(tasks=["t"]))
    keys = {"task": [f"ws/t#{task.digest[:12]}"], "taskset": [f"ws/s#{taskset.digest[:12]}"]}
    add, locked = dg.DagsterInstance.add_dynamic_partitions, []

    def watched(instance: dg.DagsterInstance, *words: Any) -> None:
        locked.append(locks.held(settings.locks, "partitions"))
        add(instance, *words)

    monkeypatch.setattr(dg.DagsterInstance, "add_dynamic_partitions", watched)
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        data = tick(repository, "publications", instance)
        # Nothing is left to the daemon, which adds keys without the lock.
        assert (data.asset_events, data.dynamic_partitions_requests, data.skip_message) == ([], [], "told of 2")
        assert locked
        assert all(locked)
        for name, asset in (("task", "harbor_task"), ("taskset", "taskset")):
            assert instance.get_dynamic_partitions(name) == keys[name]
            told = instance.fetch_materializations(dg.AssetKey(asset), limit=5).records
            assert [record.partition_key for record in told] == keys[name]
        again = tick(repository, "publications", instance, data.cursor)
        assert again.skip_message == "nothing new"
        assert len(instance.fetch_materializations(dg.AssetKey("harbor_task"), limit=5).records) == 1
