"""Runs as a service: accept, look at, cancel. The one way in for CLI, SDK, REST and Dagster alike."""

import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, BinaryIO

from harbor_assets.domain import plans
from harbor_assets.domain.errors import NotFound, NotReady, Problem, Refused
from harbor_assets.domain.images import TaskImages
from harbor_assets.domain.names import Ref, nearest
from harbor_assets.domain.outcomes import TrialOutcome
from harbor_assets.domain.phases import ResultState, TaskPhase, task_phase
from harbor_assets.domain.plans import AgentSpec, PlannedTask, RunPlan, SandboxChoice, Sizing
from harbor_assets.domain.profiles import SandboxProfile, flag_problems, task_problems
from harbor_assets.domain.requests import RunRequest
from harbor_assets.domain.runs import Run
from harbor_assets.domain.selection import select_members
from harbor_assets.domain.tasks import Task
from harbor_assets.domain.views import BundleFile, LogChunk, RunStatus, RunSummary, Submitted, TaskView, trial_view
from harbor_assets.engine.ports import (
    Artifacts,
    Executions,
    Images,
    Logs,
    Page,
    Profiles,
    RunCatalog,
    SandboxChooser,
    TaskCatalog,
)

if TYPE_CHECKING:
    from harbor_assets.engine.task_bundles import TaskBundle

INDEXES_SHOWN = 20
ALREADY_RUNNING_MAX = 20  # a note, not a list: more would bury the lines that matter


@dataclass(frozen=True, slots=True)
class Deployment:
    """What this installation decides for every run: defaults, ceilings and versions."""

    owner: str
    n_concurrent: int
    timeout_seconds: int
    harbor_version: str
    version: str


def bundle_key(run_id: str) -> str:
    """Where a run's bundle lies in the artifact store, its trial folders included."""
    return f"runs/{run_id}/agent-eval-results"


def _now() -> datetime:
    return datetime.now(UTC)


