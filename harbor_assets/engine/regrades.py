"""Accepting a regrade: by whose tests, of which trials something is kept, and under which trial keys."""

from collections.abc import Mapping, Sequence

from harbor_assets.domain.errors import NotFound, NotReady, Problem, Refused
from harbor_assets.domain.filters import TASKSET_FIELDS, Operator, condition
from harbor_assets.domain.names import Ref
from harbor_assets.domain.outcomes import TrialOutcome
from harbor_assets.domain.plans import RunPlan
from harbor_assets.domain.regrades import (
    NAMED_MAX,
    Regrade,
    by_reason,
    regraded_key,
    request_to_regrade,
    row_problem,
    verifier_problem,
)
from harbor_assets.domain.requests import RunRequest
from harbor_assets.domain.reruns import selected
from harbor_assets.domain.runs import Run
from harbor_assets.domain.tasks import Sort, Task
from harbor_assets.engine.ports import TaskCatalog

_REFUSED = "The run was not accepted:"


def regrade_request(run: Run, asked: Regrade, *, tasks: TaskCatalog) -> RunRequest:
    """The request that verifies tasks of an ended run again. Raises `NotReady` for one that goes on, `Refused` for
    tasks it does not have, and where it is not clear by whose tests."""
    if not run.phase.terminal:
        raise NotReady(f"Run {run.id} has not ended ({run.phase}): what it keeps is verified again when it has")
    indexes = [task.index for task in run.plan.tasks]
    if asked.select is not None:
        indexes = selected(run.plan, asked.select)
    if asked.taskset is None:
        taskset = _current_taskset(run.plan, indexes, tasks)
    else:
        taskset = asked.taskset
        _check_pinned(run.plan, indexes, taskset, tasks)
    return request_to_regrade(run.plan, indexes, taskset)


def _check_pinned(plan: RunPlan, indexes: Sequence[int], taskset: str, tasks: TaskCatalog) -> None:
    """Raise `NotFound` without that taskset, `Refused` where tasks are not in it."""
    ref = Ref.parse(taskset, workspace=plan.workspace)
    found = tasks.get_taskset(ref.workspace, ref.name, ref.fragment)
    pinned = {Ref.parse(task, workspace=ref.workspace).name for task in found.tasks}
    missing = [index for index in indexes if plan.task(index).name not in pinned]
    if missing:
        raise Refused(f"Of {plan.run_id}, {found.ref} does not pin {_left_out(plan, indexes, missing)}")


def _left_out(plan: RunPlan, indexes: Sequence[int], missing: Sequence[int]) -> str:
    """The tasks that are missing in a taskset, and what to do: leave them out, or take the run's own tests."""
    names = [plan.task(index).name for index in missing]
    more = f" and {len(names) - NAMED_MAX} more tasks" if len(names) > NAMED_MAX else ""
    own = f"verify all of them by the run's own tests with --taskset '{plan.taskset_ref}'"
    left = ",".join(str(index) for index in indexes if index not in set(missing))
    step = f"Leave them out with --tasks {left}, or {own}" if left else f"Name another taskset, or {own}"
    return f"{', '.join(names[:NAMED_MAX])}{more}. {step}"


