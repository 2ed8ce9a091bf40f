"""Jobs: what a Dagster run of ours consists of."""

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition


def evaluate_with(executor: dg.ExecutorDefinition) -> UnresolvedAssetJobDefinition:
    """The job `evaluate` with the executor of a laptop or of a deployment."""
    return dg.define_asset_job(
        "evaluate",
        selection=["trial_results"],
        executor_def=executor,
        description="One execution of an evaluation run. Started by submitting a run, never by hand.",
    )


evaluate = evaluate_with(dg.in_process_executor)  # the trials run side by side inside the one step
