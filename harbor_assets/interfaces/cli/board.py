"""What the leaderboard looks like: a table for people, JSON and CSV for programs."""

import csv as csv_format
import io

from harbor_assets.domain.errors import Refused
from harbor_assets.domain.ranking import RankedRun
from harbor_assets.interfaces.cli.output import Output, command, counted, note, score
from harbor_assets.interfaces.cli.session import Session

NAMED_MAX = 5  # missing runs named one by one; the rest is counted
_COLUMNS: tuple[str, ...] = (
    "run_id", "workspace", "taskset_ref", "agent", "model", "sandbox", "n_attempts", "mean", "mean_missing_as_zero",
    "scored_trials", "planned_trials", "scored_tasks", "planned_tasks", "phase", "owner", "finished_at",
)  # fmt: skip


def print_leaderboard(session: Session, out: Output, *, csv: bool) -> None:
    """The leaderboard of the session's workspace."""
    if csv and out.json:
        raise Refused("--csv and --json are two forms; give one of them")
    found = session.evaluator.leaderboard.retrieve()
    if found.missing:
        more = ", …" if len(found.missing) > NAMED_MAX else ""
        words = command("leaderboard", "rebuild", *session.own_words())
        named = ", ".join(found.missing[:NAMED_MAX])
        note(f"Not on the leaderboard: {counted(len(found.missing), 'ended run')} ({named}{more}). To add: {words}")
    if out.json:
        out.document(found.model_dump(mode="json"))
    elif csv:
        text = io.StringIO()
        writer = csv_format.DictWriter(text, _COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(_record, found.runs))
        out.text(text.getvalue())
    else:
        headers = ("TASKSET", "SANDBOX", "AGENT", "MODEL", "MEAN", "SCORED", "TASKS", "RUN")
        out.table(headers, [_row(run) for run in found.runs])


def print_rebuilt(session: Session, out: Output) -> None:
    """Rebuild, and say what was written and what was not."""
    written, failed = session.evaluator.leaderboard.rebuild()
    for run_id, why in failed.items():
        note(f"Not on the leaderboard: {run_id}: {why}")
    out.line(f"The leaderboard was made afresh: {counted(written, 'run')}")
    if out.json:
        out.document({"written": written, "failed": failed})


def _row(run: RankedRun) -> tuple[str, ...]:
    cover = run.coverage
    return (
        run.taskset_ref.partition("#")[0],
        run.sandbox,
        run.agent,
        run.model or "-",
        score(run.mean),
        f"{cover.trials}/{cover.of_trials}",
        f"{cover.tasks}/{cover.of_tasks}",
        run.run_id,
    )


def _record(run: RankedRun) -> dict[str, object]:
    cover = run.coverage
    counts = {
        "scored_trials": cover.trials,
        "planned_trials": cover.of_trials,
        "scored_tasks": cover.tasks,
        "planned_tasks": cover.of_tasks,
    }
    plain = run.model_dump(mode="json")
    return {name: counts.get(name, plain.get(name)) for name in _COLUMNS}
