"""`harbor-assets experiments ...`: containers of evaluations, each a leaderboard."""

from typing import Annotated

import typer

from harbor_assets.interfaces.cli.options import BaseUrl, Filter, Json, Page, PageSize, Sort, Workspace, Yes, examples
from harbor_assets.interfaces.cli.records import Name

app = typer.Typer(
    help="Create experiments, and look into them.",
    epilog=examples("experiments create harbor-runs --exist-ok", "experiments show harbor-runs"),
    no_args_is_help=True,
    rich_markup_mode=None,
)

EvaluationSort = Annotated[
    str | None,
    typer.Option(
        "--sort",
        metavar="FIGURE",
        help="name, created_at, test_case_count, or cost_usd, latency_ms, tokens, evaluators.NAME with .mean, .median, "
        ".p90, .sum...; with - descending.",
        show_default=False,
    ),
]


def add_to(parent: typer.Typer) -> None:
    """Hang this noun into the command line."""
    parent.add_typer(app, name="experiments")


@app.command(epilog=examples("experiments create harbor-runs", "experiments create harbor-runs --exist-ok --json"))
def create(
    name: Name,
    exist_ok: Annotated[
        bool, typer.Option("--exist-ok", help="Do nothing, successfully, if there is one of that name.")
    ] = False,
    description: Annotated[
        str | None, typer.Option("--description", metavar="TEXT", help="What it is for.", show_default=False)
    ] = None,
    sort: Annotated[
        str,
        typer.Option(
            "--default-sort", metavar="FIGURE", help="How its evaluations are ordered unless asked otherwise."
        ),
    ] = "-created_at",
    workspace: Workspace = None,
    base_url: BaseUrl = None,
    json: Json = False,
) -> None:
    """Create an experiment.

    Runs are then submitted to it with --experiment.
    """
    from harbor_assets.interfaces.cli import experiments_shown
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.session import open_session

    with open_session(workspace, base_url) as session:
        experiments_shown.create(
            session, name, Output(json=json), exist_ok=exist_ok, description=description, default_sort=sort
        )


@app.command(
    "list", epilog=examples("experiments list", "experiments list --filter 'name~\"harbor\"' --sort -updated_at --json")
)
def list_experiments(
    filter: Filter = None,
    sort: Sort = "name",
    page: Page = 1,
    page_size: PageSize = 100,
    workspace: Workspace = None,
    base_url: BaseUrl = None,
    json: Json = False,
) -> None:
    """List the experiments of a workspace."""
    from harbor_assets.interfaces.cli import experiments_shown
    from harbor_assets.interfaces.cli.catalog import Listing
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.session import open_session

    with open_session(workspace, base_url) as session:
        asked = Listing(filter=filter, sort=sort, page=page, page_size=page_size)
        experiments_shown.list_experiments(session, asked, Output(json=json))


@app.command(
    epilog=examples(
        "experiments show harbor-runs",
        "experiments show harbor-runs --sort -evaluators.harbor_reward.reward.mean",
        "experiments show harbor-runs --json",
    )
)
def show(
    name: Name,
    sort: EvaluationSort = None,
    page: Page = 1,
    page_size: PageSize = 100,
    workspace: Workspace = None,
    base_url: BaseUrl = None,
    json: Json = False,
) -> None:
    """Show an experiment with its evaluations.

    Each with its figures and what these are over: every test case weighs the same, one without a score counts as 0,
    and CASES, or the fraction beside a mean, says how many have one. Cost, time and tokens are means per case; with a
    + they are known for some cases only.
    """
    from harbor_assets.interfaces.cli import experiments_shown
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.session import open_session

    with open_session(workspace, base_url) as session:
        experiments_shown.show(session, name, Output(json=json), sort=sort, page=page, page_size=page_size)


@app.command(epilog=examples("experiments delete harbor-runs", "experiments delete harbor-runs --yes"))
def delete(
    name: Name, yes: Yes = False, workspace: Workspace = None, base_url: BaseUrl = None, json: Json = False
) -> None:
    """Delete an experiment.

    The evaluations that are in no other go with it; the runs stay.
    """
    from harbor_assets.interfaces.cli import experiments_shown
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.session import open_session

    with open_session(workspace, base_url) as session:
        experiments_shown.delete(session, name, Output(json=json), yes=yes)
