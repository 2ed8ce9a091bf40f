"""The account of a run: one row for every planned trial, also for those nobody ran. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from harbor_assets.domain.endings import Ending, cut, trial_error
from harbor_assets.domain.outcomes import OUTCOME_OF, Measurements, Reason, TrialOutcome, Try
from harbor_assets.domain.plans import PlannedTask, RunPlan, job_name, trial_id


def evidence_path(run_id: str, task: PlannedTask, k: int, earlier_try: int | None = None) -> str:
    """A trial's folder, relative to the bundle; `earlier_try`: that of a try (from 1) that was followed by another."""
    suffix = f".try-{earlier_try}" if earlier_try else ""
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


@dataclass(frozen=True, slots=True)
class Lost:
    """Why a task's worker left no outcome: `reason` is what its trials end with if they are not run again."""

    reason: Reason
    message: str


def never_ran(
    *,
    cancelled: bool,
    expired: bool,
    deadline: datetime | None,
    lost_workers: int,
    queued: bool = False,
    begun: bool = False,
    lost: Lost | None = None,
    stopped: str | None = None,
) -> Ending:
    """The ending of a planned trial that has none of its own when the run is settled.

    `queued`: the run never got a slot, so `deadline` is the end of its time in the queue. `begun`: a worker took the
    trial up and was lost, `lost` says why if anybody knows. `stopped`: why no trial of the run could begin any more.
    """
    if cancelled:
        return Ending(Reason.CANCELLED_BY_USER, "the run was cancelled before this trial ended")
    if expired and queued:
        return Ending(Reason.QUEUE_TIMEOUT, f"the run had no slot until {deadline:%Y-%m-%d %H:%M:%S} UTC")
    if expired:
        return Ending(Reason.RUN_DEADLINE, f"the run's time was up at {deadline:%Y-%m-%d %H:%M:%S} UTC")
    if lost:
        return Ending(lost.reason, cut(lost.message), error=trial_error("WorkerLost", lost.message))
    after = f" after {lost_workers} lost workers in a row" if lost_workers else ""
    if begun:
        said = f"the worker was lost while this trial was under way; the run was settled{after}"
        return Ending(Reason.WORKER_LOST, said, error=trial_error("WorkerLost", said))
    if stopped:
        return Ending(Reason.RUN_STOPPED, cut(f"the run was stopped before this trial began: {stopped}"))
    return Ending(Reason.NEVER_STARTED, f"the run was settled{after} before this trial had ended")


def ending_of(tried: Try, reason: Reason) -> Ending:
    """How a try ended, as far as its record tells."""
    spent = Measurements(
        prompt_tokens=tried.prompt_tokens,
        completion_tokens=tried.completion_tokens,
        cache_read_tokens=tried.cache_read_tokens,
        cost_usd=tried.cost,
    )
    message = tried.error.message if tried.error else None
    return Ending(reason, message, error=tried.error, measurements=spent)


def lost_tries(begun: Sequence[datetime], lost: Lost | None, ended: Sequence[Try | None]) -> list[Try]:
    """The tries of a trial that never came to its end, by their starts: those that `ended` and were to be followed by
    another as they were recorded, the others as lost. What is known of a loss belongs to the last of all."""
    said = ["the worker was lost while this try was under way"] * len(begun)
    if lost and said:
        said[-1] = lost.message
    return [
        done or Try(start=start, error=trial_error("WorkerLost", text))
        for start, text, done in zip(begun, said, ended, strict=True)
    ]
