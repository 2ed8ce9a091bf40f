"""Letting a run go on by hand: under its own id, exactly the trials of its plan that have no outcome yet."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from harbor_assets.domain.admission import opened
from harbor_assets.domain.errors import Refused, StorageFull
from harbor_assets.domain.outcomes import Outcome
from harbor_assets.domain.plans import trial_id
from harbor_assets.domain.resumes import Redone, Resumed
from harbor_assets.domain.run_views import run_summary
from harbor_assets.domain.runs import Run
from harbor_assets.engine.account import unfinished
from harbor_assets.engine.admission_ports import GatedRuns
from harbor_assets.engine.ports import Artifacts, Executions
from harbor_assets.engine.tries import kept_try


def resume(
    run: Run, now: datetime, *, runs: GatedRuns, executions: Executions, artifacts: Artifacts, counts: Mapping[str, int]
) -> Resumed:
    """Give the run a worker if it has none, and open it if it is paused. `counts`: its outcomes so far, by name.

    A worker that was lost before counts for nothing then: a person looked. Raises `Refused` for a run that has ended,
    is being cancelled or is stopped, `StorageFull` where a worker could write nothing.
    """
    _check(run, counts.get(Outcome.SCORED, 0))
    if run.admission.hold:
        runs.change_admission(run.id, lambda state: opened(state, now))
    at_work = executions.alive(run.id)
    redone: Sequence[Redone] = ()
    started = False
    if not at_work:
        if blocked := executions.blocked():
            raise StorageFull(blocked)
        redone = _redone(run, runs, artifacts)  # asked before the worker begins more of them
        runs.release(run.id)
        started = executions.start(run.id)
    return Resumed(
        run=run_summary(runs.get_run(run.id), counts),
        started=started,
        at_work=at_work,
        reopened=run.admission.hold is not None,
        finished=sum(counts.values()),
        redone=tuple(redone),
    )


def _check(run: Run, scored: int) -> None:
    again = f"Run what was not scored again, as a new run: harbor-assets runs rerun {run.id} --failed"
    if run.phase.terminal and scored == len(run.plan.tasks) * run.plan.n_attempts:
        raise Refused(f"Run {run.id} has ended ({run.phase}), and every trial of it was scored: nothing is left to do")
    if run.phase.terminal:
        raise Refused(f"Run {run.id} has ended ({run.phase}), and an ended run never changes. {again}")
    if run.cancel_requested_at is not None:
        raise Refused(f"Run {run.id} is being cancelled and does not go on. When it has ended: {again}")
    if stop := run.admission.stop:
        raise Refused(f"Run {run.id} was stopped and does not go on: {stop.message}. When it has ended: {again}")


def _redone(run: Run, runs: GatedRuns, artifacts: Artifacts) -> list[Redone]:
    """The trials without an outcome that had begun, and what is known of their tries."""
    tries, found = runs.tries(run.id), list[Redone]()
    for task, k in unfinished(run.plan, runs.outcomes(run.id)):
        begun = tries.get((task.index, k), ())
        if not begun:
            continue
        kept = [kept_try(artifacts, run.id, trial_id(task, k), number) for number in range(1, len(begun) + 1)]
        costs = [tried.cost for tried in kept if tried and tried.cost is not None]
        found.append(
            Redone(
                index=task.index,
                task=task.name,
                k=k,
                began=begun[-1][0],
                tries=len(begun),
                lost=sum(tried is None for tried in kept),
                cost_usd=sum(costs) if costs else None,
            )
        )
    return found
