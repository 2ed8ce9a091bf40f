"""Publishing a suite's folder from the Dagster UI, as `tasksets create --harbor-dir` does."""

import dagster as dg
from pydantic import Field

from harbor_assets.domain.errors import HarborAssetsError
from harbor_assets.domain.text import visible
from harbor_assets.events.links import partition_link
from harbor_assets.events.suites import task_event, taskset_event
from harbor_assets.interfaces.publisher import Publication, Publisher
from harbor_assets.local import locks
from harbor_assets.partitions import TASKS, TASKSETS
from harbor_assets.settings import Settings

WARNINGS_SHOWN = 50  # in the run's log; `--list-tasks --json` holds them all


class Folder(dg.Config):
    """A suite's folder and what to take of it."""

    folder: str = Field(
        description="Full path of the suite's folder on the machine that serves this UI; its children are the tasks.",
        examples=["/home/me/my-suite"],
    )
    tasks: list[str] = Field(default=[], description="Tasks by name or index. Empty: all.")
    include: list[str] = Field(default=[], description='Only tasks that fit one of these globs, such as ["csv-*"].')
    exclude: list[str] = Field(default=[], description="Without tasks that fit one of these globs.")
    limit: int | None = Field(default=None, description="Only the first so many of what is left. Empty: all.")
    skip_invalid: bool = Field(
        default=False, description="Leave broken tasks out, and say which. Else one broken task refuses the suite."
    )
    workspace: str | None = Field(default=None, description="Workspace to publish to. Empty: as the settings say.")


@dg.op(out=dg.Out(dg.Nothing), description="Publishes tasks and a taskset of them; unchanged tasks are left alone.")
def publish(context: dg.OpExecutionContext, config: Folder, publisher: dg.ResourceParam[Publisher]) -> dg.Output[None]:
    """The task revisions and the taskset become partitions of their assets."""
    wanted = Publication(
        folder=config.folder,
        tasks=config.tasks or None,
        include=config.include,
        exclude=config.exclude,
        limit=config.limit,
        skip_invalid=config.skip_invalid,
        workspace=config.workspace,
    )
    try:
        told = publisher.publish(wanted, report=lambda event: context.log.info(str(event)))
    except HarborAssetsError as error:
        raise dg.Failure(visible_lines(str(error)), allow_retries=False) from None
    for text in told.warnings[:WARNINGS_SHOWN]:
        context.log.warning(visible(text))
    published, taskset = told.published, told.published.taskset
    events = [
        task_event(
            task.ref,
            native_task_id=task.harbor.native_task_id,
            files_hash=task.harbor.source.files_hash,
            workspace=told.workspace,
        )
        for task, _ in published.tasks
    ]
    members = [task.ref for task, _ in published.tasks]
    events.append(taskset_event(taskset.ref, members, workspace=told.workspace))
    for event in events:  # also of what is unchanged: this run published it, and a retired key comes back
        context.log_event(event)
    keys = [str(event.partition) for event in events]
    with locks.lock(Settings.load().locks, "partitions"):  # two that add keys at once fail, and workers do too
        context.instance.add_dynamic_partitions(str(TASKS.name), keys[:-1])
        context.instance.add_dynamic_partitions(str(TASKSETS.name), keys[-1:])
    return dg.Output(
        None,
        metadata={
            "taskset": taskset.ref,
            "taskset_revision": partition_link("taskset", keys[-1]),
            "tasks": len(members),
            "new_revisions": sum(cut for _, cut in published.tasks),
            "skipped": len(told.skipped),
            "submit": f"job submit_evaluation, or: harbor-assets runs submit --taskset '{taskset.ref}'",
        },
    )


def visible_lines(text: str) -> str:
    """`text` with its lines, each made fit to be shown."""
    return "\n".join(visible(line) for line in text.splitlines())
