"""What a run makes: the results of each task's trials, and the merged bundle."""

import asyncio
import signal
from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg
from dagster._core.errors import DagsterExecutionInterruptedError
from dagster._core.events import AssetMaterializationPlannedData, DagsterEvent

from harbor_assets.assets.suites import OWNERS, task_image, taskset
from harbor_assets.domain.digests import digest_of
from harbor_assets.domain.errors import HarborAssetsError
from harbor_assets.domain.outcomes import Outcome, TrialOutcome
from harbor_assets.domain.plans import PlannedTask
from harbor_assets.engine.execution import Ended
from harbor_assets.engine.lifecycle import RunEngine
from harbor_assets.partitions import RUN_TASKS, RUNS, run_task_key

RUN_TAG = "harbor/run_id"
EXECUTION_TAG = "harbor/execution"


def _run_trials(context: dg.AssetExecutionContext, engine: dg.ResourceParam[RunEngine]) -> Iterator[dg.Output[None]]:
    """Every task of the run that has no outcome yet. Made by a submitted run only: the run's tag says which."""
    run_id = context.run.tags.get(RUN_TAG)
    if run_id is None:
        raise dg.Failure(
            "Trial results are made by submitting a run: harbor-assets runs submit --taskset REF. "
            "Materialising partitions by hand would give them results that belong to no run.",
            allow_retries=False,
        )
    ended = asyncio.run(_execute(context, engine, run_id))
    if ended is Ended.DONE:
        rows = engine.outcomes(run_id)
        missing = [row for row in rows if row.outcome is not Outcome.SCORED]
        if missing:  # Dagster colours a planned partition red only where its run failed
            raise dg.Failure(f"{len(missing)} of {len(rows)} trials have no score", allow_retries=False)
    else:
        if ended is not Ended.INTERRUPTED:
            context.instance.report_run_canceling(context.run)  # else Dagster takes what follows for a failure
        raise DagsterExecutionInterruptedError
    # A generator that yields nothing: returning None fails on a range of partitions.
    yield from ()


def _trial_results(deps: Sequence[dg.AssetSpec]) -> dg.AssetsDefinition:
    return dg.asset(
        name="trial_results",
        partitions_def=RUN_TASKS,
        deps=deps,
        backfill_policy=dg.BackfillPolicy.single_run(),
        output_required=False,
        description="One partition per task of a run: its trials, their rewards and evidence.",
        group_name="runs",
        kinds={"harbor"},
        owners=OWNERS,
    )(_run_trials)


trial_results = _trial_results([taskset, task_image])

# The same asset as a worker executes it. Without range tags (see `Reporter`) Dagster cannot map the partitions of the
# step to those of what it depends on, and fails when it looks up their versions; exact provenance is in the metadata.
trial_results_alone = _trial_results([])


async def _execute(context: dg.AssetExecutionContext, engine: RunEngine, run_id: str) -> Ended:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)  # Dagster's own handler would raise anywhere inside the loop
    return await engine.execute(run_id, Reporter(context.op_execution_context), stop)


class Reporter:
    """Tells Dagster what begins and ends, partition by partition.

    Planned events are written as each task begins, not by range tags at the run's start: those cost 9 ms for each
    task before the first trial, and turn finished partitions red when a later execution has gaps.
    """

    def __init__(self, context: dg.OpExecutionContext) -> None:
        self._context = context

    def task_began(self, run_id: str, task: PlannedTask) -> None:
        data = AssetMaterializationPlannedData(dg.AssetKey("trial_results"), partition=run_task_key(run_id, task.index))
        event = DagsterEvent.build_asset_materialization_planned_event(
            self._context.job_name, self._context.get_step_execution_context().step.key, data
        )
        self._context.instance.report_dagster_event(event, self._context.run_id)

    def task_ended(self, run_id: str, task: PlannedTask, rows: Sequence[TrialOutcome]) -> None:
        key = run_task_key(run_id, task.index)
        metadata = _metadata(task, rows)
        if any(row.outcome is Outcome.SCORED for row in rows):
            self._context.log_event(
                dg.AssetMaterialization(
                    "trial_results",
                    partition=key,
                    metadata=metadata,
                    tags={"dagster/data_version": digest_of([row.model_dump(mode="json") for row in rows])},
                )
            )
        elif rows:
            self._context.log_event(dg.AssetObservation("trial_results", partition=key, metadata=metadata))
        for row in rows:
            if row.outcome is not Outcome.SCORED:
                self._context.log.warning(f"{row.trial_id}: {row.outcome} ({row.reason}) {row.message or ''}")


def _metadata(task: PlannedTask, rows: Sequence[TrialOutcome]) -> dict[str, Any]:
    rewards = [row.reward for row in rows if row.reward is not None]
    seconds = sum((t.end - t.start).total_seconds() for row in rows for t in row.tries if t.end)
    metadata: dict[str, Any] = {
        "task": task.name,
        "task_ref": task.ref,
        "files_hash": task.files_hash,
        "trial_key": task.trial_key,
        "trials": len(rows),
        "outcomes": ", ".join(f"{row.outcome} ({row.reason})" for row in rows),
        "duration_seconds": dg.MetadataValue.float(round(seconds, 3)),
    }
    if rewards:
        metadata["reward"] = dg.MetadataValue.float(sum(rewards) / len(rewards))
    if any(len(row.rewards) > 1 for row in rows):
        metadata["rewards"] = dg.MetadataValue.json({str(row.k): row.rewards for row in rows if row.rewards})
    if flags := sorted({flag for row in rows for flag in row.flags}):
        metadata["flags"] = ", ".join(flags)
    evidence = [row.evidence for row in rows if row.evidence]
    if evidence:
        metadata["evidence"] = ", ".join(evidence)
    return metadata


@dg.asset(
    partitions_def=RUNS,
    deps=[trial_results],
    description="The merged result bundle of a run: agent-eval-results with report, summary and evidence.",
    group_name="runs",
    kinds={"parquet"},
    owners=OWNERS,
)
def merged_bundle(context: dg.AssetExecutionContext, engine: dg.ResourceParam[RunEngine]) -> dg.MaterializeResult:
    """Settle an ended run again from its outcome rows: gives the same bundle."""
    try:
        settled = engine.settle(context.partition_key)
    except HarborAssetsError as error:
        raise dg.Failure(str(error), allow_retries=False) from error
    return dg.MaterializeResult(metadata=bundle_metadata(settled.metadata))


def bundle_metadata(facts: dict[str, Any]) -> dict[str, Any]:
    """Metadata of a bundle's materialisation from what settling it told; unknown figures are left out."""
    return {
        name: dg.MetadataValue.path(value) if name == "report" else value
        for name, value in facts.items()
        if value is not None
    }
