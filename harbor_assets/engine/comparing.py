"""Comparing two runs of the catalog by the rows of their trials, which are there as long as the runs are."""

from harbor_assets.domain.comparison import Comparison, compare
from harbor_assets.domain.errors import NotReady, Refused
from harbor_assets.domain.runs import Run
from harbor_assets.engine.ports import RunCatalog
from harbor_assets.engine.results import find_run
from harbor_assets.engine.staleness import Staleness


def compare_runs(runs: RunCatalog, staleness: Staleness | None, workspace: str, first: str, second: str) -> Comparison:
    """The second run held against the first, with what is said of either.

    Raises `NotFound`; `NotReady` while one goes on; `Refused` for a run and itself, and for two that have no task in
    common.
    """
    if first == second:
        raise Refused(f"{first} is one run; name two to compare")
    a, b = _ended(runs, workspace, first), _ended(runs, workspace, second)
    if not {task.ref for task in a.plan.tasks} & {task.ref for task in b.plan.tasks}:
        raise Refused(
            f"{first} and {second} have no task revision in common: they ran {a.plan.taskset_ref[:100]} and "
            f"{b.plan.taskset_ref[:100]}. Compare runs of one taskset revision"
        )
    found = compare(a, runs.outcomes(a.id), b, runs.outcomes(b.id))
    marks = staleness.of_runs(workspace, (a, b)) if staleness else {}
    return found.model_copy(
        update={"first": found.first.marked(marks.get(a.id, ())), "second": found.second.marked(marks.get(b.id, ()))}
    )


def _ended(runs: RunCatalog, workspace: str, run_id: str) -> Run:
    run = find_run(runs, workspace, run_id)
    if not run.phase.terminal:
        raise NotReady(
            f"Run {run_id} is {run.phase}; it can be compared when it has ended. "
            f"Follow it with: harbor-assets runs status {run_id} --watch"
        )
    return run
