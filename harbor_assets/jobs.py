"""Jobs: what a Dagster run of ours consists of."""

import dagster as dg

from harbor_assets.assets.runs import trial_results

evaluate = dg.define_asset_job(
    "evaluate",
    selection=[trial_results],
    executor_def=dg.in_process_executor,  # the trials run side by side inside the one step
    description="One execution of an evaluation run. Started by submitting a run, never by hand.",
)
