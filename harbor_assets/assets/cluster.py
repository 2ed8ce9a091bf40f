"""`trial_results` as a deployment makes it: a plan, and a step for each task of the run.

The values between the steps are `Nothing`, so there is no IO manager and no disk that steps would have to share: what a
task needs stands in the catalog and in the artifact store, under the run's id.
"""

import asyncio
import signal
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import dagster as dg
from dagster._core.errors import DagsterExecutionInterruptedError

from harbor_assets.assets.refusal import BY_HAND, ONLY_SUBMITTED
from harbor_assets.assets.runs import TRIAL_RESULTS, Reporter
from harbor_assets.assets.suites import CODE_VERSION, OWNERS
from harbor_assets.cluster.executions import lost_workers
from harbor_assets.cluster.ownpod import why_stopped
from harbor_assets.domain.outcomes import Outcome
from harbor_assets.engine.account import Lost
from harbor_assets.engine.execution import Ended
from harbor_assets.engine.lifecycle import RunEngine
from harbor_assets.partitions import RUN_TAG, RUN_TASKS, quietly
from harbor_assets.settings import Settings


def _run_id(context: dg.OpExecutionContext) -> str:
    run_id = context.run.tags.get(RUN_TAG)
    if not run_id or context.run.parent_run_id is not None:
        raise dg.Failure(BY_HAND, allow_retries=False)
    return run_id


@dg.op(
    ins={"taskset": dg.In(dg.Nothing), "task_image": dg.In(dg.Nothing)},
    out={"tasks": dg.DynamicOut(dg.Nothing), "never": dg.Out(dg.Nothing, is_required=False)},
    config_schema=ONLY_SUBMITTED,
    description="Which tasks have no outcome yet. The run's time begins here.",
)
def plan(context: dg.OpExecutionContext, engine: dg.ResourceParam[RunEngine]) -> Iterator[dg.DynamicOutput[None]]:
    """One output for each task with work left, named by its index."""
    for index in engine.take_slot(_run_id(context)):
        yield dg.DynamicOutput(None, output_name="tasks", mapping_key=f"t{index:05d}")


@dg.op(ins={"planned": dg.In(dg.Nothing)}, out=dg.Out(dg.Nothing), description="One task: its trials, one by one.")
def trial(context: dg.OpExecutionContext, engine: dg.ResourceParam[RunEngine]) -> None:
    """The trials of one task. Its rows stand in the catalog when this ends, however it ends."""
    run_id, key = _run_id(context), context.get_mapping_key()
    assert key is not None
    index = int(key.removeprefix("t"))
    context.log.info(f"task {index} begins after {time.process_time():.1f} s of its worker's CPU")
    ended = asyncio.run(_execute(context, engine, run_id, index))
    if ended is Ended.INTERRUPTED and (why := why_stopped(Settings.load().namespace)):
        raise DagsterExecutionInterruptedError(why)
    if ended is Ended.STOPPED:
        raise dg.Failure(f"The run was stopped: {engine.why_stopped(run_id)}", allow_retries=False)
    if ended is not Ended.DONE:
        raise DagsterExecutionInterruptedError
    rows = engine.outcomes(run_id, index)
    missing = [row for row in rows if row.outcome is not Outcome.SCORED]
    if missing:  # Dagster colours a planned partition red only where its run failed
        raise dg.Failure(f"{len(missing)} of {len(rows)} trials have no score", allow_retries=False)


async def _execute(context: dg.OpExecutionContext, engine: RunEngine, run_id: str, index: int) -> Ended:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)  # Dagster's own handler would raise anywhere inside the loop
    lost = partial(_lost, context.instance, run_id, index)
    return await engine.execute_task(run_id, index, Reporter(context, engine), stop, lost=lost)


def _lost(instance: dg.DagsterInstance, run_id: str, index: int) -> Lost | None:
    return lost_workers(instance, run_id).get(index)


@dg.op(
    ins={"trials": dg.In(dg.Nothing), "never": dg.In(dg.Nothing)},
    out=dg.Out(dg.Nothing, is_required=False),
    description="Always skipped: every task has reported its own partition by now.",
)
def end(context: dg.OpExecutionContext) -> None:
    """Dagster wants one step behind all others, to which the asset belongs. It waits for what `plan` never gives: so it
    is skipped, and no pod is started for nothing."""
    raise AssertionError(f"{context.op_handle} has nothing to do")


def _graph(taskset: None, task_image: None) -> dict[str, Any]:
    tasks, never = plan(taskset=taskset, task_image=task_image)
    return {"trial_results": end(trials=tasks.map(trial).collect(), never=never)}


with quietly():
    trial_results_on_cluster = dg.graph_multi_asset(
        name="trial_results",
        outs={
            "trial_results": dg.AssetOut(
                is_required=False,
                dagster_type=dg.Nothing,
                description=TRIAL_RESULTS,
                group_name="runs",
                kinds={"harbor", "kubernetes"},
                owners=OWNERS,
                code_version=CODE_VERSION,
            )
        },
        ins={
            "taskset": dg.AssetIn("taskset", dagster_type=dg.Nothing),
            "task_image": dg.AssetIn("task_image", dagster_type=dg.Nothing),
        },
        partitions_def=RUN_TASKS,
        backfill_policy=dg.BackfillPolicy.single_run(),
    )(_graph)
