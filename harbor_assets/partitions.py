"""Partition sets of the assets, and how their keys are written. All dynamic: keys are added as things come to be.

Dagster cannot say which keys of one set belong to which of another; exact provenance is in each event's metadata.
"""

import dagster as dg

TASKS = dg.DynamicPartitionsDefinition(name="task")  # ws/name#12hex
TASKSETS = dg.DynamicPartitionsDefinition(name="taskset")  # ws/name#12hex
IMAGES = dg.DynamicPartitionsDefinition(name="image")  # sha256:12hex
RUN_TASKS = dg.DynamicPartitionsDefinition(name="run_task")  # run-16hex|00000
RUNS = dg.DynamicPartitionsDefinition(name="run")  # run-16hex


def run_task_key(run_id: str, index: int) -> str:
    """The key of one task of a run; padded, so that keys sort as indexes do."""
    return f"{run_id}|{index:05d}"
