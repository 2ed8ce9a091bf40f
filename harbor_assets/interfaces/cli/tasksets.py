"""`harbor-assets tasksets ...`: publish a suite without running it."""

from typing import Annotated

import typer

from harbor_assets.interfaces.cli.options import (
    BaseUrl,
    Exclude,
    HarborDir,
    ImagesFor,
    Include,
    Json,
    Limit,
    Project,
    Rehash,
    Sandbox,
    SandboxProfile,
    SkipInvalid,
    Strict,
    Tasks,
    Workspace,
    examples,
)
from harbor_assets.interfaces.cli.records import Noun, add_commands

app = typer.Typer(
    help="Publish suites as tasks and tasksets, pinned by content; look at tasksets, tag and delete them.",
    epilog=examples("tasksets create --harbor-dir ./my-suite", "tasksets list"),
    no_args_is_help=True,
    rich_markup_mode=None,
)


def add_to(parent: typer.Typer) -> None:
    """Hang this noun into the command line."""
    parent.add_typer(app, name="tasksets")


@app.callback()
def _group() -> None:
    pass


@app.command(
    epilog=examples(
        "tasksets create --harbor-dir ./my-suite",
        "tasksets create --harbor-dir ./my-suite -i 'geo-*' -l 10",
        "tasksets create --harbor-dir ./my-suite --list-tasks",
        "tasksets create geography-suite --file taskset.yaml",
    )
)
def create(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="With --file: the taskset's name.", show_default=False),
    ] = None,
    harbor_dir: HarborDir = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help="A taskset of stored tasks as JSON, or YAML by its name; - reads stdin, either of both.",
            show_default=False,
        ),
    ] = None,
    list_tasks: Annotated[
        bool, typer.Option("--list-tasks", help="Print the tasks with their indexes; store nothing.")
    ] = False,
    tasks: Tasks = None,
    include: Include = None,
    exclude: Exclude = None,
    limit: Limit = None,
    skip_invalid: SkipInvalid = False,
    strict: Strict = False,
    rehash: Rehash = False,
    project: Project = None,
    workspace: Workspace = None,
    base_url: BaseUrl = None,
    json: Json = False,
) -> None:
    """Publish the tasks of a suite and a taskset of them, pinned by content. Unchanged tasks are not sent again.

    The last line printed is the taskset's reference, WS/NAME#DIGEST; --json has `intake_dataset` beside it, the label
    of its runs in an Experiment (a folder has no other; git and hub sources are not read yet).

    With NAME and --file, store a new taskset of tasks that are stored already: {description: ..., tasks: [NAME,
    WS/NAME, NAME#TAG, ...]}.
    """
    from harbor_assets.interfaces.cli import source
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.publishing import create as create_taskset
    from harbor_assets.interfaces.cli.session import open_session

    choice = source.Choice(
        harbor_dir=harbor_dir,
        tasks=tasks,
        include=tuple(include or ()),
        exclude=tuple(exclude or ()),
        limit=limit,
        skip_invalid=skip_invalid,
        strict=strict,
        rehash=rehash,
    )
    out = Output(json=json)
    if file is not None or name is not None or harbor_dir is None:
        from harbor_assets.interfaces.cli import catalog
        from harbor_assets.interfaces.cli.bodies import read_taskset

        stored, body = read_taskset(name, file, choice.flags() + ["--list-tasks"] * list_tasks)
        with open_session(workspace, base_url) as session:
            catalog.write(session, "tasksets", stored, body, out, project=project, create=True)
        return
    if project is not None:
        from harbor_assets.domain.errors import Refused

        raise Refused("--project is only for --file; a suite's taskset is put under none")
    with open_session(workspace, base_url) as session:
        if list_tasks:
            source.list_tasks(session, choice, out)
        else:
            create_taskset(session, choice, out)


add_commands(app, Noun("taskset", "geography-suite", 'tasks:"default/capital-of-france"'))


