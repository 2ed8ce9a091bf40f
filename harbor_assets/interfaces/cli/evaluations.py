"""`harbor-assets evaluations ...`: the rows of experiments, each one run."""

from typing import Annotated

import typer

from harbor_assets.interfaces.cli.experiments import EvaluationSort
from harbor_assets.interfaces.cli.options import BaseUrl, Filter, Json, Page, PageSize, Workspace, Yes, examples
from harbor_assets.interfaces.cli.records import Name

app = typer.Typer(
    help="Look at evaluations: runs in experiments.",
    epilog=examples("evaluations list --experiment harbor-runs", "evaluations show codex-run-1"),
    no_args_is_help=True,
    rich_markup_mode=None,
)


def add_to(parent: typer.Typer) -> None:
    """Hang this noun into the command line."""
    parent.add_typer(app, name="evaluations")


@app.command(
    "list",
    epilog=examples(
        "evaluations list --experiment harbor-runs --sort cost_usd.mean",
        "evaluations list --filter 'evaluators.harbor_reward.reward.mean>=0.5' --json",
    ),
)
def list_evaluations(
    experiment: Annotated[
        str | None,
        typer.Option("--experiment", metavar="NAME", help="Only those in this experiment.", show_default=False),
    ] = None,
    filter: Filter = None,
    sort: EvaluationSort = None,
    page: Page = 1,
    page_size: PageSize = 100,
    workspace: Workspace = None,
    base_url: BaseUrl = None,
    json: Json = False,
) -> None:
    """List evaluations with their figures.

    Pinned ones come first.
    """
    from harbor_assets.interfaces.cli import experiments_shown
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.session import open_session

    with open_session(workspace, base_url) as session:
        experiments_shown.list_evaluations(
            session,
            Output(json=json),
            experiment=experiment,
            filter=filter,
            sort=sort or "-created_at",
            page=page,
            page_size=page_size,
        )


@app.command(epilog=examples("evaluations show codex-run-1", "evaluations show codex-run-1 --page 2 --json"))
def show(
    name: Name,
    page: Page = 1,
    page_size: PageSize = 100,
    workspace: Workspace = None,
    base_url: BaseUrl = None,
    json: Json = False,
) -> None:
    """Show an evaluation with its sessions.

    An evaluation is one run in an experiment, a session one trial of it.
    """
    from harbor_assets.interfaces.cli import experiments_shown
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.session import open_session

    with open_session(workspace, base_url) as session:
        experiments_shown.show_evaluation(session, name, Output(json=json), page=page, page_size=page_size)


@app.command(epilog=examples("evaluations pin codex-run-1"))
def pin(name: Name, workspace: Workspace = None, base_url: BaseUrl = None, json: Json = False) -> None:
    """Let an evaluation stand first in every list."""
    _pin(name, workspace, base_url, json, pinned=True)


@app.command(epilog=examples("evaluations unpin codex-run-1"))
def unpin(name: Name, workspace: Workspace = None, base_url: BaseUrl = None, json: Json = False) -> None:
    """Let a pinned evaluation stand where it belongs."""
    _pin(name, workspace, base_url, json, pinned=False)


def _pin(name: str, workspace: str | None, base_url: str | None, json: bool, *, pinned: bool) -> None:
    from harbor_assets.interfaces.cli import experiments_shown
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.session import open_session

    with open_session(workspace, base_url) as session:
        experiments_shown.pin(session, name, Output(json=json), pinned=pinned)


@app.command(epilog=examples("evaluations delete codex-run-1", "evaluations delete codex-run-1 --yes"))
def delete(
    name: Name, yes: Yes = False, workspace: Workspace = None, base_url: BaseUrl = None, json: Json = False
) -> None:
    """Delete an evaluation with its sessions.

    The run it is of stays.
    """
    from harbor_assets.interfaces.cli import experiments_shown
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.session import open_session

    with open_session(workspace, base_url) as session:
        experiments_shown.delete_evaluation(session, name, Output(json=json), yes=yes)
