"""`harbor-assets tasks ...`: the tasks of the catalog."""

import typer

from harbor_assets.interfaces.cli.marks import add_to_tasks
from harbor_assets.interfaces.cli.options import BaseUrl, BodyFile, Json, Project, Workspace, examples
from harbor_assets.interfaces.cli.records import Name, Noun, add_commands

app = typer.Typer(
    help="Look at tasks, publish, tag and delete them.",
    epilog=examples("tasks list", "tasks create capital-of-france --file task.yaml"),
    no_args_is_help=True,
    rich_markup_mode=None,
)


def add_to(parent: typer.Typer) -> None:
    """Hang this noun into the command line."""
    parent.add_typer(app, name="tasks")


@app.command(
    epilog=examples(
        "tasks create capital-of-france --file task.yaml", "generate | harbor-assets tasks create t1 --file -"
    )
)
def create(
    name: Name,
    file: BodyFile,
    project: Project = None,
    workspace: Workspace = None,
    base_url: BaseUrl = None,
    json: Json = False,
) -> None:
    """Store a new task.

    The file: {spec: {kind: evaluator, intent: ..., inputs: {instruction: ...}, reference: {...}, metrics: [NAME, ...]},
    metadata: [{key: ..., value: ...}], tags: [...]}; only spec with kind and intent must be there. Harbor tasks come
    from folders: `tasksets create --harbor-dir` publishes them with a taskset.
    """
    from harbor_assets.domain.tasks import TaskInput
    from harbor_assets.interfaces.cli import catalog
    from harbor_assets.interfaces.cli.bodies import read_body
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.session import open_session

    body = read_body(file, TaskInput)
    with open_session(workspace, base_url) as session:
        catalog.write(session, "tasks", name, body, Output(json=json), project=project, create=True)


add_commands(app, Noun("task", "capital-of-france", 'metadata["suite"]:"geography" AND kind:"evaluator"'))
add_to_tasks(app)