@app.command(
    epilog=examples(
        "tasksets verify my-suite",
        "tasksets verify 'default/my-suite#3f9a…' -n 5 --json",
        "tasksets verify my-suite --tasks 3,7 --sandbox podman",
    )
)
def verify(
    ref: Annotated[str, typer.Argument(metavar="REF", help="A stored taskset: NAME, WS/NAME or WS/NAME#DIGEST.")],
    n_attempts: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--n-attempts",
            metavar="N",
            min=1,
            max=1000,
            help="Trials of each task and agent; 3 if not given.",
            show_default=False,
        ),
    ] = None,
    tasks: Tasks = None,
    sandbox: Sandbox = None,
    sandbox_profile: SandboxProfile = None,
    n_concurrent: Annotated[
        int | None, typer.Option("--n-concurrent", metavar="N", min=1, max=1000, help="Trials at once, of each agent.")
    ] = None,
    runs: Annotated[
        str | None,
        typer.Option(
            "--runs",
            metavar="ORACLE_RUN,NOP_RUN",
            help="Judge by these two runs instead of starting new ones.",
            show_default=False,
        ),
    ] = None,
    workspace: Workspace = None,
    base_url: BaseUrl = None,
    json: Json = False,
) -> None:
    """Find out which tasks can be trusted.

    Runs oracle and nop N times on each, waits, judges, and marks the tasks. A task is good if its oracle always passes
    (a reward of 1 or more) and nop never does; else it is flaky, oracle_fails or nop_passes. Where infrastructure
    failed, it stays undecided and is not marked. The exit code is 0 if every task is good, 3 if some are, 4 if none is.
    Marks are shown wherever the revision is used.
    """
    from harbor_assets.domain.errors import Refused
    from harbor_assets.domain.verification import ATTEMPTS
    from harbor_assets.interfaces.cli import source
    from harbor_assets.interfaces.cli.asked import Asked
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.verifying import Verifying

    if runs is not None and (n_attempts, tasks, sandbox, sandbox_profile, n_concurrent) != (None,) * 5:
        raise Refused("--runs names two runs that are there; -n, --tasks, --sandbox and the like are for new ones")
    asked = Asked(
        n_attempts=ATTEMPTS if n_attempts is None else n_attempts,
        sandbox=sandbox,
        profile=sandbox_profile,
        n_concurrent=n_concurrent,
    )
    verifying = Verifying(choice=source.Choice(taskset=ref, tasks=tasks), asked=asked, runs=runs)
    raise typer.Exit(verifying.run(workspace, base_url, Output(json=json)))


@app.command(
    "build-images",
    epilog=examples(
        "tasksets build-images 'default/my-suite#3f9a…' --wait",
        "tasksets build-images my-suite --wait --concurrency 8",
        "tasksets build-images --harbor-dir ./my-suite --update-config --skip-unchanged",
    ),
)
def build_images(
    ref: Annotated[
        str | None,
        typer.Argument(metavar="[REF]", help="The taskset, as `tasksets create` printed it.", show_default=False),
    ] = None,
    harbor_dir: HarborDir = None,
    update_config: Annotated[
        bool,
        typer.Option(
            "--update-config",
            help="With --harbor-dir: write docker_image, built_content_hash and image_sha256 into each task.toml.",
        ),
    ] = False,
    skip_unchanged: Annotated[
        bool,
        typer.Option(
            "--skip-unchanged",
            help="With --harbor-dir: leave out tasks whose task.toml has the image of their content.",
        ),
    ] = False,
    tasks: Tasks = None,
    include: Include = None,
    exclude: Exclude = None,
    limit: Limit = None,
    skip_invalid: SkipInvalid = False,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the builds until each is ready or has failed.")] = False,
    concurrency: Annotated[int, typer.Option("--concurrency", metavar="N", min=1, max=64, help="Tasks at once.")] = 4,
    sandbox: ImagesFor = "auto",
    workspace: Workspace = None,
    base_url: BaseUrl = None,
    json: Json = False,
) -> int:
    """Build the images of a taskset's tasks, and pin those that tasks name. What is ready is left as it is.

    Run it again to try failed builds once more. With --wait the exit code is 0 if every image is ready, 3 if some
    are, 4 if none is. With --harbor-dir the suite is published first, and the command waits.
    """
    from harbor_assets.domain.errors import Refused
    from harbor_assets.interfaces.cli import building, source
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.session import open_session

    out = Output(json=json)
    choice = source.Choice(
        harbor_dir=harbor_dir,
        taskset=ref,
        tasks=tasks,
        include=tuple(include or ()),
        exclude=tuple(exclude or ()),
        limit=limit,
        skip_invalid=skip_invalid,
    )
    if (ref is None) == (harbor_dir is None):
        raise Refused("Write REF for a stored taskset, or --harbor-dir DIR for a suite on this machine: one of them")
    if harbor_dir is None and (update_config or skip_unchanged):
        flag = "--update-config" if update_config else "--skip-unchanged"
        raise Refused(f"{flag} is about task.toml files; write --harbor-dir DIR in place of REF")
    with open_session(workspace, base_url) as session:
        if harbor_dir is not None:
            from harbor_assets.interfaces.cli.updating import SuiteImages

            return SuiteImages(
                session, choice, out, concurrency, sandbox, update=update_config, skip_unchanged=skip_unchanged
            ).run()
        assert ref is not None
        chosen = source.choose(session, choice) if choice.narrows else None
        names = None if chosen is None else [task.stored_name for task in chosen.tasks]
        return building.build_images(
            session, ref, out, wait=wait, concurrency=concurrency, sandbox=sandbox, names=names
        )
