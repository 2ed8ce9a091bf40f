"""Jobs: what a Dagster run of ours consists of."""

import dagster as dg

evaluate = dg.define_asset_job(
    "evaluate",
    selection=["trial_results"],
    executor_def=dg.in_process_executor,  # the trials run side by side inside the one step
    description="One execution of an evaluation run. Started by submitting a run, never by hand.",
)
