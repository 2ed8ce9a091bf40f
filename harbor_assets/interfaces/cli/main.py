"""The command line `harbor-assets`. One module per noun; what a command needs is imported inside it."""

import gc
import sys
from typing import Annotated, NoReturn

import typer

from harbor_assets.interfaces.cli import (
    access,
    cluster,
    config,
    context,
    doctor,
    edge,
    evaluate,
    evaluations,
    experiments,
    leaderboard,
    lineage,
    marks,
    metrics,
    quickstart,
    runs,
    serve,
    sql,
    tasks,
    tasksets,
    ui,
)
from harbor_assets.interfaces.cli.options import examples

# Objects made before the collector looks for cycles, 700 by default: a command mostly imports, which makes hundreds of
# thousands and hardly a cycle, and looking cost a tenth of its time. 50,000 are some ten megabytes.
GC_THRESHOLD = 50_000

app = typer.Typer(
    name="harbor-assets",
    help="Publish suites of Harbor tasks, run them in sandboxes, and see every score with what made it.",
    epilog=examples(
        "quickstart",
        "runs submit --harbor-dir ./my-suite --agent oracle --wait",
        "runs status RUN_ID --watch",
        "runs results RUN_ID",
    ),
    add_completion=False,
    pretty_exceptions_enable=False,  # our own edge tells of errors
    rich_markup_mode=None,  # help without importing rich: a third of its time
    no_args_is_help=True,
)
quickstart.add_to(app)
tasks.add_to(app)
tasksets.add_to(app)
metrics.add_to(app)
runs.add_to(app)
evaluate.add_to(app)
experiments.add_to(app)
evaluations.add_to(app)
leaderboard.add_to(app)
sql.add_to(app)
marks.add_to(app)
lineage.add_to(app)
context.add_to(app)
config.add_to(app)
ui.add_to(app)
serve.add_to(app)
access.add_to(app)
cluster.add_to(app)
doctor.add_to(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        import platform

        from harbor_assets.interfaces.version import version

        made_with = f"harbor {version('harbor')}, dagster {version('dagster')}, Python {platform.python_version()}"
        sys.stdout.write(f"harbor-assets {version()} ({made_with})\n")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


def main() -> NoReturn:
    """Run the command line and exit."""
    gc.set_threshold(GC_THRESHOLD)
    edge.run(app)
