"""Runs as a service: accept, look at, cancel. The one way in for CLI, SDK, REST and Dagster alike."""

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from harbor_assets.domain.comparison import Comparison
from harbor_assets.domain.errors import HarborAssetsError, NotReady, Refused, StorageFull
from harbor_assets.domain.marks import Mark, warnings
from harbor_assets.domain.outcomes import TrialOutcome
from harbor_assets.domain.phases import TaskPhase
from harbor_assets.domain.plans import ORACLE, RunPlan
from harbor_assets.domain.policies import OutcomeSummary, account
from harbor_assets.domain.preflight import RunCheck, RunChecked
from harbor_assets.domain.publication import RunPublished
from harbor_assets.domain.regrades import Regrade
from harbor_assets.domain.requests import RunRequest, check_key
from harbor_assets.domain.reruns import Rerun, not_scored, request_again, selected
from harbor_assets.domain.resumes import Resumed
from harbor_assets.domain.run_views import open_tasks, run_summary, task_views
from harbor_assets.domain.runs import Run
from harbor_assets.domain.views import LogChunk, RunStatus, RunSummary, Submitted, TaskView
from harbor_assets.domain.waiting import RunWaits
from harbor_assets.engine.admission_ports import GatedRuns
from harbor_assets.engine.comparing import compare_runs
from harbor_assets.engine.mark_ports import MarkCatalog
from harbor_assets.engine.planning import Deployment, ImagesOf, RunPlanner
from harbor_assets.engine.ports import (
    Artifacts,
    Executions,
    Logs,
    Page,
    Profiles,
    SandboxChooser,
    TaskCatalog,
    TaskFolders,
    Waits,
)
from harbor_assets.engine.recovery import Recovered, Recovery
from harbor_assets.engine.regrades import regrade_request, regraded
from harbor_assets.engine.results import Results, check_index, find_run
from harbor_assets.engine.resuming import resume
from harbor_assets.engine.solutions import without_solution
from harbor_assets.engine.staleness import Staleness

if TYPE_CHECKING:  # what reads traces is not needed to accept a run
    from harbor_assets.engine.publication import Publisher

log = logging.getLogger(__name__)

ALREADY_RUNNING_MAX = 20  # a note, not a list: more would bury the lines that matter


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class RunPicture:
    """A run as a page shows it. `rows`: the outcomes so far, of every planned trial at the end."""

    run: Run
    status: RunStatus
    rows: Sequence[TrialOutcome]

    def account(self) -> OutcomeSummary:
        """The figures of the trials that have ended."""
        return account(self.rows)


