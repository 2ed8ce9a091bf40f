"""What runs, tasks and results look like to a person. Every figure comes from the run's own account."""

from collections import Counter
from collections.abc import Sequence

from harbor_assets.domain.bundle import REPORT
from harbor_assets.domain.marks import Mark
from harbor_assets.domain.outcomes import Outcome
from harbor_assets.domain.phases import ResultState, exit_code
from harbor_assets.domain.policies import ConfidenceInterval, OutcomeSummary, Policy
from harbor_assets.domain.views import Pagination, RunStatus, RunSummary, TaskView, TrialView, told_try
from harbor_assets.interfaces.cli.edge import INTERRUPTED
from harbor_assets.interfaces.cli.marks_shown import print_warnings
from harbor_assets.interfaces.cli.output import Output, command, counted, duration, moment, note, one_line, score
from harbor_assets.interfaces.cli.progress import ended, flags_told, follow, result
from harbor_assets.interfaces.cli.session import Session
from harbor_assets.interfaces.sdk.pages import Page

STALE = " (stale)"  # what stands behind a result that rests on something a person marked bad
NAMED_MAX = 20  # tasks named one by one at a run's end; the rest is counted, and `runs tasks` lists all
SIDE_REWARDS_MAX = 4  # columns of rewards beside the run's own: what a terminal has room for
_TRIED_AGAIN = {"k", "outcome", "reason", "reward", "n_tries", "earlier"}
STATUS_MAX = 50  # tasks in a status, which is to be taken in at a glance


def watch(session: Session, run_id: str, out: Output, *, document: bool = True) -> int:
    """Follow a run to its end, say how it ended, and return the exit code. Ctrl-C leaves the run alone."""
    try:
        status = follow(session, run_id, out)
    except KeyboardInterrupt:
        words = ("runs", "status", run_id, "--watch", *session.own_words())
        note(f"\nStopped watching; {run_id} goes on. Follow it again with: {command(*words)}")
        return INTERRUPTED
    print_ending(session, status, out)
    if out.json and document:
        out.document(status.model_dump(mode="json"))
    return ending_code(status)


def ending_code(status: RunStatus) -> int:
    """The exit code for an ended run."""
    return exit_code(status.run.phase, [Outcome(trial.outcome) for task in status.tasks for trial in task.outcomes])


def print_ending(session: Session, status: RunStatus, out: Output) -> None:
    """How a run ended: the mean with its coverage, what was not scored and why, and where the report is."""
    run = status.run
    took = f" after {duration(run.ended_at - run.created_at)}" if run.ended_at else ""
    out.line(f"Run {run.id} {run.phase}{took}; results: {run.result_state}")
    if run.error:
        out.line(f"Error: {run.error}")
    print_warnings(_marks(status), out)
    account = session.evaluator.runs.results(run.id).account
    _print_policies(account, out)
    _print_shortfall(run, account, out)
    _print_not_scored(session, status, out)
    _print_flagged(session, status, out)
    if any(map(_not_scored, status.tasks)):
        again = command("runs", "rerun", run.id, "--failed", *session.own_words())
        out.line(f"Run what was not scored again: {again}")
    if run.result_state is not ResultState.FAILED:
        out.line(f"Report: {session.evaluator.runs.bundle_location(run.id, REPORT)}")
        out.line(f"Download: {command('runs', 'download', run.id, *session.own_words())}")


def _print_policies(account: OutcomeSummary, out: Output) -> None:
    scored, zero = account.policies.scored_only, account.policies.missing_as_zero
    cover = scored.coverage
    # Of a single task it says no more than that it is a single task
    within = f", 95 % interval {_ends(scored.mean_interval)}" if scored.mean_interval and cover.tasks > 1 else ""
    out.line(
        f"Mean {score(scored.mean)} (scored {cover.trials} of {counted(cover.of_trials, 'trial')}, "
        f"{cover.tasks} of {counted(cover.of_tasks, 'task')}){within}"
    )
    if cover.trials < cover.of_trials:
        out.line(f"Mean {score(zero.mean)} if what is missing counts as zero")