def _current_taskset(plan: RunPlan, indexes: Sequence[int], tasks: TaskCatalog) -> str:
    """The newest taskset that pins the newest revisions of these tasks; the run's own if it does."""
    pinned = [Ref.parse(plan.task(index).ref, workspace=plan.workspace) for index in indexes]
    newest: dict[str, str] = {}
    for workspace in dict.fromkeys(ref.workspace for ref in pinned):
        names = [ref.name for ref in pinned if ref.workspace == workspace]
        newest |= {f"{workspace}/{name}": task.ref for name, task in tasks.get_tasks(workspace, names).items()}
    wanted = [newest.get(ref.bare, str(ref)) for ref in pinned]  # one that was deleted is as it was
    if wanted == [str(ref) for ref in pinned]:
        return plan.taskset_ref
    home = Ref.parse(plan.taskset_ref, workspace=plan.workspace)
    changed = next(ref for ref, old in zip(wanted, pinned, strict=True) if ref != str(old))
    where = condition("tasks", "", Operator.EQ, changed, fields=TASKSET_FIELDS, workspace=home.workspace)
    newer = tasks.list_tasksets(home.workspace, sort=Sort.UPDATED_DOWN, where=where).items
    for taskset in newer:
        if set(wanted) <= set(taskset.tasks):
            return taskset.ref
    if newer:
        best = max(newer, key=lambda taskset: len(set(wanted).intersection(taskset.tasks)))  # the newest of equal ones
        missing = [index for index, ref in zip(indexes, wanted, strict=True) if ref not in set(best.tasks)]
        raise Refused(
            f"Tasks of {plan.run_id} have newer revisions, as {changed}, and no taskset pins all of them. "
            f"The nearest, {best.ref}, does not pin {_left_out(plan, indexes, missing)}"
        )
    raise Refused(
        f"Tasks of {plan.run_id} have newer revisions, as {changed}, and no taskset pins all of them. Publish the "
        f"suite (tasksets create), or say by whose tests: the run's own are --taskset '{plan.taskset_ref}'"
    )


def regraded(plan: RunPlan, old: Run, rows: Sequence[TrialOutcome], *, tasks: TaskCatalog) -> tuple[RunPlan, list[str]]:
    """The plan of a regrade of `old`, whose outcomes are `rows`, with the keys that its trials have; and, by task, why
    of its trials nothing is kept, as far as that is known now.

    Raises `NotReady` if `old` goes on, `Refused` for a plan that is not of its tasks and agent, and where nothing of
    any trial can be verified again.
    """
    if not old.phase.terminal:
        raise NotReady(f"Run {old.id} has not ended ({old.phase}): what it keeps is verified again when it has")
    before = {task.name: task for task in old.plan.tasks}
    problems = [
        Problem(task.name, f"is no task of {old.id}, so nothing of it is kept there")
        for task in plan.tasks
        if task.name not in before
    ]
    if (plan.agent, plan.n_attempts) != (old.plan.agent, old.plan.n_attempts):
        problems.append(Problem("spec.target", f"must name the agent and the number of attempts of {old.id}"))
    now = dict(zip([task.ref for task in plan.tasks], tasks.get_pinned_tasks([t.ref for t in plan.tasks]), strict=True))
    then = _known(tasks, [before[task.name].ref for task in plan.tasks if task.name in before])
    for task in plan.tasks:
        if task.name in before and _told_otherwise(then.get(before[task.name].ref), now[task.ref]):
            why = f"its instruction is another than in {old.id}: the agent was asked for something else"
            problems.append(Problem(task.name, why))
    if problems:
        raise Refused(_REFUSED, problems)
    by_trial = {(row.task, row.k): row for row in rows}
    without: dict[str, str] = {}
    kept = 0
    for task in plan.tasks:
        shared = verifier_problem(now[task.ref].harbor.config)
        for k in range(1, plan.n_attempts + 1):
            if problem := shared or row_problem(by_trial.get((task.name, k))):
                without.setdefault(task.name, problem)
            else:
                kept += 1
    if not kept:
        raise Refused(f"Nothing of {old.id} can be verified again:", [Problem(*each) for each in by_reason(without)])
    keyed = tuple(
        task.model_copy(update={"trial_key": regraded_key(before[task.name].trial_key, task.trial_key)})
        for task in plan.tasks
    )
    return plan.model_copy(update={"tasks": keyed}), [f"{name}: {why}" for name, why in without.items()]


def _known(tasks: TaskCatalog, refs: Sequence[str]) -> Mapping[str, Task]:
    """Those of the revisions that are still there."""
    try:
        return dict(zip(refs, tasks.get_pinned_tasks(refs), strict=True))
    except NotFound as error:
        gone = {problem.subject for problem in error.problems}
        left = [ref for ref in refs if ref not in gone]
        return dict(zip(left, tasks.get_pinned_tasks(left), strict=True)) if left and len(left) < len(refs) else {}


def _told_otherwise(then: Task | None, now: Task) -> bool:
    return then is not None and then.harbor.instruction != now.harbor.instruction
