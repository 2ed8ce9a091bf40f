"""What answers of the store of results look like, and its tables as files."""

import csv as csv_format
import io
import json
import sys
from pathlib import Path

from pydantic import JsonValue

from harbor_assets.domain.asking import SqlAnswer
from harbor_assets.domain.errors import Refused
from harbor_assets.interfaces.cli.output import Output, command, counted, note
from harbor_assets.interfaces.cli.session import Session

TABLES = ("runs", "tasks", "trials", "attempts", "scores", "lineage")  # a test keeps them equal to the store's


def print_answer(session: Session, query: str, out: Output, *, limit: int, csv: bool) -> None:
    """Ask, and print the rows; that some are left out, or are not in the store yet, is said on stderr."""
    if csv and out.json:
        raise Refused("--csv and --json are two forms; give one of them")
    answer = session.evaluator.leaderboard.sql(sys.stdin.read() if query == "-" else query, limit=limit)
    if answer.cut:
        more = "; --limit shows up to 100000, a LIMIT or an aggregate less" if answer.cut.endswith("rows") else ""
        note(f"Cut after {answer.cut}: there are more rows{more}")
    if answer.missing:
        words = command("leaderboard", "rebuild", *session.own_words())
        note(f"Not in the store yet: {counted(answer.missing, 'ended run')}, of any workspace. To add: {words}")
    if answer.stale:
        rest = "rests" if answer.stale == 1 else "rest"
        note(
            f"Stale: {counted(answer.stale, 'run')} of the store {rest} on what a person marked bad; the rows do not "
            f"show it, and no figure changes. To see what: {command('marks', *session.own_words())}"
        )
    if out.json:
        out.document(answer.objects())
    elif csv:
        out.text(_csv(answer))
    else:
        out.table([column.name for column in answer.columns], [list(map(_cell, row)) for row in answer.rows])


def export(session: Session, folder: Path, out: Output) -> None:
    """Every table as a Parquet file in a folder, which is made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(f"{folder} cannot be made: {error.strerror}; choose another folder") from error
    files = {}
    for table in TABLES:
        target = folder / f"{table}.parquet"
        files[table] = {"path": str(target), "bytes": session.evaluator.leaderboard.export(table, target)}
        out.line(f"{target}  {files[table]['bytes']} bytes")
    if out.json:
        out.document({"files": files})


def _csv(answer: SqlAnswer) -> str:
    text = io.StringIO()
    writer = csv_format.writer(text, lineterminator="\n")
    writer.writerow(column.name for column in answer.columns)
    writer.writerows([_plain(value, "") for value in row] for row in answer.rows)
    return text.getvalue()


def _cell(value: JsonValue) -> str:
    return f"{value:.6g}" if isinstance(value, float) else _plain(value, "-")


def _plain(value: JsonValue, nothing: str) -> str:
    if value is None:
        return nothing
    return value if isinstance(value, str) else json.dumps(value)
