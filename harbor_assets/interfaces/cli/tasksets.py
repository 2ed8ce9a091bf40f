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

    The last line printed is the taskset's reference, WS/NAME#DIGEST. With NAME and --file, store a new taskset of tasks
    that are stored already: {description: ..., tasks: [NAME, WS/NAME, NAME#TAG, ...]}.
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
