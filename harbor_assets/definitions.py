"""All that Dagster loads. The one place that imports `resources` and `sensors`.

HARBOR_ASSETS_EXECUTOR chooses: `local` runs the trials inside the worker's one step, `kubernetes` makes a Job of each
task.
"""

import logging
from collections.abc import Sequence

import dagster as dg

from harbor_assets.assets.leaderboard import leaderboard
from harbor_assets.assets.runs import merged_bundle, trial_results
from harbor_assets.assets.suites import harbor_task, task_image, taskset
from harbor_assets.checks.bundles import bundle_checks
from harbor_assets.components.folder import read_benchmarks
from harbor_assets.components.scheduled import ScheduledBenchmark, patience
from harbor_assets.domain.errors import Refused
from harbor_assets.jobs import evaluate, evaluate_with, publish_suite, settle, submit_evaluation
from harbor_assets.partitions import quietly
from harbor_assets.settings import Settings
from resources.benchmarks import BenchmarksResource
from resources.engine import EngineResource
from resources.services import EvaluationsResource, PublisherResource, RankingsResource
from sensors.benchmarks import refused_benchmarks
from sensors.publications import publication_sensor

_RESOURCES = {
    "benchmarks": BenchmarksResource(),
    "engine": EngineResource(),
    "evaluations": EvaluationsResource(),
    "publisher": PublisherResource(),
    "rankings": RankingsResource(),
}


def _local(settings: Settings, board: dg.AssetsDefinition) -> dg.Definitions:
    return dg.Definitions(
        assets=[harbor_task, taskset, task_image, trial_results, merged_bundle, board],
        asset_checks=bundle_checks,
        jobs=[evaluate, submit_evaluation, publish_suite],
        resources=_RESOURCES,
        sensors=[publication_sensor(settings)],
    )


def _deployment(settings: Settings, board: dg.AssetsDefinition) -> dg.Definitions:
    from harbor_assets.assets.cluster import trial_results_on_cluster
    from harbor_assets.assets.settling import merged_bundle_on_cluster
    from harbor_assets.cluster.executor import kubernetes_executor
    from resources.upkeep import UpkeepResource
    from sensors.deployment import deployment_sensors

    return dg.Definitions(
        assets=[harbor_task, taskset, task_image, trial_results_on_cluster, merged_bundle_on_cluster, board],
        asset_checks=bundle_checks,
        # Without publish_suite: no pod of a deployment sees a user's folder.
        jobs=[evaluate_with(kubernetes_executor), settle, submit_evaluation],
        resources={**_RESOURCES, "upkeep": UpkeepResource()},
        sensors=deployment_sensors(settings),
    )


def _read_benchmarks(settings: Settings) -> tuple[Sequence[ScheduledBenchmark], str | None]:
    """The scheduled benchmarks of the settings' folder, and why there are none.

    On a laptop a bad file is told where it is noticed: nothing loads (a run's worker does not come by here). On a
    deployment runs must be looked after whatever lies in that folder: a sensor that fails says what is wrong.
    """
    try:
        return read_benchmarks(settings.benchmarks), None
    except Refused as refused:
        if settings.executor == "local":
            raise
        logging.getLogger(__name__).error("%s", refused)  # noqa: TRY400 - our own sentence
        return (), str(refused)


def _fresh(asset: dg.AssetsDefinition, benchmarks: Sequence[ScheduledBenchmark]) -> dg.AssetsDefinition:
    """Every run writes to the leaderboard, so it is as fresh as the benchmark that runs most often wants to be."""
    windows = [patience(each.benchmark) for each in benchmarks if each.benchmark.enabled]
    if not windows:
        return asset
    with quietly():
        policy = dg.FreshnessPolicy.time_window(fail_window=min(windows))
    return asset.map_asset_specs(lambda spec: dg.apply_freshness_policy(spec, policy))


def _all(settings: Settings) -> dg.Definitions:
    benchmarks, refused = _read_benchmarks(settings)
    board = _fresh(leaderboard, benchmarks)
    main = _deployment(settings, board) if settings.executor == "kubernetes" else _local(settings, board)
    told = [dg.Definitions(sensors=[refused_benchmarks(refused)])] if refused else []
    return dg.Definitions.merge(main, *told, *(each.build_defs() for each in benchmarks))


defs = _all(Settings.load())
