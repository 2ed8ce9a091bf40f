"""What is published: tasks, tasksets, images. External to Dagster: publishing reports their events."""

from importlib.metadata import version

import dagster as dg

from harbor_assets.partitions import IMAGES, TASKS, TASKSETS

OWNERS = ["team:evals"]
CODE_VERSION = version("harbor-assets")


harbor_task = dg.AssetSpec(
    "harbor_task",
    description="""\
A published revision of a Harbor task, `workspace/name#digest`: instruction, environment, solution and tests in one
archive that is known by its hash. Published by `harbor-assets tasksets create`, by `runs submit --harbor-dir`, or by
the job `publish_suite`; an unchanged task is not published again.
""",
    partitions_def=TASKS,
    group_name="suites",
    kinds={"harbor"},
    owners=OWNERS,
)

taskset = dg.AssetSpec(
    "taskset",
    deps=[harbor_task],
    description="""\
A pinned set of task revisions: what a run is run against. The reference in the metadata is what the job
`submit_evaluation` and `harbor-assets runs submit --taskset` take.
""",
    partitions_def=TASKSETS,
    group_name="suites",
    kinds={"harbor"},
    owners=OWNERS,
)

task_image = dg.AssetSpec(
    "task_image",
    deps=[harbor_task],
    description="""\
An image built for a task, by digest, for the agent or for a separate verifier. Equal build contexts share one image.
The sandbox `process`, which a laptop uses, needs none: this asset is then empty.
""",
    partitions_def=IMAGES,
    group_name="suites",
    kinds={"docker"},
    owners=OWNERS,
)
