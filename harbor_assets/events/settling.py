"""Telling Dagster of a run that has ended: what was published for it, its bundle, the checks, the leaderboard, and its
final words.

Safe to be killed anywhere and done again. Keys are added under `lock`, since adding by two at once can break both.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

import dagster as dg
from dagster._core.event_api import PartitionKeyFilter

from harbor_assets.domain.benchmarks import DayOf
from harbor_assets.domain.names import Ref
from harbor_assets.domain.outcomes import Outcome, TrialOutcome
from harbor_assets.domain.plans import PlannedTask, RunPlan
from harbor_assets.engine.inspection import Finding
from harbor_assets.engine.lifecycle import Settled
from harbor_assets.events.benchmarks import day_event
from harbor_assets.events.bundles import bundle_event, bundle_metadata, check_event
from harbor_assets.events.leaderboard import leaderboard_event
from harbor_assets.events.suites import task_event, taskset_event
from harbor_assets.events.trials import Place, task_result_event
from harbor_assets.partitions import EVALUATE, RUN_TAG, RUNS, TASKS, TASKSETS, run_task_key

Lock = Callable[[], AbstractContextManager[None]]
TaskFiles = Callable[[PlannedTask], Sequence[tuple[str, int]] | None]


def report_published(
    instance: dg.DagsterInstance,
    plan: RunPlan,
    *,
    lock: Lock,
    files: TaskFiles = lambda task: None,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """The events of the run's task revisions and taskset that Dagster does not know yet.

    Each event first, then its key: a key without an event would never be reported again. Stopped midway it loses
    nothing: the next run of the same tasks reports what is missing.
    """
    known = set(instance.get_dynamic_partitions(str(TASKS.name)))
    for task in plan.tasks:
        key = Ref.parse(task.ref, workspace=plan.workspace).partition_key
        if key in known:
            continue
        if stop():
            return
        event = task_event(
            task.ref,
            native_task_id=task.native_task_id,
            files_hash=task.files_hash,
            workspace=plan.workspace,
            files=files(task),
        )
        instance.report_runless_asset_event(event)
        with lock():
            instance.add_dynamic_partitions(str(TASKS.name), [key])
    key = Ref.parse(plan.taskset_ref, workspace=plan.workspace).partition_key
    if key not in instance.get_dynamic_partitions(str(TASKSETS.name)):
        tasks = [task.ref for task in plan.tasks]
        instance.report_runless_asset_event(taskset_event(plan.taskset_ref, tasks, workspace=plan.workspace))
        with lock():
            instance.add_dynamic_partitions(str(TASKSETS.name), [key])


def unheard(
    instance: dg.DagsterInstance, plan: RunPlan, rows: Sequence[TrialOutcome], place: Place
) -> Iterator[dg.AssetMaterialization]:
    """The events of scored tasks of which Dagster knows none: their worker died between the last row and its event.

    Without them a task that is scored, and so is never run again, would stay red.
    """
    asset, keys = dg.AssetKey("trial_results"), {run_task_key(plan.run_id, task.index) for task in plan.tasks}
    of_kind = dg.DagsterEventType.ASSET_MATERIALIZATION
    known = instance.event_log_storage.get_latest_storage_id_by_partition(asset, of_kind, partitions=keys)
    by_task: dict[int, list[TrialOutcome]] = {}
    for row in rows:
        by_task.setdefault(row.index, []).append(row)
    for task in plan.tasks:
        mine = by_task.get(task.index, [])
        if run_task_key(plan.run_id, task.index) in known or all(row.outcome is not Outcome.SCORED for row in mine):
            continue
        event = task_result_event(plan.run_id, task, mine, place)
        if isinstance(event, dg.AssetMaterialization):
            yield event


def report_settled(
    instance: dg.DagsterInstance,
    plan: RunPlan,
    settled: Settled,
    rows: Sequence[TrialOutcome],
    findings: Sequence[Finding],
    *,
    place: Place,
    lock: Lock,
    day: DayOf | None = None,
) -> None:
    """The bundle and its checks, and on the run's last execution how the run ended. `day`: which one of a benchmark it
    was for."""
    for run in instance.get_runs(dg.RunsFilter(tags={RUN_TAG: plan.run_id}, job_name=EVALUATE), limit=1):
        tags = {"harbor/phase": str(settled.phase), "harbor/result_state": str(settled.state)}
        instance.add_run_tags(run.run_id, tags)
    with lock():
        instance.add_dynamic_partitions(str(RUNS.name), [plan.run_id])
    if settled.error is None:
        metadata = bundle_metadata(plan, rows, phase=settled.phase, state=settled.state, place=place)
        instance.report_runless_asset_event(bundle_event(plan.run_id, metadata))
    if day:
        instance.report_runless_asset_event(day_event(day, plan, rows, phase=settled.phase))
    if event := leaderboard_event(settled.ranked):
        instance.report_runless_asset_event(event)
    for finding in findings:
        if not _checked(instance, finding.name, plan.run_id):
            instance.report_runless_asset_event(check_event(plan.run_id, finding))


def _checked(instance: dg.DagsterInstance, name: str, run_id: str) -> bool:
    """Whether that check has a result for the run's bundle; Dagster refuses a second one that belongs to no run."""
    key = dg.AssetCheckKey(dg.AssetKey("merged_bundle"), name)
    only = PartitionKeyFilter(key=run_id)
    return bool(instance.event_log_storage.get_asset_check_execution_history(key, limit=1, partition_filter=only))