class Evaluations:
    """Accepts runs and answers about them. Holds no state of its own: everything is in the catalog and the store.

    `profiles` and `images` are those of a deployment; None where sandboxes have none (a laptop).
    """

    def __init__(
        self,
        *,
        tasks: TaskCatalog,
        runs: RunCatalog,
        artifacts: Artifacts,
        executions: Executions,
        sandboxes: SandboxChooser,
        logs: Logs,
        deployment: Deployment,
        profiles: Profiles | None = None,
        images: Images | None = None,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        self._profiles, self._images = profiles, images
        self._tasks, self._runs, self._artifacts = tasks, runs, artifacts
        self._executions, self._sandboxes, self._logs = executions, sandboxes, logs
        self._deployment, self._clock = deployment, clock

    # --- accept ---------------------------------------------------------------------------------------------------

    def submit(self, workspace: str, request: RunRequest, *, idempotency_key: str | None = None) -> Submitted:
        """Validate everything, freeze the plan, store it, start the run.

        Raises `Refused` with every problem at once, `NotFound` for an unknown taskset, `IdempotencyConflict` for a key
        used with another request.
        """
        plan = self._plan(workspace, request)
        active = self._runs.list_runs(workspace, active=True, owner=plan.owner, page_size=1000).items
        run, created = self._runs.add_run(plan, request_digest=request.digest(), idempotency_key=idempotency_key)
        if created:
            self._executions.start(run.id)
        same = [r.id for r in active if r.plan.taskset_ref == plan.taskset_ref and r.id != run.id]
        return Submitted(
            run=self._summary(run, self._runs.count_outcomes([run.id]).get(run.id, {})),
            created=created,
            already_running=tuple(same[:ALREADY_RUNNING_MAX]),
        )

    def _plan(self, workspace: str, request: RunRequest) -> RunPlan:
        target, execution = request.spec.target, request.execution
        problems = [
            *agent_problems(target.source.name),
            *(
                [Problem("timeout_seconds", f"{request.timeout_seconds} s is above {plans.RUN_TIMEOUT_MAX_SECONDS} s")]
                if (request.timeout_seconds or 0) > plans.RUN_TIMEOUT_MAX_SECONDS
                else []
            ),
        ]
        ref = Ref.parse(request.spec.tasks.taskset, workspace=workspace)
        taskset = self._tasks.get_taskset(ref.workspace, ref.name, ref.fragment)
        members = self._tasks.get_pinned_tasks(taskset.tasks)
        by_name = sorted(members, key=lambda task: task.name)
        try:
            chosen = select_members([(t.name, t.spec.native_task_id) for t in by_name], request.spec.tasks.select)
        except Refused as refused:
            problems += refused.problems or [Problem("tasks", refused.message)]
            chosen = []
        if not by_name:
            problems.append(Problem(str(taskset.ref), "the taskset is empty: there is nothing to run"))
        sandbox = self._sandboxes.choose(execution.sandbox.kind)
        sizing = Sizing(
            cpus=execution.sandbox.cpus,
            memory_mb=execution.sandbox.memory_mb,
            storage_mb=execution.sandbox.storage_mb,
        )
        profile = self._profile(execution.sandbox.profile, problems)
        images = self._resolve_images([by_name[i] for i in chosen], taskset.ref, problems)
        if profile:
            problems += _ceiling_problems([by_name[i] for i in chosen], sizing, profile)
        if problems:
            raise Refused("The run was not accepted:", problems)
        agent = AgentSpec(name=target.source.name, kwargs=target.agent_kwargs)
        concurrency = execution.max_concurrent_task_jobs or self._deployment.n_concurrent
        return RunPlan(
            run_id=f"run-{secrets.token_hex(8)}",
            workspace=workspace,
            owner=self._deployment.owner,
            created_at=self._clock(),
            taskset_ref=taskset.ref,
            tasks=tuple(
                self._planned(i, by_name[i], found, agent, sizing, sandbox, profile, target.reward_key)
                for i, found in zip(chosen, images, strict=True)
            ),
            agent=agent,
            sandbox=sandbox,
            profile=profile,
            sizing=sizing,
            n_attempts=target.n_attempts,
            n_concurrent=min(concurrency, sandbox.max_concurrent or concurrency),
            timeout_seconds=request.timeout_seconds or self._deployment.timeout_seconds,
            reward_key=target.reward_key,
            harbor_version=self._deployment.harbor_version,
            harbor_assets_version=self._deployment.version,
            skipped=tuple(request.skipped),
        )

    def _profile(self, name: str | None, problems: list[Problem]) -> SandboxProfile | None:
        """The run's profile; what is wrong with the name is added to `problems`."""
        if self._profiles is None:
            if name is not None:
                where = "is not known here: sandboxes on this machine have no profiles; leave --sandbox-profile out"
                problems.append(Problem(f"sandbox profile '{name}'", where))
            return None
        try:
            return self._profiles.get(name)
        except Refused as refused:
            problems += refused.problems or [Problem("sandbox profile", refused.message)]
            return None

    def _resolve_images(self, tasks: Sequence[Task], ref: str, problems: list[Problem]) -> Sequence[TaskImages]:
        """What is known of the tasks' images; those never built are added to `problems`."""
        if self._images is None:
            return [TaskImages({}, {}, None, ())] * len(tasks)
        found = self._images.resolve(tasks)
        pairs = zip(tasks, found, strict=True)
        without = [task.name for task, images in pairs if images.missing and not images.problem]
        how = f"its image was never built; first run: harbor-assets tasksets build-images '{ref}' --wait"
        problems += [Problem(f"tasks without images: {name}", f"image_not_built: {how}") for name in without]
        return found

    def _planned(
        self,
        index: int,
        task: Task,
        images: TaskImages,
        agent: AgentSpec,
        sizing: Sizing,
        sandbox: SandboxChoice,
        profile: SandboxProfile | None,
        reward_key: str,
    ) -> PlannedTask:
        return PlannedTask(
            index=index,
            name=task.name,
            native_task_id=task.spec.native_task_id,
            ref=task.ref,
            fileset_ref=task.spec.source.fileset_ref,
            files_hash=task.spec.source.files_hash,
            images=images.images,
            image_config=images.config,
            image_problem=images.problem,
            trial_key=plans.trial_key(
                task_digest=task.digest,
                images=images.images,
                agent=agent,
                model=None,
                harbor_version=self._deployment.harbor_version,
                sizing=sizing,
                # What narrows the task's own policy, which its digest covers.
                network={"hosts": list(profile.hosts), "install_hosts": list(profile.install_hosts)} if profile else {},
                multipliers={},
                reward_key=reward_key,
                sandbox=sandbox,
            ),
        )

    # --- look -----------------------------------------------------------------------------------------------------

    def get(self, workspace: str, run_id: str) -> RunSummary:
        """The run. Raises `NotFound` with the nearest ids."""
        run = self._run(workspace, run_id)
        return self._summary(run, self._runs.count_outcomes([run_id]).get(run_id, {}))

    def status(self, workspace: str, run_id: str) -> RunStatus:
        """The run and every task of it."""
        run = self._run(workspace, run_id)
        rows = self._runs.outcomes(run_id)
        counts = Counter(row.outcome.value for row in rows)
        return RunStatus(run=self._summary(run, counts), tasks=tuple(self._task_views(run, rows)))

    def list_runs(
        self, workspace: str, *, active: bool = False, mine: bool = False, page: int = 1, page_size: int = 100
    ) -> Page[RunSummary]:
        """Runs of a workspace, newest first."""
        owner = self._deployment.owner if mine else None
        found = self._runs.list_runs(workspace, active=active, owner=owner, page=page, page_size=page_size)
        counts = self._runs.count_outcomes([run.id for run in found.items])
        items = [self._summary(run, counts.get(run.id, {})) for run in found.items]
        return Page(items, found.page, found.page_size, found.total, found.unreadable)

    def tasks(
        self, workspace: str, run_id: str, *, phase: TaskPhase | None = None, page: int = 1, page_size: int = 100
    ) -> Page[TaskView]:
        """The tasks of a run by index, those in `phase` only if given."""
        run = self._run(workspace, run_id)
        views = [v for v in self._task_views(run, self._runs.outcomes(run_id)) if phase in (None, v.phase)]
        start = (page - 1) * page_size
        return Page(views[start : start + page_size], page, page_size, len(views))

    def outcomes(self, workspace: str, run_id: str) -> Sequence[TrialOutcome]:
        """The outcome rows so far."""
        return self._runs.outcomes(self._run(workspace, run_id).id)

    def logs(self, workspace: str, run_id: str, *, task: int | None = None, offset: int = 0) -> LogChunk:
        """The run's own log, or the log of one task's trials, from a byte offset.

        Raises `NotFound` for an index the run does not have.
        """
        run = self._run(workspace, run_id)
        if task is not None:
            self._check_index(run, task)
        return self._logs.read(run, task, offset)

    def _check_index(self, run: Run, index: int) -> None:
        if index not in {task.index for task in run.plan.tasks}:
            known = ", ".join(str(task.index) for task in run.plan.tasks[:INDEXES_SHOWN])
            more = f", … ({len(run.plan.tasks)} tasks)" if len(run.plan.tasks) > INDEXES_SHOWN else ""
            raise NotFound(f"Run {run.id} has no task {index}; its indexes are {known}{more}")

    # --- results --------------------------------------------------------------------------------------------------

    def bundle_files(self, workspace: str, run_id: str) -> Iterator[BundleFile]:
        """Every file of the merged bundle. Raises `NotReady` while the run goes on, `NotFound` if merging failed."""
        run = self._ended(workspace, run_id)
        files = self._artifacts.list(bundle_key(run.id))
        return (BundleFile(path=path, size=size) for path, size in files)

    def open_bundle_file(self, workspace: str, run_id: str, path: str) -> AbstractContextManager[BinaryIO]:
        """One file of the bundle as a stream. Raises `NotReady`, `NotFound`."""
        run = self._ended(workspace, run_id)
        return self._artifacts.open(f"{bundle_key(run.id)}/{path}")

    def task_bundle_files(self, workspace: str, run_id: str, index: int) -> Iterator[BundleFile]:
        """Every file of one task's own bundle, which is there as soon as the task's trials have ended.

        Raises `NotReady` before that, `NotFound` for an index the run does not have.
        """
        bundle = self._task_bundle(workspace, run_id, index)
        return (BundleFile(path=path, size=size) for path, size in bundle.files())

    def open_task_bundle_file(
        self, workspace: str, run_id: str, index: int, path: str
    ) -> AbstractContextManager[BinaryIO]:
        """One file of a task's own bundle as a stream. Raises as `task_bundle_files`."""
        return self._task_bundle(workspace, run_id, index).open(path)

    def _task_bundle(self, workspace: str, run_id: str, index: int) -> "TaskBundle":
        from harbor_assets.engine.task_bundles import TaskBundle  # it needs this module

        run = self._run(workspace, run_id)
        self._check_index(run, index)
        rows = [row for row in self._runs.outcomes(run_id) if row.index == index]
        return TaskBundle(run, index, rows, tasks=self._tasks, artifacts=self._artifacts)

    def _ended(self, workspace: str, run_id: str) -> Run:
        run = self._run(workspace, run_id)
        if not run.phase.terminal:
            raise NotReady(
                f"Run {run_id} is {run.phase}; its results are ready when it has ended. "
                f"Follow it with: harbor-assets runs status {run_id} --watch"
            )
        if run.result_state is ResultState.FAILED:
            raise NotFound(f"Run {run_id} ended {run.phase}, but its results could not be merged: {run.error}")
        return run

    # --- cancel ---------------------------------------------------------------------------------------------------

    def cancel(self, workspace: str, run_id: str) -> RunSummary:
        """Ask a run to stop. Idempotent; an ended run is answered as it is.

        A run whose worker is dead gets a new one, which only accounts for what was cancelled and settles.
        """
        self._run(workspace, run_id)
        run = self.cancel_run(run_id)
        return self._summary(run, self._runs.count_outcomes([run_id]).get(run_id, {}))

    def cancel_run(self, run_id: str) -> Run:
        """As `cancel`, for callers that know no workspace (the Dagster UI)."""
        run = self._runs.request_cancel(run_id, self._clock())
        if not run.phase.terminal:
            self._executions.start(run_id)
        return run

    def recover(self) -> list[str]:
        """Let every run go on that is not terminal and has lost its worker; remove what dead workers left.

        Returns the ids of the runs taken up again. Safe to call at any time, by several commands at once.
        """
        active = self._runs.list_runs(active=True, page_size=1000).items
        lost = [run.id for run in active if not self._executions.alive(run.id)]
        self._executions.clean()
        return [run_id for run_id in lost if self._executions.start(run_id)]

    # --- views ----------------------------------------------------------------------------------------------------

    def _run(self, workspace: str, run_id: str) -> Run:
        run = self._runs.get_run(run_id)
        if run.plan.workspace != workspace:
            raise NotFound(f"Run {run_id} is not in workspace '{workspace}'")
        return run

    def _summary(self, run: Run, counts: Mapping[str, int]) -> RunSummary:
        plan = run.plan
        return RunSummary(
            id=run.id,
            workspace=plan.workspace,
            phase=run.phase,
            result_state=run.result_state,
            taskset_ref=plan.taskset_ref,
            agent=plan.agent.name,
            reward_key=plan.reward_key,
            sandbox=plan.sandbox.kind,
            sandbox_why=plan.sandbox.why,
            sandbox_notes=plan.sandbox.notes,
            owner=plan.owner,
            n_tasks=len(plan.tasks),
            n_trials=len(plan.tasks) * plan.n_attempts,
            n_concurrent=plan.n_concurrent,
            counts={outcome: n for outcome, n in counts.items() if n},
            skipped=plan.skipped,
            created_at=run.created_at,
            started_at=run.started_at,
            ended_at=run.ended_at,
            deadline=deadline(run),
            cancel_requested_at=run.cancel_requested_at,
            executions=run.executions,
            error=run.error,
        )

    def _task_views(self, run: Run, rows: Sequence[TrialOutcome]) -> Iterator[TaskView]:
        ended: dict[int, list[TrialOutcome]] = {}
        for row in rows:
            ended.setdefault(row.index, []).append(row)
        begun = Counter(index for index, _ in self._runs.tries(run.id)) if not run.phase.terminal else Counter()
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
                outcomes=tuple(trial_view(row) for row in mine),
            )


