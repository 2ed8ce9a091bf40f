"""`harbor-assets lineage`: what a number was made of, and what something was made into."""

from typing import Annotated

import typer

from harbor_assets.interfaces.cli.options import BaseUrl, Json, Workspace, examples


def add_to(parent: typer.Typer) -> None:
    """Hang the command into the command line."""

    @parent.command(
        epilog=examples(
            "lineage RUN_ID", "lineage RUN_ID/3/1", "lineage csv-report", "lineage 'default/csv-report#4356…' --json"
        )
    )
    def lineage(
        subject: Annotated[
            str,
            typer.Argument(
                metavar="RUN[/TASK[/K]]|REF|IMAGE",
                help="A run, a task of it by index or name, its k-th trial; or a task, a taskset or an image's digest.",
                show_default=False,
            ),
        ],
        workspace: Workspace = None,
        base_url: BaseUrl = None,
        json: Json = False,
    ) -> None:
        """Show where a number comes from, or leads to.

        Up from a run, one of its tasks or one trial: taskset, archive, images, agent, sandbox, the verifier's output
        and Dagster's assets. Down from a task's revision (the newest where none is named), a taskset or an image: every
        run, trial and score. What was marked bad says so.
        """
        from harbor_assets.interfaces.cli.output import Output
        from harbor_assets.interfaces.cli.session import open_session
        from harbor_assets.interfaces.cli.tree import print_lineage

        with open_session(workspace, base_url) as session:
            print_lineage(session.evaluator.lineage.of(subject), Output(json=json))
