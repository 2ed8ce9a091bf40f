"""`harbor-assets metrics ...`: the metrics of the catalog. They never change: delete one to make it anew."""

from typing import Annotated

import typer

from harbor_assets.interfaces.cli.options import (
    BaseUrl,
    BodyFile,
    Filter,
    Json,
    Page,
    PageSize,
    Project,
    Sort,
    Workspace,
    Yes,
    examples,
)
from harbor_assets.interfaces.cli.records import Name

app = typer.Typer(
    help="Store metrics, look at them and delete them. They never change.",
    epilog=examples("metrics list", "metrics create answer-exact-match --file metric.yaml"),
    no_args_is_help=True,
    rich_markup_mode=None,
)


def add_to(parent: typer.Typer) -> None:
    """Hang this noun into the command line."""
    parent.add_typer(app, name="metrics")


@app.command(
    "list",
    epilog=examples("metrics list", """metrics list --filter 'metric_type:"f1"' --json""", "metrics list --derived"),
)
def list_metrics(
    filter: Filter = None,
    derived: Annotated[bool, typer.Option("--derived", help="Also those that came inside tasks.")] = False,
    sort: Sort = "name",
    page: Page = 1,
    page_size: PageSize = 100,
    workspace: Workspace = None,
    base_url: BaseUrl = None,
    json: Json = False,
) -> None:
    """List the metrics of a workspace."""
    from harbor_assets.interfaces.cli import catalog_metrics
    from harbor_assets.interfaces.cli.catalog import Listing
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.session import open_session

    with open_session(workspace, base_url) as session:
        asked = Listing(filter=filter, sort=sort, page=page, page_size=page_size)
        catalog_metrics.list_metrics(session, asked, Output(json=json), derived=derived)


@app.command(epilog=examples("metrics show answer-exact-match", "metrics show answer-exact-match --json"))
def show(name: Name, workspace: Workspace = None, base_url: BaseUrl = None, json: Json = False) -> None:
    """Show a metric. Its payload is answered to nobody."""
    from harbor_assets.interfaces.cli import catalog_metrics
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.session import open_session

    with open_session(workspace, base_url) as session:
        catalog_metrics.show_metric(session, name, Output(json=json))


@app.command(
    epilog=examples(
        "metrics create answer-exact-match --file metric.yaml",
        'metrics create overlap --file - <<< \'{"type": "f1", "reference": "{{item.expected}}"}\'',
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
    """Store a metric.

    The file: its members, as {type: exact-match, reference: "{{item.expected}}"}, or a whole metric bundle. Types:
    exact-match, f1, rouge, bleu, string-check, number-check, llm-judge (stored, not run).
    """
    from harbor_assets.interfaces.cli import catalog_metrics
    from harbor_assets.interfaces.cli.bodies import read_mapping
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.session import open_session

    body = read_mapping(file, "metric")
    with open_session(workspace, base_url) as session:
        catalog_metrics.create_metric(session, name, body, Output(json=json), project=project)


@app.command(epilog=examples("metrics delete answer-exact-match", "metrics delete answer-exact-match --yes"))
def delete(
    name: Name, yes: Yes = False, workspace: Workspace = None, base_url: BaseUrl = None, json: Json = False
) -> None:
    """Delete a metric, also one that tasks name: these then cannot be scored."""
    from harbor_assets.interfaces.cli import catalog_metrics
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.session import open_session

    with open_session(workspace, base_url) as session:
        catalog_metrics.delete_metric(session, name, Output(json=json), yes=yes)
