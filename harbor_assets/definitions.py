"""All that Dagster loads. The one place that imports `resources` and `sensors`.

HARBOR_ASSETS_EXECUTOR chooses: `local` runs the trials inside the worker's one step, `kubernetes` makes a Job of each
task.
"""

import logging

import dagster as dg

from harbor_assets.assets.leaderboard import leaderboard
from harbor_assets.assets.runs import merged_bundle, trial_results
from harbor_assets.assets.suites import harbor_task, task_image, taskset
from harbor_assets.checks.bundles import bundle_checks
from harbor_assets.components.folder import read_benchmarks
from harbor_assets.domain.errors import Refused
from harbor_assets.jobs import evaluate, evaluate_with, publish_suite, settle, submit_evaluation
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


def _local(settings: Settings) -> dg.Definitions:
    return dg.Definitions(
        assets=[harbor_task, taskset, task_image, trial_results, merged_bundle, leaderboard],
        asset_checks=bundle_checks,
        jobs=[evaluate, submit_evaluation, publish_suite],
        resources=_RESOURCES,
        sensors=[publication_sensor(settings)],
    )


def _deployment(settings: Settings) -> dg.Definitions:
    from harbor_assets.assets.cluster import trial_results_on_cluster
    from harbor_assets.assets.settling import merged_bundle_on_cluster
    from harbor_assets.cluster.executor import kubernetes_executor
    from resources.upkeep import UpkeepResource
    from sensors.deployment import deployment_sensors

    return dg.Definitions(
        assets=[harbor_task, taskset, task_image, trial_results_on_cluster, merged_bundle_on_cluster, leaderboard],
        asset_checks=bundle_checks,
        # Without publish_suite: no pod of a deployment sees a user's folder.
        jobs=[evaluate_with(kubernetes_executor), settle, submit_evaluation],
        resources={**_RESOURCES, "upkeep": UpkeepResource()},
        sensors=deployment_sensors(settings),
    )


def _benchmarks(settings: Settings) -> dg.Definitions:
    """The scheduled benchmarks of the settings' folder.

    On a laptop a bad file is told where it is noticed: nothing loads (a run's worker does not come by here). On a
    deployment runs must be looked after whatever lies in that folder: a sensor that fails says what is wrong.
    """
    try:
        return dg.Definitions.merge(*(each.build_defs() for each in read_benchmarks(settings.benchmarks)))
    except Refused as refused:
        if settings.executor == "local":
            raise
        logging.getLogger(__name__).error("%s", refused)  # noqa: TRY400 - our own sentence
        return dg.Definitions(sensors=[refused_benchmarks(str(refused))])


_settings = Settings.load()
defs = dg.Definitions.merge(
    _deployment(_settings) if _settings.executor == "kubernetes" else _local(_settings), _benchmarks(_settings)
)
