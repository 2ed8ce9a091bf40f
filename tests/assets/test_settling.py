"""The deployment's `merged_bundle`, executed in this process on a real catalog; what the cluster holds is played."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from harbor_assets.assets.cluster import trial_results_on_cluster
from harbor_assets.assets.settling import merged_bundle_on_cluster
from harbor_assets.assets.suites import harbor_task, task_image, taskset
from harbor_assets.checks.bundles import bundle_checks
from harbor_assets.cluster.upkeep import Upkeep
from harbor_assets.domain.benchmarks import DayOf
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.events.benchmarks import benchmark_key
from harbor_assets.jobs import evaluate, settle
from harbor_assets.partitions import run_task_key
from tests.engine.test_execution import RUN, House, graded


class Quiet:
    """Executions that have ended, and whose workers told nothing."""

    living = False

    def alive(self, run_id: str) -> bool:
        return self.living

    def lost(self, run_id: str) -> dict[int, Any]:
        return {}


class Place:
    def __init__(self, root: Path, instance: dg.DagsterInstance) -> None:
        self.house, self.executions, self.instance = House(root, graded), Quiet(), instance
        upkeep = Upkeep(
            runs=self.house.catalog,
            engine=self.house.engine,
            executions=self.executions,  # type: ignore[arg-type]
            client=None,  # type: ignore[arg-type]
        )
        definitions = dg.Definitions(
            assets=[harbor_task, taskset, task_image, trial_results_on_cluster, merged_bundle_on_cluster],
            jobs=[evaluate, settle],
            resources={
                "engine": self.house.engine,
                "upkeep": upkeep,
                "benchmarks": self,  # asked for `day_of` only
            },
        )
        tasks = self.house.catalog.get_run(RUN).plan.tasks
        instance.add_dynamic_partitions("run_task", [run_task_key(RUN, task.index) for task in tasks])
        instance.add_dynamic_partitions("run", [RUN])
        self._evaluate, self._settle = map(definitions.resolve_job_def, ("evaluate", "settle"))

    def day_of(self, run_id: str) -> DayOf:
        assert run_id == RUN
        return DayOf("nightly", "2026-11-29", 1)

    def evaluate(self) -> None:
        config = {"ops": {"trial_results": {"ops": {"plan": {"config": {"submitted_run": RUN}}}}}}
        self._evaluate.execute_in_process(instance=self.instance, tags={"harbor/run_id": RUN}, run_config=config)

    def settle(self) -> bool:
        """As the sensor's order: a partition, and the tag that says whose it is."""
        return self._settle.execute_in_process(
            instance=self.instance, partition_key=RUN, tags={"harbor/run_id": RUN}, raise_on_error=False
        ).success


@pytest.fixture
def place(tmp_path: Path):  # type: ignore[no-untyped-def]
    with dg.DagsterInstance.ephemeral() as instance:
        yield Place(tmp_path, instance)


def test_the_bundle_is_a_partition_of_its_own_and_the_end_is_written_after_it(place: Place) -> None:
    place.evaluate()
    finish, materialised = place.house.catalog.finish, []

    def look(*args: Any, **more: Any) -> Any:
        materialised.append(place.instance.get_materialized_partitions(dg.AssetKey("merged_bundle")))
        return finish(*args, **more)

    place.house.catalog.finish = look  # type: ignore[method-assign]
    assert place.settle()
    assert materialised == [{RUN}]
    assert place.instance.get_materialized_partitions(benchmark_key("nightly")) == {"2026-11-29"}
    run = place.house.catalog.get_run(RUN)
    assert (run.phase, run.result_state) == (RunPhase.COMPLETED, ResultState.READY)
    (evaluation,) = place.instance.get_runs(dg.RunsFilter(job_name="evaluate"))
    assert evaluation.tags["harbor/phase"] == "completed"


def test_a_task_whose_worker_died_before_its_event_is_green_when_the_run_is_settled(place: Place) -> None:
    house = place.house
    asyncio.run(house.engine.execute_task(RUN, 1, house.listener, asyncio.Event()))  # a worker that told nobody
    place.evaluate()
    before = {run_task_key(RUN, index) for index in (0, 2)}
    assert place.instance.get_materialized_partitions(dg.AssetKey("trial_results")) == before
    assert place.settle()
    assert place.instance.get_materialized_partitions(dg.AssetKey("trial_results")) == {*before, run_task_key(RUN, 1)}
    assert place.settle()
    told = place.instance.fetch_materializations(dg.AssetKey("trial_results"), limit=10).records
    assert len(told) == 3, "each once"


def test_tasks_that_nobody_ran_are_settled_without_an_event(place: Place) -> None:
    house = place.house
    asyncio.run(house.engine.execute_task(RUN, 1, house.listener, asyncio.Event()))
    house.catalog.request_cancel(RUN, datetime.now(UTC))
    assert place.settle()
    assert place.instance.get_materialized_partitions(dg.AssetKey("trial_results")) == {run_task_key(RUN, 1)}
    assert house.catalog.get_run(RUN).phase is RunPhase.CANCELLED


def test_settled_again_by_hand_gives_the_same_bundle(place: Place) -> None:
    place.evaluate()
    assert place.settle()
    before = place.house.catalog.get_run(RUN)
    assert place.settle()
    assert place.house.catalog.get_run(RUN) == before


def test_checks_that_are_asked_for_without_a_partition_look_at_the_newest_bundle(place: Place) -> None:
    look = dg.define_asset_job("look", selection=dg.AssetSelection.checks(*bundle_checks))
    definitions = dg.Definitions(
        assets=[harbor_task, taskset, task_image, trial_results_on_cluster, merged_bundle_on_cluster],
        asset_checks=bundle_checks,
        jobs=[look],
        resources={"engine": place.house.engine, "upkeep": None, "benchmarks": None},
    ).resolve_job_def("look")
    assert not definitions.execute_in_process(instance=place.instance, raise_on_error=False).success  # none yet
    place.evaluate()
    assert place.settle()
    done = definitions.execute_in_process(instance=place.instance)
    found = {event.check_name: event for event in done.get_asset_check_evaluations()}
    assert found.keys() == {
        "bundle_complete", "no_doubles", "scores_finite", "rewards_in_range", "digests_match", "coverage",
    }  # fmt: skip
    assert all((event.description or "").startswith(f"{RUN}: ") for event in found.values())
    assert found["coverage"].partition is None


def test_a_run_that_goes_on_is_not_settled(place: Place) -> None:
    place.executions.living = True
    assert not place.settle()
    place.executions.living = False
    assert not place.settle()  # trials are left to run
    assert place.house.outcomes() == []
    assert not place.house.catalog.get_run(RUN).phase.terminal