def _print_shortfall(run: RunSummary, account: OutcomeSummary, out: Output) -> None:
    share = account.policies.scored_only.coverage.share
    if run.min_coverage is not None and share < run.min_coverage:
        out.line(f"Too few: a share of {score(share)} was scored, and the run asks for {run.min_coverage:g}")


def _coverage(run: RunSummary, account: OutcomeSummary) -> dict[str, object]:
    """The share of planned trials that was scored, the one that was asked for, and whether it is enough."""
    share, asked = account.policies.scored_only.coverage.share, run.min_coverage
    return {"share": share, "min_coverage": asked, "enough": asked is None or share >= asked}


def _tried_again(status: RunStatus) -> list[tuple[TaskView, TrialView]]:
    return [(task, trial) for task in status.tasks for trial in task.outcomes if trial.earlier]


def _print_tried_again(status: RunStatus, out: Output) -> None:
    """What came before the scores that are shown: each earlier try, with a reward that it may have had."""
    found = _tried_again(status)
    for task, trial in found[:NAMED_MAX]:
        said = ", then ".join(told_try(t.reason, t.reward, t.cost_usd) for t in trial.earlier)
        out.line(f"Tried again: {task.index} {one_line(task.task)}, trial {trial.k}: {one_line(said)}")
    if len(found) > NAMED_MAX:
        out.line(f"  … and {len(found) - NAMED_MAX} more trials; --json has all of them")


def _print_not_scored(session: Session, status: RunStatus, out: Output) -> None:
    reasons: dict[str, Counter[str]] = {}
    for task in status.tasks:
        for trial in task.outcomes:
            if trial.outcome != Outcome.SCORED:
                reasons.setdefault(trial.outcome, Counter())[trial.reason] += 1
    for outcome, found in reasons.items():
        why = ", ".join(f"{reason} {n}" for reason, n in found.most_common())
        out.line(f"Not scored: {found.total()} {outcome} ({why})")
    _print_named([task for task in status.tasks if _not_scored(task)], session, status, out)


def _print_flagged(session: Session, status: RunStatus, out: Output) -> None:
    """Tasks whose reward is valid and may yet not say what it seems to."""
    flagged = [t for t in status.tasks if not _not_scored(t) and any(trial.flags for trial in t.outcomes)]
    if flagged:
        n = len(flagged)
        out.line(f"Flagged: {n} scored {'task' if n == 1 else 'tasks'} ({flags_told(flagged)})")
        _print_named(flagged, session, status, out)


def _not_scored(task: TaskView) -> bool:
    return any(trial.outcome != Outcome.SCORED for trial in task.outcomes)


def _print_named(tasks: Sequence[TaskView], session: Session, status: RunStatus, out: Output) -> None:
    for task in tasks[:NAMED_MAX]:
        message = next((trial.message for trial in task.outcomes if trial.message), None)
        out.line(f"  {task.index} {one_line(task.task)} {result(task)}{f': {one_line(message)}' if message else ''}")
    if len(tasks) > NAMED_MAX:
        words = ("runs", "tasks", status.run.id, *session.own_words())
        out.line(f"  … and {len(tasks) - NAMED_MAX} more; all of them: {command(*words)}")


def print_status(session: Session, status: RunStatus, out: Output) -> None:
    """A run as it stands now."""
    run = status.run
    print_facts(run, out)
    out.line()
    print_tasks(status.tasks[:STATUS_MAX], out)
    if len(status.tasks) > STATUS_MAX:
        words = ("runs", "tasks", run.id, *session.own_words())
        out.line(f"… and {len(status.tasks) - STATUS_MAX} more; all of them: {command(*words)}")
    out.line()
    if run.phase.terminal:
        out.line(f"Scores: {command('runs', 'results', run.id, *session.own_words())}")
    else:
        out.line(f"Follow it: {command('runs', 'status', run.id, '--watch', *session.own_words())}")


