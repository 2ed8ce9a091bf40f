"""All that Dagster loads. The one place that imports `resources` and `sensors`.

HARBOR_ASSETS_EXECUTOR chooses: `local` runs the trials inside the worker's one step, `kubernetes` makes a Job of each
task.
"""

import dagster as dg

from harbor_assets.assets.leaderboard import leaderboard
from harbor_assets.assets.runs import merged_bundle, trial_results, trial_results_alone
from harbor_assets.assets.suites import harbor_task, task_image, taskset
from harbor_assets.checks.bundles import bundle_checks
from harbor_assets.jobs import evaluate, evaluate_with, publish_suite, settle, submit_evaluation
from harbor_assets.settings import Settings
from resources.engine import EngineResource
from resources.services import EvaluationsResource, PublisherResource, RankingsResource
from sensors.publications import publication_sensor

_RESOURCES = {
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


_settings = Settings.load()
defs = _deployment(_settings) if _settings.executor == "kubernetes" else _local(_settings)


def evaluate_job() -> dg.JobDefinition:
    """The job `evaluate` as a worker on this machine executes it."""
    alone = dg.Definitions(assets=[trial_results_alone], jobs=[evaluate], resources={"engine": _RESOURCES["engine"]})
    return alone.resolve_job_def("evaluate")
