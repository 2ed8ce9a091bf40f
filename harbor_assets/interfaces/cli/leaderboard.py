"""`harbor-assets leaderboard`: the ended runs with their means, and what these are over."""

from pathlib import Path
from typing import Annotated

import typer

from harbor_assets.interfaces.cli.options import BaseUrl, Json, Workspace, examples

app = typer.Typer(
    help="Show the leaderboard: ended runs, ranked.",
    epilog=examples(
        "leaderboard",
        "leaderboard --taskset my-suite --by agent,model",
        "leaderboard --csv > board.csv",
        "leaderboard rebuild",
    ),
    rich_markup_mode=None,
)


def add_to(parent: typer.Typer) -> None:
    """Hang this noun into the command line."""
    parent.add_typer(app, name="leaderboard")


@app.callback(invoke_without_command=True)
def show(
    context: typer.Context,
    experiment: Annotated[
        str | None,
        typer.Option("--experiment", metavar="NAME", help="Only runs of this experiment.", show_default=False),
    ] = None,
    taskset: Annotated[
        str | None,
        typer.Option("--taskset", metavar="REF", help="Only runs of this taskset: NAME, or NAME#DIGEST."),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="WORDS",
            help="What a line is made by: run, or of agent, agent_version, model, experiment, owner some with commas.",
        ),
    ] = "run",
    min_coverage: Annotated[
        float,
        typer.Option(
            "--min-coverage", metavar="SHARE", min=0, max=1, help="Share of its trials a line must have scored."
        ),
    ] = 0.9,
    csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated values with a header.")] = False,
    workspace: Workspace = None,
    base_url: BaseUrl = None,
    json: Json = False,
) -> None:
    """Show the leaderboard: ended runs, ranked.

    A board holds runs of one taskset revision, selection of tasks, reward key, verifier, sizing, network, time
    multiplier and kind of sandbox; other boards say what differs. A rank is a band: what paired tests over the same
    tasks, corrected for the number of pairs, leave open. The mean is over the scored trials; SCORED says how many of
    those planned.
    """
    if context.invoked_subcommand is not None:
        return
    from harbor_assets.interfaces.cli.board import print_leaderboard
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.session import open_session

    with open_session(workspace, base_url) as session:
        print_leaderboard(
            session,
            Output(json=json),
            csv=csv,
            experiment=experiment,
            taskset=taskset,
            by=[word.strip() for word in by.split(",") if word.strip()],
            min_coverage=min_coverage,
        )


@app.command(epilog=examples("leaderboard export ./results"))
def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write to; it is made.", show_default=False)],
    workspace: Workspace = None,
    base_url: BaseUrl = None,
    json: Json = False,
) -> None:
    """Write the results as Parquet files.

    One for each table of docs/store.md, with the rows of the workspace.
    """
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
