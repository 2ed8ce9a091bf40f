"""Jobs: what a Dagster run of ours consists of."""

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from harbor_assets.ops.publish import publish
from harbor_assets.ops.submit import submit
from harbor_assets.partitions import EVALUATE


def evaluate_with(executor: dg.ExecutorDefinition) -> UnresolvedAssetJobDefinition:
    """The job `evaluate` with the executor of a laptop or of a deployment."""
    return dg.define_asset_job(
        EVALUATE,
        selection=dg.AssetSelection.assets("trial_results").without_checks(),
        executor_def=executor,
        description="One execution of an evaluation run. Started by submitting a run (job `submit_evaluation`).",
    )


settle = dg.define_asset_job(
    "settle",
    selection=["merged_bundle"],
    executor_def=dg.in_process_executor,
    description="Merges the results of a run that has ended. Started by the sensor of the same name.",
)

evaluate = evaluate_with(dg.in_process_executor)  # the trials run side by side inside the one step


# In process: the op takes a second, a process or pod of its own would take several more.
@dg.job(
    executor_def=dg.in_process_executor,
    description="Submit an evaluation run: a stored taskset, an agent, attempts and limits. Terminate the run of job "
    "`evaluate` that follows to cancel it.",
)
def submit_evaluation() -> None:
    """The Launchpad's way to `runs submit`."""
    submit()


@dg.job(
    executor_def=dg.in_process_executor,
    description="Publish a suite's folder as tasks and a taskset. Unchanged tasks are left alone.",
)
def publish_suite() -> None:
    """The Launchpad's way to `tasksets create`."""
    publish()