def deadline(run: Run) -> datetime | None:
    """When the run's time budget ends: counted from the first slot, None before it."""
    return run.started_at + timedelta(seconds=run.plan.timeout_seconds) if run.started_at else None


def _ceiling_problems(tasks: Sequence[Task], sizing: Sizing, profile: SandboxProfile) -> Iterator[Problem]:
    """What a request and its tasks ask for above the profile's ceilings, worded as the guide to runs words it."""
    sizes = sizing.model_dump(exclude_none=True)
    for size, why in flag_problems(sizes, profile):
        yield Problem(f"execution.sandbox.{size}", why)
    for task in tasks:
        for why in task_problems(task.spec.config, sizes, profile):
            yield Problem(f"tasks without images: {task.name}", why)


def agent_problems(name: str) -> list[Problem]:
    """Why a run cannot use that agent; empty if it can. Also asked before a suite is published for the run."""
    if name in plans.NON_CALLING_AGENTS:
        return []
    if name in plans.HARBOR_AGENTS:
        return [
            Problem(
                f"agent '{name}'",
                "calls a model, and this version has no way yet to name the model and pass its key; "
                f"agents that work today: {', '.join(plans.NON_CALLING_AGENTS)}",
            )
        ]
    hint = nearest(name, (*plans.NON_CALLING_AGENTS, *plans.HARBOR_AGENTS))
    works = f"agents that work today: {', '.join(plans.NON_CALLING_AGENTS)}"
    return [
        Problem(
            f"agent '{name}'",
            f"is no built-in Harbor agent; {f'did you mean {", ".join(hint)}?' if hint else works}",
        )
    ]