def _published(run: RunSummary) -> list[tuple[str, str]]:
    if run.publication is None:
        return []
    return [("Evaluation", f"{run.publication.evaluation} in Experiment {run.publication.experiment}")]


def print_facts(run: RunSummary, out: Output) -> None:
    """What a run is and where it stands."""
    counts = ", ".join(f"{outcome} {n}" for outcome, n in run.counts.items()) or "none ended"
    facts = [
        ("Run", run.id),
        *([("Rerun of", run.rerun_of)] if run.rerun_of else []),
        *([("Regrades", run.regrade_of)] if run.regrade_of else []),
        ("Phase", f"{run.phase}, results {run.result_state}{STALE if run.stale else ''}"),
        ("Taskset", run.taskset_ref),
        ("Agent", run.agent),
        *_published(run),
        ("Sandbox", f"{run.sandbox}: {run.sandbox_why}"),
        ("Trials", f"{counts}, of {run.n_trials} ({counted(run.n_tasks, 'task')}, {run.n_concurrent} at a time)"),
        *([("Asks for", f"a share of {run.min_coverage:g} to be scored")] if run.min_coverage is not None else []),
        ("Submitted", f"{moment(run.created_at)} by {run.owner}"),
        ("Started", moment(run.started_at)),
        ("Ended", moment(run.ended_at)),
    ]
    if run.deadline and not run.phase.terminal:
        facts.append(("Deadline", moment(run.deadline)))
    if run.waiting:
        facts.append(("Waiting", run.waiting.message))
    if run.cancel_requested_at:
        facts.append(("Cancelled", moment(run.cancel_requested_at)))
    if run.executions > 1:
        facts.append(("Workers", f"{run.executions}, one after another"))
    if run.error:
        facts.append(("Error", run.error))
    facts += [("Note", text) for text in run.sandbox_notes]
    facts += [("Skipped", f"{skipped.name}: {skipped.file}: {skipped.reason}") for skipped in run.skipped]
    for name, value in facts:
        out.line(f"{name + ':':<10} {one_line(value)}")


def print_tasks(tasks: Sequence[TaskView], out: Output) -> None:
    """Tasks of a run, one a line; as JSON in the envelope of lists."""
    if out.json:
        out.document(envelope([task.model_dump(mode="json") for task in tasks]))
        return
    rows = []
    for task in tasks:
        waiting = task.waiting.message if task.waiting else None
        state = result(task) if ended(task) else "waits" if waiting else "at work" if task.running else ""
        message = waiting or next((trial.message for trial in task.outcomes if trial.message), None)
        rows.append((str(task.index), task.task, task.phase, state, message or ""))
    out.table(("INDEX", "TASK", "PHASE", "RESULT", "MESSAGE"), rows)
    print_warnings((mark for task in tasks for mark in task.marks), out)


def print_runs(page: Page[RunSummary], out: Output) -> None:
    """A page of runs, one a line; as JSON in the envelope of lists."""
    for run_id in page.unreadable:
        note(f"Warning: {run_id} is stored but cannot be read; it is not in the list")
    if out.json:
        out.document(envelope([run.model_dump(mode="json") for run in page.data], page.pagination))
        return
    rows = [
        (
            run.id,
            run.phase,
            f"{run.result_state}{STALE if run.stale else ''}",
            f"{run.counts.get(Outcome.SCORED, 0)}/{run.n_trials}",
            run.agent,
            moment(run.created_at),
            run.taskset_ref,
            f"regrade of {run.regrade_of}" if run.regrade_of else f"rerun of {run.rerun_of}" if run.rerun_of else "",
        )
        for run in page.data
    ]
    out.table(("RUN", "PHASE", "RESULTS", "SCORED", "AGENT", "SUBMITTED", "TASKSET", "NOTE"), rows)
    print_place(page.pagination, "runs")


