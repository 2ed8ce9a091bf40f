"""`merged_bundle` as a deployment makes it: in a Dagster run of its own, after the evaluation has ended in any way."""

from collections.abc import Iterator
from functools import partial

import dagster as dg

from harbor_assets.assets.runs import MERGED_BUNDLE
from harbor_assets.assets.suites import CODE_VERSION, OWNERS
from harbor_assets.cluster.upkeep import Upkeep
from harbor_assets.domain.errors import HarborAssetsError
from harbor_assets.engine.benchmarks import Benchmarks
from harbor_assets.engine.lifecycle import RunEngine, Settled
from harbor_assets.events.benchmarks import day_event
from harbor_assets.events.bundles import bundle_metadata
from harbor_assets.events.leaderboard import leaderboard_event
from harbor_assets.events.settling import unheard
from harbor_assets.partitions import EVALUATE, RUN_TAG, RUNS


@dg.asset(
    name="merged_bundle",
    partitions_def=RUNS,
    deps=["trial_results"],
    description=MERGED_BUNDLE,
    group_name="runs",
    kinds={"parquet"},
    owners=OWNERS,
    code_version=CODE_VERSION,
)
def merged_bundle_on_cluster(
    context: dg.AssetExecutionContext,
    engine: dg.ResourceParam[RunEngine],
    upkeep: dg.ResourceParam[Upkeep],
    benchmarks: dg.ResourceParam[Benchmarks],
) -> Iterator[dg.MaterializeResult]:
    """Settle a run that has ended; again for one that is settled, which gives the same bundle.

    May be killed anywhere. The run's end is written after the event is stored: a run that looks ended has its bundle.
    """
    run_id = context.partition_key
    try:
        run, settled = upkeep.settle(run_id)
        _report_phase(context.instance, run_id, settled)
        rows, place = engine.outcomes(run_id), partial(engine.place, run_id)
        for lost in unheard(context.instance, run.plan, rows, place):
            context.instance.report_runless_asset_event(lost)
        if settled.error is None:
            metadata = bundle_metadata(run.plan, rows, phase=settled.phase, state=settled.state, place=place)
            if event := leaderboard_event(settled.ranked):
                context.log_event(event)
            yield dg.MaterializeResult(metadata=metadata)
        if day := benchmarks.day_of(run_id):
            context.log_event(day_event(day, run.plan, rows, phase=settled.phase))
        upkeep.finish(run_id, settled)
    except HarborAssetsError as error:
        raise dg.Failure(str(error), allow_retries=False) from error
    if settled.error is not None:
        raise dg.Failure(settled.error, allow_retries=False)
    context.log.info(f"{run_id} is {settled.phase}, result {settled.state}")


def _report_phase(instance: dg.DagsterInstance, run_id: str, settled: Settled) -> None:
    """Tell the run's last execution how the run ended."""
    for run in instance.get_runs(dg.RunsFilter(tags={RUN_TAG: run_id}, job_name=EVALUATE), limit=1):
        tags = {"harbor/phase": str(settled.phase), "harbor/result_state": str(settled.state)}
        instance.add_run_tags(run.run_id, tags)
