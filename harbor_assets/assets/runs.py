"""What a run makes: the results of each task's trials, and the merged bundle."""

import asyncio
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg
from dagster._core.errors import DagsterExecutionInterruptedError
from dagster._core.events import AssetMaterializationPlannedData, DagsterEvent

from harbor_assets.assets.refusal import BY_HAND, NEVER_BY_DAGSTER
from harbor_assets.assets.suites import CODE_VERSION, OWNERS, task_image, taskset
from harbor_assets.domain.errors import HarborAssetsError
from harbor_assets.domain.outcomes import Outcome, TrialOutcome
from harbor_assets.domain.plans import PlannedTask
from harbor_assets.engine.execution import Ended
from harbor_assets.engine.lifecycle import RunEngine
from harbor_assets.events.bundles import bundle_metadata
from harbor_assets.events.leaderboard import leaderboard_event
from harbor_assets.events.trials import task_result_event
from harbor_assets.local.dying import die
from harbor_assets.partitions import EXECUTION_TAG, RUN_TAG, RUN_TASKS, RUNS, quietly, run_task_key

TRIAL_RESULTS = f"""\
One partition per task of a run, `run-…|index`: its trials, their rewards, outcomes and evidence.

Green: at least one trial has a score. Red: none has; the observation beside it says why. A lost sandbox or a missing
reward is never a zero.

{BY_HAND}
"""
MERGED_BUNDLE = """\
The result bundle of a run, `agent-eval-results/`: every planned trial with its outcome, the scores with their coverage,
report, tables and evidence. Made when the run has ended, in whatever way.

Materialising a partition merges an ended run again from its outcome rows, which gives the same bundle.
"""


def _run_trials(context: dg.AssetExecutionContext, engine: dg.ResourceParam[RunEngine]) -> Iterator[dg.Output[None]]:
    """Every task of the run that has no outcome yet. Made by a submitted run only: the run's tag says which."""
    run_id = context.run.tags.get(RUN_TAG)
    if run_id is None or context.run.parent_run_id is not None:
        raise dg.Failure(BY_HAND, allow_retries=False)
    ended = asyncio.run(_execute(context, engine, run_id))
    if ended is Ended.DONE:
        rows = engine.outcomes(run_id)
        missing = [row for row in rows if row.outcome is not Outcome.SCORED]
        if missing:  # Dagster colours a planned partition red only where its run failed
            raise dg.Failure(f"{len(missing)} of {len(rows)} trials have no score", allow_retries=False)
    elif ended is Ended.STOPPED:
        raise dg.Failure(f"The run was stopped: {engine.why_stopped(run_id)}", allow_retries=False)
    else:
        if ended is not Ended.INTERRUPTED:
            context.instance.report_run_canceling(context.run)  # else Dagster takes what follows for a failure
        raise DagsterExecutionInterruptedError
    # A generator that yields nothing: returning None fails on a range of partitions.
    yield from ()


def _trial_results(deps: Sequence[dg.AssetSpec], config: Mapping[str, Any] | None = None) -> dg.AssetsDefinition:
    with quietly():
        return dg.asset(
            name="trial_results",
            partitions_def=RUN_TASKS,
            deps=deps,
            config_schema=config,
            backfill_policy=dg.BackfillPolicy.single_run(),
            output_required=False,
            description=TRIAL_RESULTS,
            group_name="runs",
            kinds={"harbor"},
            owners=OWNERS,
            code_version=CODE_VERSION,
        )(_run_trials)


trial_results = _trial_results([taskset, task_image], NEVER_BY_DAGSTER)

# The same asset as a worker executes it. Without range tags (see `Reporter`) Dagster cannot map the partitions of the
# step to those of what it depends on, and fails when it looks up their versions; exact provenance is in the metadata.
trial_results_alone = _trial_results([])


async def _execute(context: dg.AssetExecutionContext, engine: RunEngine, run_id: str) -> Ended:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)  # Dagster's own handler would raise anywhere inside the loop
    return await engine.execute(run_id, Reporter(context.op_execution_context, engine), stop)


class Reporter:
    """Tells Dagster what begins and ends, partition by partition.

    Planned events are written as each task begins, not by range tags at the run's start: those cost 9 ms for each
    task before the first trial, and turn finished partitions red when a later execution has gaps.
    """

    def __init__(self, context: dg.OpExecutionContext, engine: RunEngine) -> None:
        self._context, self._engine = context, engine

    def task_began(self, run_id: str, task: PlannedTask) -> None:
        data = AssetMaterializationPlannedData(dg.AssetKey("trial_results"), partition=run_task_key(run_id, task.index))
        event = DagsterEvent.build_asset_materialization_planned_event(
            self._context.job_name, self._context.get_step_execution_context().step.key, data
        )
        self._context.instance.report_dagster_event(event, self._context.run_id)

    def task_ended(self, run_id: str, task: PlannedTask, rows: Sequence[TrialOutcome]) -> None:
        if rows:
            die(int(self._context.run.tags.get(EXECUTION_TAG, "0")), "row_written")
            place = lambda path: self._engine.place(run_id, path)  # noqa: E731
            self._context.log_event(task_result_event(run_id, task, rows, place))
        for row in rows:
            if row.outcome is not Outcome.SCORED:
                self._context.log.warning(f"{row.trial_id}: {row.outcome} ({row.reason}) {row.message or ''}")


@dg.asset(
    partitions_def=RUNS,
    deps=[trial_results],
    description=MERGED_BUNDLE,
    group_name="runs",
    kinds={"parquet"},
    owners=OWNERS,
    code_version=CODE_VERSION,
)
def merged_bundle(context: dg.AssetExecutionContext, engine: dg.ResourceParam[RunEngine]) -> dg.MaterializeResult:
    """Settle an ended run again from its outcome rows: gives the same bundle."""
    run_id = context.partition_key
    try:
        settled, plan, rows = engine.settle_again(run_id)
    except HarborAssetsError as error:
        raise dg.Failure(str(error), allow_retries=False) from error
    if settled.error:
        raise dg.Failure(settled.error, allow_retries=False)
    if event := leaderboard_event(settled.ranked):
        context.log_event(event)
    metadata = bundle_metadata(
        plan, rows, phase=settled.phase, state=settled.state, place=lambda path: engine.place(run_id, path)
    )
    return dg.MaterializeResult(metadata=metadata)
