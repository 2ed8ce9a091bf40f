"""What a comparison of two runs looks like, and the gates of --fail-if."""

from collections.abc import Mapping, Sequence

from harbor_assets.domain.comparison import (
    FIGURES,
    RUN_FIGURES,
    ComparedRun,
    ComparedTask,
    Comparison,
    figures_of,
    figures_of_run,
)
from harbor_assets.domain.errors import Refused
from harbor_assets.domain.gates import Condition, failing, read_conditions
from harbor_assets.domain.phases import ExitCode
from harbor_assets.interfaces.cli.marks_shown import note_warnings
from harbor_assets.interfaces.cli.output import Output, counted, duration, note, score
from harbor_assets.interfaces.cli.report import STALE
from harbor_assets.interfaces.cli.session import Session

TASKS_SHOWN = 50  # tasks of each kind named one by one; --json has all


def print_comparison(
    session: Session, first: str, second: str, out: Output, *, fail_if: Sequence[str], anyway: bool
) -> int:
    """The second run held against the first. Returns the exit code: 7 if a condition holds, else 0."""
    conditions = read_conditions(fail_if, FIGURES)
    found = session.evaluator.runs.compare(first, second)
    for difference in found.differences:
        note(f"Not comparable: {difference}")
    if found.differences and conditions and not anyway:
        raise Refused(
            "No condition is looked at where the two runs are not comparable: "
            f"{'; '.join(found.differences)}. To look all the same, over the tasks that both have: --anyway"
        )
    _note_marks(found, gate=bool(conditions))
    if out.json:
        out.document(found.model_dump(mode="json"))
    else:
        _print(found, out)
    return _gate(conditions, figures_of(found))


def gate_results(session: Session, run_id: str, fail_if: Sequence[str]) -> int:
    """The conditions on one run. Returns the exit code: 7 if one holds, else 0."""
    conditions = read_conditions(fail_if, RUN_FIGURES)
    if not conditions:
        return ExitCode.OK
    run = session.evaluator.runs.retrieve(run_id)
    elapsed = (run.ended_at - run.started_at).total_seconds() if run.started_at and run.ended_at else None
    return _gate(conditions, figures_of_run(session.evaluator.runs.outcomes(run_id), elapsed))


def check_gate(fail_if: Sequence[str]) -> None:
    """Raises `Refused` for conditions on one run that cannot be read, before anything is asked for."""
    read_conditions(fail_if, RUN_FIGURES)


def _gate(conditions: Sequence[Condition], figures: Mapping[str, float | None]) -> int:
    holding = failing(conditions, figures)
    for sentence in holding:
        note(f"Fails: {sentence}")
    return ExitCode.GATE if holding else ExitCode.OK


def _note_marks(found: Comparison, *, gate: bool) -> None:
    """What is said of the two, on stderr: it stands beside the answer and is no part of it."""
    marks = {(mark.subject, mark.kind): mark for run in (found.first, found.second) for mark in run.marks}
    note_warnings(marks.values())
    stale = [run.run_id for run in (found.first, found.second) if run.stale]
    if stale:
        gates = ", and --fail-if looks at them as they are" if gate else ""
        note(f"Stale: {' and '.join(stale)}. No figure changes by it{gates}")


def _print(found: Comparison, out: Output) -> None:
    out.table(
        ("", "RUN", "AGENT", "MEAN", "95 %", "SCORED", "TASKS", "COST", "TRIALS TOOK"),
        [_run("first", found.first), _run("second", found.second)],
    )
    out.line()
    out.line("TRIALS TOOK is the sum of all trials' times, not how long the run took")
    difference = found.difference
    if difference is None:
        out.line("No task is scored in both runs")
    else:
        reach = "" if difference.low is None else f" ({difference.low:+.4f} to {difference.high:+.4f} at 95 %)"
        means = difference.test.replace("_", " ")
        over = counted(difference.tasks, "task")
        out.line(f"Second less first: {difference.mean:+.4f}{reach} over {over}; p = {difference.p:.3g} ({means})")
        if difference.method is not None:
            how = difference.method.replace("_", " ")
            exact = "exact, over the tasks that only one passed" if difference.test == "mcnemar" else "over the tasks"
            out.line(
                f"The interval ({how}) says how large the difference may be, approximately; p ({means}, {exact}) says "
                "whether it may be chance, and is what ranks go by: with few tasks the two can disagree"
            )
    out.line(
        f"Better {found.wins}, worse {found.losses}, equal {found.ties}; regressions {found.regressions}; "
        f"scored only in the first {found.only_first}, only in the second {found.only_second}"
    )
    for remark in found.remarks:
        out.line(f"Also different: {remark}")
    told = [task for task in found.tasks if task.verdict not in ("tie", "neither")]
    if told:
        out.line()
        order = {"loss": 0, "only_first": 1, "win": 2, "only_second": 3}
        told.sort(key=lambda task: (not task.regression, order[task.verdict], task.task))
        out.table(("TASK", "FIRST", "SECOND", ""), [_task(task) for task in told[:TASKS_SHOWN]])
        if len(told) > TASKS_SHOWN:
            out.line(f"… and {counted(len(told) - TASKS_SHOWN, 'task')} more; --json has all")


def _run(which: str, run: ComparedRun) -> tuple[str, ...]:
    interval, cover = run.mean_interval, run.coverage
    known = "" if run.cost_trials == cover.of_trials else "+"
    return (
        which,
        run.run_id,
        run.agent,
        score(run.mean) + (STALE if run.stale else ""),
        f"{interval.low:.3f} to {interval.high:.3f}" if interval else "-",
        f"{cover.trials}/{cover.of_trials}",
        f"{cover.tasks}/{cover.of_tasks}",
        "-" if run.cost_usd is None else f"${run.cost_usd:.2f}{known}",
        "-" if run.duration_sec is None else duration(run.duration_sec),
    )


def _task(task: ComparedTask) -> tuple[str, ...]:
    said = {"win": "better", "loss": "worse", "only_first": "only in the first", "only_second": "only in the second"}
    return (task.task, score(task.first), score(task.second), "regression" if task.regression else said[task.verdict])