def print_results(session: Session, run_id: str, out: Output) -> None:
    """The scores of an ended run."""
    found, status = session.evaluator.runs.results(run_id), session.evaluator.runs.status(run_id)
    if out.json:
        marks = [mark.model_dump(mode="json") for mark in _marks(status)]
        out.document(
            {
                "summary": found.summary,
                "outcomes": found.outcomes,
                "coverage": _coverage(status.run, found.account),
                "tried_again": [
                    {"index": task.index, "task": task.task, **trial.model_dump(mode="json", include=_TRIED_AGAIN)}
                    for task, trial in _tried_again(status)
                ],
                "marks": marks,
            }
        )
        return
    print_facts(status.run, out)
    out.line()
    policies = found.account.policies
    named = (("scored only", policies.scored_only), ("missing as zero", policies.missing_as_zero))
    out.table(
        ("FIGURE", "VALUE", "95 % INTERVAL", "COVERAGE"),
        [row for name, policy in named for row in _figures(name, policy)],
    )
    _print_shortfall(status.run, found.account, out)
    out.line()
    sides, hidden = _side_rewards(status)
    rows = [
        (
            str(task.index),
            task.task,
            str(trial.k),
            trial.outcome,
            score(trial.reward),
            *(score(trial.rewards.get(name)) for name in sides),
            trial.reason,
            ", ".join(trial.flags),
        )
        for task in status.tasks
        for trial in task.outcomes
    ]
    out.table(("INDEX", "TASK", "K", "OUTCOME", "REWARD", *map(one_line, sides), "REASON", "FLAGS"), rows)
    if hidden:
        out.line(f"{hidden} more side rewards are not shown; --json and the bundle have all of them")
    _print_tried_again(status, out)
    print_warnings(_marks(status), out)
    out.line()
    if found.summary is None:
        out.line("The results could not be merged into a bundle; these scores are from the run's own rows.")
    else:
        out.line(f"Report: {session.evaluator.runs.bundle_location(run_id, REPORT)}")
        out.line(f"Download: {command('runs', 'download', run_id, *session.own_words())}")


def _marks(status: RunStatus) -> list[Mark]:
    """What is known now of the run, then of its tasks."""
    return [*status.marks, *(mark for task in status.tasks for mark in task.marks)]


def _side_rewards(status: RunStatus) -> tuple[list[str], int]:
    """Names of rewards beside the run's own that get a column, by how many trials have them; how many names do not."""
    named = Counter(name for task in status.tasks for trial in task.outcomes for name in trial.rewards)
    sides = [name for name, _ in named.most_common() if name != status.run.reward_key]
    return sides[:SIDE_REWARDS_MAX], len(sides[SIDE_REWARDS_MAX:])


def _ends(interval: ConfidenceInterval | None) -> str:
    return "" if interval is None else f"{interval.low:.4f} to {interval.high:.4f}"


def _figures(name: str, policy: Policy) -> list[tuple[str, str, str, str]]:
    cover = policy.coverage
    covered = (
        f"{cover.trials} of {counted(cover.of_trials, 'trial')}, {cover.tasks} of {counted(cover.of_tasks, 'task')}"
    )
    return [
        (f"mean, {name}", score(policy.mean), _ends(policy.mean_interval), covered),
        *(
            (f"pass@{k}, {name}", score(value), _ends(policy.pass_at_k_intervals.get(k)), covered)
            for k, value in policy.pass_at_k.items()
        ),
    ]


def print_place(at: Pagination, nouns: str) -> None:
    """Where a page stands in its list, if there is more than it."""
    if at.total_results > at.current_page_size:
        shown = f"{at.current_page_size} of {at.total_results} {nouns}"
        note(f"{shown}; page {at.page} of {at.total_pages}, --page shows the others")


def envelope(data: list[object], at: Pagination | None = None) -> dict[str, object]:
    """The envelope of lists around `data`: a page of a longer list, or the whole of it."""
    n = len(data)
    whole = Pagination(page=1, page_size=max(1, n), current_page_size=n, total_pages=min(n, 1), total_results=n)
    return {"data": data, "pagination": (at or whole).model_dump()}
