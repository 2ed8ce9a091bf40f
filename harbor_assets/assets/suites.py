"""What is published: tasks, tasksets, images. External to Dagster: publishing reports their events."""

import dagster as dg

from harbor_assets.partitions import IMAGES, TASKS, TASKSETS

OWNERS = ["team:evals"]

harbor_task = dg.AssetSpec(
    "harbor_task",
    description="A published revision of a Harbor task: its archive, its digest, where it came from.",
    partitions_def=TASKS,
    group_name="suites",
    kinds={"harbor"},
    owners=OWNERS,
)

taskset = dg.AssetSpec(
    "taskset",
    deps=[harbor_task],
    description="A pinned set of task revisions: what a run is run against.",
    partitions_def=TASKSETS,
    group_name="suites",
    kinds={"harbor"},
    owners=OWNERS,
)

task_image = dg.AssetSpec(
    "task_image",
    deps=[harbor_task],
    description="An image built for a task, by digest. The process sandbox needs none.",
    partitions_def=IMAGES,
    group_name="suites",
    kinds={"docker"},
    owners=OWNERS,
)
