"""Runs as clients see them, from what the catalog holds. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from harbor_assets.domain.admission import paused
from harbor_assets.domain.marks import Mark, stale
from harbor_assets.domain.outcomes import TrialOutcome
from harbor_assets.domain.phases import TaskPhase, task_phase
from harbor_assets.domain.runs import Run
from harbor_assets.domain.views import RunSummary, TaskView, trial_view
from harbor_assets.domain.waiting import Wait, WaitReason, wait


def run_summary(
    run: Run, counts: Mapping[str, int], waiting: Wait | None = None, marks: Sequence[Mark] = ()
) -> RunSummary:
    """The run, how many of its trials ended how (`counts`, by outcome), what it waits for, and what is said of it."""
    plan = run.plan
    return RunSummary(
        id=run.id,
        workspace=plan.workspace,
        rerun_of=plan.rerun_of,
        regrade_of=plan.regrade_of,
        phase=run.phase,
        result_state=run.result_state,
        taskset_ref=plan.taskset_ref,
        publication=plan.publication,
        agent=plan.agent.name,
        reward_key=plan.reward_key,
        min_coverage=plan.min_coverage,
        sandbox=plan.sandbox.kind,
        sandbox_why=plan.sandbox.why,
        sandbox_notes=plan.sandbox.notes,
        owner=plan.owner,
        n_tasks=len(plan.tasks),
        n_trials=len(plan.tasks) * plan.n_attempts,
        n_concurrent=plan.n_concurrent,
        counts={outcome: n for outcome, n in counts.items() if n},
        waiting=waiting or _pause(run),
        skipped=plan.skipped,
        created_at=run.created_at,
        started_at=run.started_at,
        ended_at=run.ended_at,
        deadline=run.deadline,
        cancel_requested_at=run.cancel_requested_at,
        executions=run.executions,
        error=run.error,
        stale=stale(marks),
        marks=tuple(marks),
    )


def _pause(run: Run) -> Wait | None:
    hold = run.admission.hold
    if hold is None or run.phase.terminal or run.cancel_requested_at is not None:
        return None
    return wait(WaitReason.PAUSED, paused(hold))


def open_tasks(run: Run, rows: Iterable[TrialOutcome]) -> set[int]:
    """The indexes of the tasks with trials that have no outcome yet."""
    done = Counter(row.index for row in rows)
    return {task.index for task in run.plan.tasks if done[task.index] < run.plan.n_attempts}


def task_views(
    run: Run,
    rows: Iterable[TrialOutcome],
    tries: Iterable[tuple[int, int]],
    waits: Mapping[int, Wait] | None = None,
    marks: Mapping[str, Sequence[Mark]] | None = None,
) -> Iterator[TaskView]:
    """Every task of the run by index, with its trials' outcomes (`rows`). `tries`: the (index, k) that have begun;
    `waits`: what tasks wait for; `marks`: by pinned reference."""
    ended: dict[int, list[TrialOutcome]] = {}
    for row in rows:
        ended.setdefault(row.index, []).append(row)
    begun = Counter(index for index, _ in tries)
    for task in run.plan.tasks:
        mine = ended.get(task.index, [])
        done = len(mine) == run.plan.n_attempts
        running = max(0, begun[task.index] - len(mine))
        before = TaskPhase.IMAGE_READY if running else TaskPhase.REGISTERED  # at work: whatever it needs is there
        yield TaskView(
            index=task.index,
            task=task.name,
            task_ref=task.ref,
            native_task_id=task.native_task_id,
            phase=task_phase(row.outcome for row in mine) if done else before,
            n_trials=run.plan.n_attempts,
            running=running,
            waiting=None if done or not waits else waits.get(task.index),
            outcomes=tuple(trial_view(row) for row in mine),
            marks=tuple(marks.get(task.ref, ())) if marks else (),
        )
