"""Judging the tasks of a taskset by two ended runs of it, and keeping what was found as marks."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from harbor_assets.domain.errors import NotFound, NotReady, Problem, Refused
from harbor_assets.domain.marks import WHY_MAX, Mark
from harbor_assets.domain.plans import NOP, ORACLE, AgentSpec
from harbor_assets.domain.runs import Run
from harbor_assets.domain.verification import Verification, judged
from harbor_assets.engine.mark_ports import MarkCatalog
from harbor_assets.engine.ports import RunCatalog
from harbor_assets.engine.results import find_run


def _now() -> datetime:
    return datetime.now(UTC)


class Verifications:
    """Holds no state of its own: runs and marks are in the catalog."""

    def __init__(self, *, runs: RunCatalog, marks: MarkCatalog, clock: Callable[[], datetime] = _now) -> None:
        self._runs, self._marks, self._clock = runs, marks, clock

    def judge(self, workspace: str, oracle_run: str, nop_run: str, *, who: str | None = None) -> Verification:
        """Judge every task by these two runs of the workspace, and mark those of which something can be said. A mark
        by runs that were submitted later stays.

        `who`: in whose name; None: the owner of the oracle's run. Raises `NotFound` for a run that is not there,
        `NotReady` for one that has not ended, `Refused` for two that cannot be held against each other.
        """
        oracle, nop = (find_run(self._runs, workspace, run_id) for run_id in (oracle_run, nop_run))
        if problems := [*_unfit(oracle, ORACLE), *_unfit(nop, NOP), *_apart(oracle, nop)]:
            raise Refused("The tasks cannot be judged by these runs:", problems)
        for run in (oracle, nop):
            if not run.phase.terminal:
                raise NotReady(f"Run {run.id} has not ended ({run.phase}): its tasks are judged when it has")
        found = Verification(
            workspace=workspace,
            taskset_ref=oracle.plan.taskset_ref,
            oracle_run=oracle.id,
            nop_run=nop.id,
            tasks=tuple(
                judged(
                    oracle.plan.tasks,
                    self._runs.outcomes(oracle.id),
                    self._runs.outcomes(nop.id),
                    (oracle.plan.n_attempts, nop.plan.n_attempts),
                    where=f"in the sandbox {oracle.plan.sandbox.kind}",
                )
            ),
        )
        at = self._clock()
        newer = self._newer(workspace, [task.task_ref for task in found.tasks], (oracle, nop))
        found = found.model_copy(
            update={
                "tasks": tuple(
                    task.model_copy(update={"newer_runs": newer.get(task.task_ref, ())}) for task in found.tasks
                )
            }
        )
        for task in found.tasks:
            if task.verdict is not None and not task.newer_runs:
                self._marks.put_mark(
                    Mark(
                        workspace=workspace,
                        subject=task.task_ref,
                        verdict=task.verdict,
                        who=who or oracle.plan.owner,
                        why=task.why[:WHY_MAX],
                        at=at,
                        runs=(oracle.id, nop.id),
                    )
                )
        return found

    def _newer(self, workspace: str, refs: Sequence[str], runs: Sequence[Run]) -> Mapping[str, tuple[str, ...]]:
        """Task -> the runs behind its mark, where one of them was submitted after all of these."""
        submitted = {run.id: run.created_at for run in runs}
        latest = max(submitted.values())
        found: dict[str, tuple[str, ...]] = {}
        for ref, marks in self._marks.marks_of(workspace, refs).items():
            for mark in marks:
                if mark.kind != "verified":
                    continue
                for run_id in mark.runs:
                    if run_id not in submitted:
                        submitted[run_id] = self._submitted(run_id) or mark.at
                if max(submitted[run_id] for run_id in mark.runs) > latest:
                    found[ref] = mark.runs
        return found

    def _submitted(self, run_id: str) -> datetime | None:
        """When it was; None for a run that is not there any more."""
        try:
            return self._runs.get_run(run_id).created_at
        except NotFound:
            return None


def _unfit(run: Run, agent: str) -> Sequence[Problem]:
    plan = run.plan
    if plan.regrade_of is not None:
        return [Problem(run.id, f"verified again what {plan.regrade_of} had kept; no agent ran in it")]
    if plan.agent.name != agent:
        return [Problem(run.id, f"ran the agent '{plan.agent.name}', not {agent}")]
    if plan.agent != AgentSpec(name=agent, version=plan.agent.version):
        return [Problem(run.id, f"gave the agent {agent} arguments or variables that tasks do not give it")]
    return []


def _apart(one: Run, other: Run) -> Sequence[Problem]:
    """What makes two runs show different things."""
    differing = [
        (what, first, second)
        for what, first, second in (
            ("tasks of", one.plan.taskset_ref, other.plan.taskset_ref),
            ("tasks", [task.ref for task in one.plan.tasks], [task.ref for task in other.plan.tasks]),
            ("sandbox", one.plan.sandbox.kind, other.plan.sandbox.kind),
            ("reward key", one.plan.reward_key, other.plan.reward_key),
        )
        if first != second
    ]
    return [Problem(other.id, f"has another {what} than {one.id}") for what, _, _ in differing[:1]]
