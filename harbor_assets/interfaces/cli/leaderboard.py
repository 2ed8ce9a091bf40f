"""`harbor-assets leaderboard`: the ended runs with their means, and what these are over."""

from pathlib import Path
from typing import Annotated

import typer

from harbor_assets.interfaces.cli.options import BaseUrl, Json, Workspace, examples

app = typer.Typer(
    help="Show the leaderboard: ended runs by taskset and sandbox, the best mean first.",
    epilog=examples("leaderboard", "leaderboard --csv > board.csv", "leaderboard rebuild"),
    rich_markup_mode=None,
)


def add_to(parent: typer.Typer) -> None:
    """Hang this noun into the command line."""
    parent.add_typer(app, name="leaderboard")


@app.callback(invoke_without_command=True)
def show(
    context: typer.Context,
    csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated values with a header.")] = False,
    workspace: Workspace = None,
    base_url: BaseUrl = None,
    json: Json = False,
) -> None:
    """Show the leaderboard: ended runs by taskset and sandbox, the best mean first.

    The mean is over the trials that were scored; SCORED says how many of those planned. Results of the process sandbox
    depend on the machine and are never ranked with those of images.
    """
    if context.invoked_subcommand is not None:
        return
    from harbor_assets.interfaces.cli.board import print_leaderboard
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.session import open_session

    with open_session(workspace, base_url) as session:
        print_leaderboard(session, Output(json=json), csv=csv)


@app.command(epilog=examples("leaderboard export ./results"))
def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write to; it is made.", show_default=False)],
    workspace: Workspace = None,
    base_url: BaseUrl = None,
    json: Json = False,
) -> None:
    """Write the results of the workspace as Parquet files, one for each table of docs/store.md."""
    from harbor_assets.interfaces.cli.asking import export as write
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.session import open_session

    with open_session(workspace, base_url) as session:
        write(session, folder, Output(json=json))


@app.command(epilog=examples("leaderboard rebuild"))
def rebuild(workspace: Workspace = None, base_url: BaseUrl = None, json: Json = False) -> None:
    """Make the leaderboard afresh from the bundles of all ended runs, of every workspace."""
    from harbor_assets.interfaces.cli.board import print_rebuilt
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.session import open_session

    with open_session(workspace, base_url) as session:
        print_rebuilt(session, Output(json=json))
