"""`harbor-assets evaluate`: score outputs that exist by the metrics of a taskset."""

from typing import Annotated

import typer

from harbor_assets.interfaces.cli.options import BaseUrl, Json, Workspace, examples


def add_to(parent: typer.Typer) -> None:
    """Hang this command into the command line."""
    parent.command(
        "evaluate",
        epilog=examples(
            "evaluate --taskset geography-suite --outputs answers.jsonl",
            "evaluate --taskset 'default/geography-suite#blessed' --outputs answers.jsonl --json",
        ),
    )(evaluate)


def evaluate(
    taskset: Annotated[
        str,
        typer.Option("--taskset", metavar="REF", help="The taskset: NAME, WS/NAME, or either with #TAG or #DIGEST."),
    ],
    outputs: Annotated[
        str,
        typer.Option(
            "--outputs",
            metavar="FILE",
            help="One JSON object a line: task, output_text or response, and if a task has several, trial.",
        ),
    ],
    output: Annotated[str, typer.Option("--output", metavar="DIR", help="Where the result bundle goes.")] = ".",
    workspace: Workspace = None,
    base_url: BaseUrl = None,
    json: Json = False,
) -> int:
    """Score outputs that exist by the metrics of a taskset of evaluator tasks, and write a result bundle.

    A task without an output is counted and has no score; it is never a zero. The exit code is 0 if every trial has a
    score from every metric, 3 if some have, 4 if none has.
    """
    from pathlib import Path

    from harbor_assets.interfaces.cli.evaluating import run_evaluation
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.session import open_session

    with open_session(workspace, base_url) as session:
        return run_evaluation(session, taskset, Path(outputs), Path(output), Output(json=json))
