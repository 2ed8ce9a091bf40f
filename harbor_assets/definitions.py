"""All that Dagster loads. The one place that imports `resources` and `sensors`."""

import dagster as dg

from harbor_assets.assets.runs import merged_bundle, trial_results, trial_results_alone
from harbor_assets.assets.suites import harbor_task, task_image, taskset
from harbor_assets.jobs import evaluate
from resources.engine import EngineResource

defs = dg.Definitions(
    assets=[harbor_task, taskset, task_image, trial_results, merged_bundle],
    jobs=[evaluate],
    resources={"engine": EngineResource()},
)


def evaluate_job() -> dg.JobDefinition:
    """The job `evaluate` as a worker executes it."""
    alone = dg.Definitions(assets=[trial_results_alone], jobs=[evaluate], resources={"engine": EngineResource()})
    return alone.resolve_job_def("evaluate")
