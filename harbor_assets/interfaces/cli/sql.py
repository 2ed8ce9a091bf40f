"""`harbor-assets sql`: one SELECT over the results of a workspace."""

from typing import Annotated

import typer

from harbor_assets.interfaces.cli.options import BaseUrl, Json, Workspace, examples


def add_to(parent: typer.Typer) -> None:
    """Hang this command into the command line."""
    parent.command(
        name="sql",
        epilog=examples(
            'sql "SELECT agent, model, avg(reward), count(*) FROM trials GROUP BY ALL"',
            'sql "DESCRIBE trials"',
            'sql "SELECT * FROM failures" --json',
            "sql - --csv < question.sql > answer.csv",
        ),
    )(sql)


def sql(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="One SELECT; - reads it from stdin.")],
    csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated values with a header.")] = False,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=100_000, help="At most so many rows.")
    ] = 10_000,
    workspace: Workspace = None,
    base_url: BaseUrl = None,
    json: Json = False,
) -> None:
    """Ask the results of ended runs in SQL.

    The tables are runs, tasks, trials, attempts, scores and lineage of the workspace, the language is DuckDB's. It only
    reads, within 30 s and 512 MB. With --json it prints a list of row objects. What is left out of a long answer is
    said on stderr. docs/store.md lists every table, column and view.
    """
    from harbor_assets.interfaces.cli.asking import print_answer
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.session import open_session

    with open_session(workspace, base_url) as session:
        print_answer(session, query, Output(json=json), limit=limit, csv=csv)
