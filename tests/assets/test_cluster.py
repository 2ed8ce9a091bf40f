"""The cluster form of `trial_results`, executed in this process: the same engine calls and the same partitions."""

import asyncio
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.loader import LoadingContextForTest
from dagster._core.storage.partition_status_cache import get_partition_subsets

from harbor_assets.assets.cluster import trial_results_on_cluster
from harbor_assets.assets.runs import merged_bundle
from harbor_assets.assets.suites import harbor_task, task_image, taskset
from harbor_assets.domain.endings import Ending
from harbor_assets.domain.outcomes import Reason
from harbor_assets.domain.plans import PlannedTask
from harbor_assets.engine.inspection import Finding
from harbor_assets.events.settling import report_published, report_settled
from harbor_assets.jobs import evaluate
from harbor_assets.partitions import RUN_TASKS, run_task_key
from tests.engine.test_execution import RUN, House, graded


def execute(house: House, instance: dg.DagsterInstance, submitted: str = RUN, **tags: str) -> dg.ExecuteInProcessResult:
    definitions = dg.Definitions(
        assets=[harbor_task, taskset, task_image, trial_results_on_cluster, merged_bundle],
        jobs=[evaluate],
        resources={"engine": house.engine},
    )
    instance.add_dynamic_partitions("run_task", [run_task_key(RUN, task.index) for task in house.plan.tasks])
    job = definitions.resolve_job_def("evaluate")
    config = {"ops": {"trial_results": {"ops": {"plan": {"config": {"submitted_run": submitted}}}}}}
    tags = {"harbor/run_id": RUN, **tags}
    return job.execute_in_process(instance=instance, tags=tags, run_config=config, raise_on_error=False)


class Playing(House):
    @property
    def plan(self) -> Any:
        return self.catalog.get_run(RUN).plan


def partitions(instance: dg.DagsterInstance) -> list[list[str]]:
    loading, asset = LoadingContextForTest(instance), dg.AssetKey("trial_results")
    found = asyncio.run(get_partition_subsets(instance, loading, asset, instance, RUN_TASKS))
    return [sorted(s.get_partition_keys()) if s else [] for s in found]


@pytest.fixture
def instance():  # type: ignore[no-untyped-def]
    with dg.DagsterInstance.ephemeral() as it:
        yield it


def test_a_step_for_each_task_and_a_partition_of_it(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    house = Playing(tmp_path, graded, n_attempts=2)
    result = execute(house, instance)
    assert result.success
    steps = {e.step_key for e in result.all_events if e.is_step_success}
    assert steps == {"trial_results.plan", *(f"trial_results.trial[t{i:05d}]" for i in range(3))}
    assert partitions(instance) == [[run_task_key(RUN, i) for i in range(3)], [], []]
    assert house.outcomes() == ["scored"] * 6
    assert house.catalog.get_run(RUN).started_at


def test_a_task_without_a_score_is_red_and_stops_no_other(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    async def script(task: PlannedTask, k: int) -> Ending:
        return Ending(Reason.SANDBOX_LOST, "gone") if task.index == 1 else await graded(task, k)

    house = Playing(tmp_path, script)
    assert not execute(house, instance).success
    assert partitions(instance)[:2] == [[run_task_key(RUN, i) for i in (0, 2)], [run_task_key(RUN, 1)]]
    assert house.outcomes() == ["scored", "infra_failed", "scored"]


def test_a_later_execution_runs_what_is_left_and_leaves_others_green(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    house = Playing(tmp_path, graded)
    asyncio.run(house.engine.execute_task(RUN, 1, house.listener, asyncio.Event()))
    assert execute(house, instance).success
    assert house.runner.ran == [(1, 1), (0, 1), (2, 1)]
    assert partitions(instance)[1:] == [[], []]


def test_a_stopped_run_begins_no_further_task_and_says_why(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    async def script(task: PlannedTask, k: int) -> Ending:
        return Ending(Reason.PROVIDER_REFUSED, "no key") if task.index < 2 else await graded(task, k)

    house = Playing(tmp_path, script)
    result = execute(house, instance)
    assert house.runner.ran == [(0, 1), (1, 1)]
    failures = {event.step_key: event.step_failure_data for event in result.all_events if event.is_step_failure}
    said = failures["trial_results.trial[t00002]"].error_display_string
    assert "The run was stopped: provider_refused: no key" in said
    assert not house.engine.has_work(RUN)


def test_a_cancelled_run_plans_nothing(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    house = Playing(tmp_path, graded)
    house.catalog.request_cancel(RUN, datetime.now(UTC))
    execute(house, instance)
    assert house.runner.ran == []


def test_by_hand_is_refused_with_the_way_to_do_it(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    house = Playing(tmp_path, graded)
    result = execute(house, instance, **{"harbor/run_id": ""} | {"dagster/parent_run_id": "x"})
    assert not result.success


def test_by_hand_is_refused_before_a_run_is_made(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    house = Playing(tmp_path, graded)
    with pytest.raises(dg.DagsterInvalidConfigError, match="harbor-assets runs submit --taskset REF"):
        execute(house, instance, submitted="")
    assert instance.get_runs() == []
    assert partitions(instance) == [[], [], []]


def test_the_end_is_reported_once_with_what_was_published(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    house = Playing(tmp_path, graded)
    execute(house, instance)
    settled = house.engine.settle(RUN)
    rows, findings = house.engine.outcomes(RUN), [Finding("coverage", passed=False, text="few", warning=True)]
    for _ in range(2):
        report_published(instance, house.plan, lock=nullcontext)
        report_settled(instance, house.plan, settled, rows, findings, place=str, lock=nullcontext)
    assert instance.get_materialized_partitions(dg.AssetKey("merged_bundle")) == {RUN}
    assert len(instance.get_materialized_partitions(dg.AssetKey("harbor_task"))) == 3
    assert len(instance.get_dynamic_partitions("task")) == 3
    assert len(instance.get_dynamic_partitions("taskset")) == 1
    (run,) = instance.get_runs()
    assert run.tags["harbor/phase"] == "completed"
