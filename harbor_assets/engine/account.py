"""The account of a run: one row for every planned trial, also for those nobody ran. Pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from harbor_assets.domain.endings import Ending
from harbor_assets.domain.outcomes import OUTCOME_OF, Reason, TrialOutcome, Try
from harbor_assets.domain.plans import PlannedTask, RunPlan, job_name, trial_id


def evidence_path(run_id: str, task: PlannedTask, k: int, lost_try: int | None = None) -> str:
    """A trial's folder, relative to the bundle; `lost_try`: that of an earlier try (from 1) whose worker was lost."""
    suffix = f".try-{lost_try}" if lost_try else ""
    return f"evidence/harbor/{job_name(run_id, task.index)}/{trial_id(task, k)}{suffix}"


def row(
    plan: RunPlan, task: PlannedTask, k: int, ending: Ending, *, tries: Sequence[Try] = (), evidence: str | None = None
) -> TrialOutcome:
    """The outcome row of trial (task, k)."""
    return TrialOutcome(
        run_id=plan.run_id,
        index=task.index,
        task=task.name,
        task_ref=task.ref,
        native_task_id=task.native_task_id,
        k=k,
        trial_id=trial_id(task, k),
        outcome=OUTCOME_OF[ending.reason],
        reason=ending.reason,
        message=ending.message,
        reward=ending.reward,
        reward_key=plan.reward_key,
        rewards=ending.rewards,
        reward_rejections=ending.reward_rejections,
        reward_entry_rejections=ending.reward_entry_rejections,
        flags=ending.flags,
        error=ending.error,
        trial_key=task.trial_key,
        tries=tuple(tries),
        measurements=ending.measurements,
        evidence=evidence,
        details=ending.details,
    )


def unfinished(plan: RunPlan, rows: Sequence[TrialOutcome]) -> Iterator[tuple[PlannedTask, int]]:
    """(task, k) of every planned trial without a row, by (index, k)."""
    have = {(r.index, r.k) for r in rows}
    for task in plan.tasks:
        for k in range(1, plan.n_attempts + 1):
            if (task.index, k) not in have:
                yield task, k


def never_ran(*, cancelled: bool, expired: bool, deadline: datetime | None, lost_workers: int) -> Ending:
    """The ending of a planned trial that has none of its own when the run is settled."""
    if cancelled:
        return Ending(Reason.CANCELLED_BY_USER, "the run was cancelled before this trial ended")
    if expired:
        return Ending(Reason.RUN_DEADLINE, f"the run's time was up at {deadline:%Y-%m-%d %H:%M:%S} UTC")
    lost = f" after {lost_workers} lost workers in a row" if lost_workers else ""
    return Ending(Reason.NEVER_STARTED, f"the run was settled{lost} before this trial had ended")