class Evaluations:
    """Accepts runs and answers about them. Holds no state of its own: everything is in the catalog and the store.

    `profiles` are those of a deployment; None where sandboxes have none (a laptop). `images_of`: see `RunPlanner`.
    `folders`: where the files of stored tasks are looked at; None: they are not.
    `waits` tells what runs wait for; None where nothing but a free slot is waited for. `marks`: what is known of tasks.
    `publisher` publishes runs to Experiments; None: they cannot be.
    `staleness` tells which runs are touched by marks; None: nobody marks any.
    """

    def __init__(
        self,
        *,
        tasks: TaskCatalog,
        runs: GatedRuns,
        artifacts: Artifacts,
        executions: Executions,
        sandboxes: SandboxChooser,
        logs: Logs,
        deployment: Deployment,
        profiles: Profiles | None = None,
        images_of: ImagesOf = lambda kind: None,
        folders: TaskFolders | None = None,
        waits: Waits | None = None,
        marks: MarkCatalog | None = None,
        publisher: "Publisher | None" = None,
        staleness: Staleness | None = None,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        self._planner = RunPlanner(
            tasks=tasks,
            sandboxes=sandboxes,
            deployment=deployment,
            profiles=profiles,
            images_of=images_of,
            clock=clock,
            destinations=publisher,
        )
        self._publisher = publisher
        self._tasks, self._folders = tasks, folders
        self.results = Results(tasks=tasks, runs=runs, artifacts=artifacts)
        self._runs, self._artifacts, self._executions = runs, artifacts, executions
        self._logs, self._waits = logs, waits
        self._deployment, self._clock = deployment, clock
        self._marks = marks
        self._staleness = staleness
        self._recovery = Recovery(runs, executions)

    # --- accept ---------------------------------------------------------------------------------------------------

    def submit(
        self, workspace: str, request: RunRequest, *, idempotency_key: str | None = None, owner: str | None = None
    ) -> Submitted:
        """Validate everything, freeze the plan, store it, start the run. `owner`: who asks; None: the deployment's.

        Raises `Refused` with every problem at once or for an unusable key, `NotFound` for an unknown taskset,
        `IdempotencyConflict` for a key used with another request, `StorageFull` where a worker could write nothing.
        """
        if idempotency_key is not None:
            check_key(idempotency_key)
        if request.rerun_of is not None:
            find_run(self._runs, workspace, request.rerun_of)
        plan = self._planner.plan(workspace, request, owner=owner)
        not_kept: Sequence[str] = ()
        if request.regrade_of is not None:
            old = find_run(self._runs, workspace, request.regrade_of)
            plan, not_kept = regraded(plan, old, self._runs.outcomes(old.id), tasks=self._tasks)
        plan = plan.model_copy(update={"marks": self._warnings(plan)})
        if blocked := self._executions.blocked():
            raise StorageFull(blocked)
        active = self._runs.list_runs(workspace, active=True, owner=plan.owner, page_size=1000).items
        run, created = self._runs.add_run(
            plan,
            request_digest=request.digest(),
            request=json.dumps(request.canonical()),
            idempotency_key=idempotency_key,
        )
        self._announce(run)
        if created:
            self._executions.start(run.id)
        same = [r.id for r in active if r.plan.taskset_ref == plan.taskset_ref and r.id != run.id]
        return Submitted(
            run=self._summary(run),
            created=created,
            already_running=tuple(same[:ALREADY_RUNNING_MAX]),
            marks=run.plan.marks,
            not_kept=tuple(not_kept),
        )

    def _announce(self, run: Run) -> None:
        """Make the run's Evaluation before anything of it starts; its worker tries again if that cannot be done now.
        For a key that came before it is that of the run of then."""
        if self._publisher is None or run.started_at is not None or run.phase.terminal:
            return
        try:
            self._publisher.begin(run.plan)
        except HarborAssetsError as error:
            log.warning("%s has no Evaluation yet: %s", run.id, error)

    def rerun(
        self,
        workspace: str,
        run_id: str,
        asked: Rerun,
        *,
        idempotency_key: str | None = None,
        owner: str | None = None,
    ) -> Submitted:
        """Run tasks of a run again with its settings, as a new run that names it. Raises as `submit`, `NotReady` for
        the failed ones of a run that has not ended, `Refused` where none failed."""
        run = find_run(self._runs, workspace, run_id)
        again = "to run scored tasks too, leave out --failed, or name them with --tasks"
        if asked.select is not None and asked.which == "failed":
            raise Refused(f"Tasks were named, and 'failed' asked for: take one of the two, or {again}")
        indexes = [task.index for task in run.plan.tasks]
        if asked.select is not None:
            indexes = selected(run.plan, asked.select)
        elif asked.which == "failed":
            if not run.phase.terminal:
                raise NotReady(f"Run {run_id} has not ended ({run.phase}): which of its tasks fail is not known yet")
            indexes = not_scored(run.plan, self._runs.outcomes(run_id))
            if not indexes:
                raise Refused(f"Every trial of {run_id} was scored: nothing of it failed; {again}")
        request = request_again(run.plan, indexes)
        return self.submit(workspace, request, idempotency_key=idempotency_key, owner=owner)

    def regrade(
        self,
        workspace: str,
        run_id: str,
        asked: Regrade,
        *,
        idempotency_key: str | None = None,
        owner: str | None = None,
    ) -> Submitted:
        """Verify again what an ended run kept, as a new run that names it. Raises as `submit`, `NotReady` for a run
        that goes on, `Refused` where nothing of it can be verified again."""
        request = regrade_request(find_run(self._runs, workspace, run_id), asked, tasks=self._tasks)
        return self.submit(workspace, request, idempotency_key=idempotency_key, owner=owner)

    def check(self, workspace: str, asked: RunCheck) -> RunChecked:
        """Whether a suite could run as asked, before it is published for that. Raises `Refused` with every problem."""
        checked = self._planner.check(workspace, asked)
        if not (asked.stored and self._folders and asked.spec.target.source.name == ORACLE):
            return checked
        more = without_solution(workspace, asked.stored, tasks=self._tasks, folders=self._folders)
        return RunChecked(without_solution=(*checked.without_solution, *more))

    # --- look -----------------------------------------------------------------------------------------------------

    def get(self, workspace: str, run_id: str) -> RunSummary:
        """The run. Raises `NotFound` with the nearest ids."""
        run = find_run(self._runs, workspace, run_id)
        return self._summary(run)

    def status(self, workspace: str, run_id: str) -> RunStatus:
        """The run and every task of it."""
        return self.picture(find_run(self._runs, workspace, run_id)).status

    def find(self, run_id: str) -> Run:
        """The run, in whichever workspace: the caller asks who may read that. Raises `NotFound`."""
        return self._runs.get_run(run_id)

    def picture(self, run: Run) -> RunPicture:
        """The status of a run and its account so far, from one reading of its rows."""
        rows = self._runs.outcomes(run.id)
        counts = Counter(row.outcome.value for row in rows)
        waits = self._waits_of(run, rows)
        marks = self._marks_of(run.plan)
        status = RunStatus(
            run=run_summary(run, counts, waits.run, self._marks_on([run]).get(run.id, ())),
            tasks=tuple(self._task_views(run, rows, waits, marks)),
            marks=tuple(marks.get(run.id, ())),
        )
        return RunPicture(run, status, rows)

    def list_runs(
        self,
        workspace: str,
        *,
        active: bool = False,
        mine: bool = False,
        owner: str | None = None,
        page: int = 1,
        page_size: int = 100,
    ) -> Page[RunSummary]:
        """Runs of a workspace, newest first; `mine`: those of `owner` (None: the deployment's)."""
        whose = (owner or self._deployment.owner) if mine else None
        found = self._runs.list_runs(workspace, active=active, owner=whose, page=page, page_size=page_size)
        counts = self._runs.count_outcomes([run.id for run in found.items])
        marks = self._marks_on(found.items)
        items = [run_summary(run, counts.get(run.id, {}), marks=marks.get(run.id, ())) for run in found.items]
        return Page(items, found.page, found.page_size, found.total, found.unreadable)

    def tasks(
        self, workspace: str, run_id: str, *, phase: TaskPhase | None = None, page: int = 1, page_size: int = 100
    ) -> Page[TaskView]:
        """The tasks of a run by index, those in `phase` only if given."""
        run = find_run(self._runs, workspace, run_id)
        rows = self._runs.outcomes(run_id)
        found = self._task_views(run, rows, self._waits_of(run, rows), self._marks_of(run.plan))
        views = [view for view in found if phase in (None, view.phase)]
        start = (page - 1) * page_size
        return Page(views[start : start + page_size], page, page_size, len(views))

    def outcomes(self, workspace: str, run_id: str) -> Sequence[TrialOutcome]:
        """The outcome rows so far."""
        return self._runs.outcomes(find_run(self._runs, workspace, run_id).id)

    def compare(self, workspace: str, first: str, second: str) -> Comparison:
        """The second run held against the first, task by task. Raises as `compare_runs`."""
        return compare_runs(self._runs, self._staleness, workspace, first, second)

    def logs(self, workspace: str, run_id: str, *, task: int | None = None, offset: int = 0) -> LogChunk:
        """The run's own log, or the log of one task's trials, from a byte offset; where nothing more is there yet, with
        what is waited for.

        Raises `NotFound` for an index the run does not have.
        """
        run = find_run(self._runs, workspace, run_id)
        if task is not None:
            check_index(run, task)
        chunk = self._logs.read(run, task, offset)
        if chunk.done or chunk.text:
            return chunk
        waits = self._waits_of(run, self._runs.outcomes(run_id))
        waiting = waits.run if task is None else waits.tasks.get(task) or waits.run
        return chunk.model_copy(update={"waiting": waiting}) if waiting else chunk

    # --- cancel ---------------------------------------------------------------------------------------------------

    def cancel(self, workspace: str, run_id: str) -> RunSummary:
        """Ask a run to stop. Idempotent; an ended run is answered as it is.

        A run whose worker is dead gets a new one, which only accounts for what was cancelled and settles.
        """
        find_run(self._runs, workspace, run_id)
        run = self.cancel_run(run_id)
        return self._summary(run)

    def cancel_run(self, run_id: str) -> Run:
        """As `cancel`, for callers that know no workspace (the Dagster UI)."""
        run = self._runs.request_cancel(run_id, self._clock())
        if not run.phase.terminal:
            self._executions.start(run_id)
        return run

    def resume(self, workspace: str, run_id: str) -> Resumed:
        """Let a run go on by hand; see `engine.resuming.resume`."""
        run = find_run(self._runs, workspace, run_id)
        counts = self._runs.count_outcomes([run.id]).get(run.id, {})
        return resume(
            run,
            self._clock(),
            runs=self._runs,
            executions=self._executions,
            artifacts=self._artifacts,
            counts=counts,
        )

    def publish(self, workspace: str, run_id: str) -> RunPublished:
        """Publish an ended run once more; see `Publisher.again`."""
        run = find_run(self._runs, workspace, run_id)
        if self._publisher is None:
            raise Refused("There are no Experiments here to publish to")
        return self._publisher.again(run, self._runs.outcomes(run_id))

    def recover(self) -> Recovered:
        """Let every run go on that is not terminal and has lost its worker; see `Recovery`."""
        return self._recovery.recover()

    # --- views ----------------------------------------------------------------------------------------------------

    def _summary(self, run: Run) -> RunSummary:
        counts = self._runs.count_outcomes([run.id]).get(run.id, {})
        return run_summary(run, counts, marks=self._marks_on([run]).get(run.id, ()))

    def _marks_on(self, runs: Sequence[Run]) -> Mapping[str, Sequence[Mark]]:
        if self._staleness is None or not runs:
            return {}
        return self._staleness.of_runs(runs[0].plan.workspace, runs)

    def _task_views(
        self, run: Run, rows: Sequence[TrialOutcome], waits: RunWaits, marks: Mapping[str, Sequence[Mark]]
    ) -> Iterator[TaskView]:
        return task_views(run, rows, () if run.phase.terminal else self._runs.tries(run.id), waits.tasks, marks)

    def _marks_of(self, plan: RunPlan) -> Mapping[str, Sequence[Mark]]:
        """What is known now of the run (by id) and of its tasks (by reference)."""
        if self._marks is None:
            return {}
        return self._marks.marks_of(plan.workspace, [plan.run_id, *(task.ref for task in plan.tasks)])

    def _warnings(self, plan: RunPlan) -> tuple[Mark, ...]:
        return tuple(warnings(mark for marks in self._marks_of(plan).values() for mark in marks))

    def _waits_of(self, run: Run, rows: Sequence[TrialOutcome]) -> RunWaits:
        if self._waits is None or run.phase.terminal or run.cancel_requested_at is not None:
            return RunWaits()
        return self._waits.of(run, open_tasks(run, rows))
