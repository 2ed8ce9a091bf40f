"""Partition sets of the assets, how their keys are written, and the names by which runs are found in Dagster.

All sets are dynamic: keys are added as things come to be. Dagster cannot say which keys of one set belong to which of
another; exact provenance is in each event's metadata.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

TASKS = dg.DynamicPartitionsDefinition(name="task")  # ws/name#12hex
TASKSETS = dg.DynamicPartitionsDefinition(name="taskset")  # ws/name#12hex
IMAGES = dg.DynamicPartitionsDefinition(name="image")  # sha256:12hex
RUN_TASKS = dg.DynamicPartitionsDefinition(name="run_task")  # run-16hex|00000
RUNS = dg.DynamicPartitionsDefinition(name="run")  # run-16hex

EVALUATE = "evaluate"  # the job of which each execution of a run is a Dagster run
RUN_TAG = "harbor/run_id"
EXECUTION_TAG = "harbor/execution"


def run_task_key(run_id: str, index: int) -> str:
    """The key of one task of a run; padded, so that keys sort as indexes do."""
    return f"{run_id}|{index:05d}"


def run_of(key: str) -> str:
    """The run of such a key."""
    return key.partition("|")[0]


@contextmanager
def quietly() -> Iterator[None]:
    """Without Dagster's notices about parameters that may still change: its version is pinned exactly."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        warnings.simplefilter("ignore", dg.PreviewWarning)
        yield
