"""What the leaderboard looks like: a table for each board for people, JSON and CSV for programs."""

import csv as csv_format
import io
from collections.abc import Iterator, Mapping, Sequence

from harbor_assets.domain.errors import Refused
from harbor_assets.domain.ranking import RankedRun
from harbor_assets.domain.standings import Board, Leaderboard, Standing
from harbor_assets.interfaces.cli.marks_shown import print_warnings
from harbor_assets.interfaces.cli.output import Output, command, counted, note, score
from harbor_assets.interfaces.cli.report import STALE
from harbor_assets.interfaces.cli.session import Session

NAMED_MAX = 5  # missing runs named one by one; the rest is counted
_DIGEST_SHOWN = 12
_HEADERS = ("RANK", "AGENT", "MODEL", "MEAN", "95 %", "SCORED", "TASKS", "COST", "RUN")
_COLUMNS: tuple[str, ...] = (
    "run_id", "workspace", "taskset_ref", "agent", "model", "sandbox", "n_attempts", "mean", "mean_missing_as_zero",
    "scored_trials", "planned_trials", "scored_tasks", "planned_tasks", "phase", "owner", "finished_at", "experiment",
    "board", "rank", "best_rank", "worst_rank", "apart", "mean_low", "mean_high", "cost_usd", "duration_sec",
    "stale", "regrade_of",
)  # fmt: skip


def print_leaderboard(
    session: Session,
    out: Output,
    *,
    csv: bool,
    experiment: str | None,
    taskset: str | None,
    by: Sequence[str],
    min_coverage: float,
) -> None:
    """The leaderboard of the session's workspace."""
    if csv and out.json:
        raise Refused("--csv and --json are two forms; give one of them")
    found = session.evaluator.leaderboard.retrieve(
        experiment=experiment, taskset=taskset, by=by, min_coverage=min_coverage
    )
    if found.missing:
        more = ", …" if len(found.missing) > NAMED_MAX else ""
        words = command("leaderboard", "rebuild", *session.own_words())
        named = ", ".join(found.missing[:NAMED_MAX])
        note(f"Not on the leaderboard: {counted(len(found.missing), 'ended run')} ({named}{more}). To add: {words}")
    if found.missing_elsewhere:
        others = counted(found.missing_elsewhere, "ended run")
        note(f"Not on the leaderboards of other workspaces: {others}; the next settling adds them")
    if out.json:
        out.document(found.model_dump(mode="json"))
    elif csv:
        text = io.StringIO()
        writer = csv_format.DictWriter(text, _COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(_records(found))
        out.text(text.getvalue())
    else:
        _print_boards(found, out)


def print_rebuilt(session: Session, out: Output) -> None:
    """Rebuild, and say what was written and what was not."""
    written, failed = session.evaluator.leaderboard.rebuild()
    for run_id, why in failed.items():
        note(f"Not on the leaderboard: {run_id}: {why}")
    out.line(f"The leaderboard was made afresh: {counted(written, 'run')}")
    if out.json:
        out.document({"written": written, "failed": failed})


def _print_boards(found: Leaderboard, out: Output) -> None:
    if not found.boards:
        out.line("No ended run to show")
    regrades = {run.run_id: run.regrade_of for run in found.runs if run.regrade_of}
    for place, board in enumerate(found.boards):
        if place:
            out.line()
        name, _, digest = board.conditions.taskset_ref.partition("#")
        out.line(f"{name}#{digest[:_DIGEST_SHOWN]}  {board.conditions.sandbox}")
        for difference in board.differs:
            out.line(f"  not ranked with the first board of {name}: {difference}")
        out.table(_HEADERS, [_row(line) for line in board.standings])
        for line in board.standings:
            if (old := regrades.get(line.run_ids[0])) and len(line.run_ids) == 1:
                out.line(f"  regrade: {line.run_ids[0]} verified again the trials of {old}")
        for line in board.standings:
            if line.stale:
                out.line(f"  stale: {_named(line)} rests on what a person marked bad")
            if line.apart:
                out.line(f"  not ranked: {_named(line)}: {line.apart}")
        if any(line.rank is not None and line.best is None for line in board.standings) and board.test:
            out.line("  ranks without a band were not tested: too many lines")
    if found.left_out:
        regraded = counted(len(found.left_out), "regrade")
        out.line(f"Left out: {regraded}, whose trials count in the runs they verify again; --by run shows each")
    marks = {(mark.subject, mark.kind): mark for of_run in found.marks.values() for mark in of_run}
    print_warnings(marks.values(), out)


def _row(line: Standing) -> tuple[str, ...]:
    cover, interval = line.coverage, line.mean_interval
    return (
        _rank(line),
        line.agent or "-",
        line.model or "-",
        score(line.mean) + (STALE if line.stale else ""),
        f"{interval.low:.3f} to {interval.high:.3f}" if interval else "-",
        f"{cover.trials}/{cover.of_trials}",
        f"{cover.tasks}/{cover.of_tasks}",
        _cost(line),
        _named(line),
    )


def _rank(line: Standing) -> str:
    """The band where there is one: 1, or 2-4."""
    if line.rank is None:
        return "-"
    if line.best is None or line.best == line.worst:
        return str(line.best or line.rank)
    return f"{line.best}-{line.worst}"


def _cost(line: Standing) -> str:
    if line.cost_usd is None:
        return "-"
    whole = line.cost_trials >= line.coverage.of_trials
    return f"${line.cost_usd:.2f}" if whole else f"${line.cost_usd:.2f}+"  # of some trials it is not known


def _named(line: Standing) -> str:
    return line.run_ids[0] if len(line.run_ids) == 1 else counted(len(line.run_ids), "run")


def _records(found: Leaderboard) -> Iterator[Mapping[str, object]]:
    runs = {run.run_id: run for run in found.runs}
    for place, board in enumerate(found.boards):
        for line in board.standings:
            yield _record(place, board, line, [runs[run_id] for run_id in line.run_ids])


def _record(place: int, board: Board, line: Standing, runs: Sequence[RankedRun]) -> Mapping[str, object]:
    cover, interval = line.coverage, line.mean_interval
    plain = runs[0].model_dump(mode="json") if len(runs) == 1 else {}
    known: dict[str, object] = {
        "run_id": " ".join(line.run_ids),
        "workspace": runs[0].workspace,
        "taskset_ref": board.conditions.taskset_ref,
        "sandbox": board.conditions.sandbox,
        "agent": line.agent,
        "model": line.model,
        "experiment": line.experiment,
        "mean": line.mean,
        "mean_missing_as_zero": line.mean_missing_as_zero,
        "scored_trials": cover.trials,
        "planned_trials": cover.of_trials,
        "scored_tasks": cover.tasks,
        "planned_tasks": cover.of_tasks,
        "finished_at": line.finished_at.isoformat() if line.finished_at else None,
        "board": place + 1,
        "rank": line.rank,
        "best_rank": line.best,
        "worst_rank": line.worst,
        "apart": line.apart,
        "mean_low": interval.low if interval else None,
        "mean_high": interval.high if interval else None,
        "cost_usd": line.cost_usd,
        "duration_sec": line.duration_sec,
        "stale": line.stale,
    }
    return {name: known[name] if name in known else plain.get(name) for name in _COLUMNS}
