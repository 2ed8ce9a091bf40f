"""From a request to a frozen plan: everything is validated here, before a run is accepted."""

import secrets
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from harbor_assets.domain import plans
from harbor_assets.domain.credentials import reference
from harbor_assets.domain.errors import Problem, Refused
from harbor_assets.domain.images import TaskImages
from harbor_assets.domain.names import Ref
from harbor_assets.domain.obstacles import image_obstacle, lacks_solution, obstacles
from harbor_assets.domain.placement import placed, placement_problems
from harbor_assets.domain.plans import AgentSpec, PlannedTask, RunPlan, SandboxChoice, SandboxKind, Sizing
from harbor_assets.domain.preflight import RunCheck, RunChecked
from harbor_assets.domain.profiles import SandboxProfile, flag_problems, stretched_problem, task_problems
from harbor_assets.domain.publication import Intake, Publication
from harbor_assets.domain.requests import Execution, RunRequest, SandboxRequest, Target, Wanted, unsupported
from harbor_assets.domain.retries import INFRA_RETRIES
from harbor_assets.domain.selection import select_members
from harbor_assets.domain.tasks import Task, Taskset, not_harbor
from harbor_assets.engine.ports import Images, Profiles, SandboxChooser, TaskCatalog

ImagesOf = Callable[[SandboxKind], Images | None]


@dataclass(frozen=True, slots=True)
class Deployment:
    """What this installation decides for every run: defaults, ceilings and versions.

    `variables` are the names that a `${NAME}` in a task.toml or a request may use: those of the environment trials run
    in. `variables_setting`: the setting in which an admin lists them, if there is one.
    """

    owner: str
    n_concurrent: int
    timeout_seconds: int
    harbor_version: str
    version: str
    variables: Container[str] = frozenset()
    variables_setting: str = ""
    infra_retries: int = INFRA_RETRIES


class Destinations(Protocol):
    """Where runs may be published: the Experiments and Evaluations of workspaces."""

    def problems(self, workspace: str, intake: Intake) -> Sequence[Problem]:
        """What keeps a run from being published there: nothing of that name, most of all."""
        ...

    def of(self, workspace: str, intake: Intake, taskset: Taskset, *, agent: str, run_id: str) -> Publication:
        """What the plan says of it. Raises `Refused` if there are problems."""
        ...


class RunPlanner:
    """Makes plans of requests. Stores nothing, starts nothing.

    `profiles` are those of a deployment; None where sandboxes have none (a laptop). `images_of`: the images for one
    kind of sandbox; None for one that needs none. `destinations`: None where nothing can be published.
    """

    def __init__(
        self,
        *,
        tasks: TaskCatalog,
        sandboxes: SandboxChooser,
        deployment: Deployment,
        profiles: Profiles | None,
        images_of: ImagesOf,
        clock: Callable[[], datetime],
        destinations: Destinations | None = None,
    ) -> None:
        self._destinations = destinations
        self._tasks, self._sandboxes, self._deployment = tasks, sandboxes, deployment
        self._profiles, self._images_of, self._clock = profiles, images_of, clock

    def plan(self, workspace: str, request: RunRequest, *, owner: str | None = None) -> RunPlan:
        """Validate the whole request and freeze it, as `owner`'s (None: the deployment's).

        Raises `Refused` with every problem at once, `NotFound` for an unknown taskset.
        """
        target, execution = request.spec.target, request.execution
        problems = self._request_problems(workspace, request.spec, request.timeout_seconds)
        times = self._times(target, request.timeout_seconds)
        ref = Ref.parse(request.spec.tasks.taskset, workspace=workspace)
        taskset = self._tasks.get_taskset(ref.workspace, ref.name, ref.fragment)
        members = self._tasks.get_pinned_tasks(taskset.tasks)
        by_name = sorted(members, key=lambda task: task.name)
        if others := not_harbor(by_name):
            raise Refused("The run was not accepted:", [*problems, *others])
        try:
            chosen = select_members([(t.name, t.harbor.native_task_id) for t in by_name], request.spec.tasks.select)
        except Refused as refused:
            problems += refused.problems or [Problem("tasks", refused.message)]
            chosen = []
        if not by_name:
            problems.append(Problem(str(taskset.ref), "the taskset is empty: there is nothing to run"))
        tasks = [by_name[i] for i in chosen]
        where = self._where(execution, problems, lambda: tasks)
        images = self._resolve_images(tasks, where.sandbox.kind if where.sandbox else None, taskset.ref, problems)
        configs = [(task.name, task.harbor.config) for task in tasks]
        problems += self._task_problems(configs, target.source.name, where, times)
        if problems:
            raise Refused("The run was not accepted:", problems)
        assert where.sandbox  # it is a problem if there is none
        run_id = f"run-{secrets.token_hex(8)}"
        sandbox, sizing, profile = _noted(where.sandbox, run_id, execution), where.sizing, where.profile
        agent = AgentSpec(name=target.source.name, kwargs=target.agent_kwargs, env=target.env_vars)
        concurrency = execution.max_concurrent_task_jobs or self._deployment.n_concurrent
        return RunPlan(
            run_id=run_id,
            rerun_of=request.rerun_of,
            regrade_of=request.regrade_of,
            workspace=workspace,
            owner=owner or self._deployment.owner,
            created_at=self._clock(),
            taskset_ref=taskset.ref,
            tasks=tuple(
                self._planned(i, by_name[i], found, agent, sizing, sandbox, profile, target.reward_key, times)
                for i, found in zip(chosen, images, strict=True)
            ),
            agent=agent,
            sandbox=sandbox,
            profile=profile,
            sizing=sizing,
            n_attempts=target.n_attempts,
            max_retries=target.max_retries,
            infra_retries=self._deployment.infra_retries
            if execution.infra_retries is None
            else execution.infra_retries,
            n_concurrent=min(concurrency, sandbox.max_concurrent or concurrency),
            timeout_seconds=times.run_seconds,
            reward_key=target.reward_key,
            min_coverage=request.min_coverage,
            keep_seconds=execution.sandbox.keep_seconds,
            agent_timeout_multiplier=None if times.multiplier == 1 else times.multiplier,
            harbor_version=self._deployment.harbor_version,
            harbor_assets_version=self._deployment.version,
            skipped=tuple(request.skipped),
            publication=self._publication(workspace, request.spec, taskset, run_id),
        )

    def _publication(self, workspace: str, spec: Wanted, taskset: Taskset, run_id: str) -> Publication | None:
        if spec.publication is None:
            return None
        assert self._destinations is not None  # it is a problem if there are none
        agent = spec.target.source.name
        return self._destinations.of(workspace, spec.publication.intake, taskset, agent=agent, run_id=run_id)

    def check(self, workspace: str, asked: RunCheck) -> RunChecked:
        """Judge a request and tasks that are not stored yet, by the rules of `plan`. Raises `Refused` as it does."""
        problems = self._request_problems(workspace, asked.spec, asked.timeout_seconds)
        agent = asked.spec.target.source.name
        times = self._times(asked.spec.target, asked.timeout_seconds)
        where = self._where(asked.execution, problems, lambda: ())  # not stored yet: their images are not looked for
        for task in asked.tasks:
            if where.sandbox and (why := image_obstacle(task.config, _among(task.files), sandbox=where.sandbox.kind)):
                problems.append(Problem(f"tasks without images: {task.name}", f"image_impossible: {why}"))
        problems += self._task_problems([(task.name, task.config) for task in asked.tasks], agent, where, times)
        if problems:
            raise Refused("The run was not accepted:", problems)
        lacking = (t.name for t in asked.tasks if lacks_solution(t.config, _among(t.files), agent=agent))
        return RunChecked(without_solution=tuple(lacking))

    def _where(self, execution: Execution, problems: list[Problem], tasks: Callable[[], Sequence[Task]]) -> "_Where":
        """What the tasks would run in; what is wrong with the wishes is added to `problems`."""
        sandbox = None
        try:
            sandbox = self._sandboxes.choose(execution.sandbox.kind, tasks)
        except Refused as refused:
            problems += refused.problems or [Problem(f"sandbox '{execution.sandbox.kind}'", refused.message)]
        sizing = Sizing(
            cpus=execution.sandbox.cpus,
            memory_mb=execution.sandbox.memory_mb,
            storage_mb=execution.sandbox.storage_mb,
        )
        profile = self._profile(execution.sandbox.profile, problems)
        return _Where(sandbox, sizing, self._placed(profile, execution.sandbox, problems))

    def _placed(
        self, profile: SandboxProfile | None, asked: SandboxRequest, problems: list[Problem]
    ) -> SandboxProfile | None:
        """The profile with the nodes that were asked for; what it does not allow is added to `problems`."""
        if profile is None:
            if self._profiles is None and (asked.node_selector or asked.tolerations):
                why = "there are no nodes to choose from: sandboxes are on this machine; leave it out"
                problems.append(Problem("execution.sandbox.node_selector, tolerations", why))
            if self._profiles is None and asked.keep_seconds:
                why = (
                    "sandboxes on this machine end with their trial; leave it out. What a trial left is in its folder: "
                    "harbor-assets runs download"
                )
                problems.append(Problem("execution.sandbox.keep_seconds", why))
            return None
        found = placement_problems(asked.node_selector, asked.tolerations, profile)
        problems += (Problem(f"execution.sandbox.{name}", why) for name, why in found)
        if (asked.keep_seconds or 0) > profile.max_keep_seconds:
            most = f"max_keep_seconds = {profile.max_keep_seconds} of sandbox profile '{profile.name}'"
            problems.append(Problem("execution.sandbox.keep_seconds", f"{asked.keep_seconds} is above {most}"))
        return placed(profile, asked.node_selector, asked.tolerations)

    def _times(self, target: Target, timeout_seconds: int | None) -> "_Times":
        return _Times(timeout_seconds or self._deployment.timeout_seconds, target.agent_timeout_multiplier or 1.0)

    def _request_problems(self, workspace: str, wanted: Wanted, timeout_seconds: int | None) -> list[Problem]:
        """What is wrong with a request whatever its tasks are."""
        problems = unsupported(wanted)
        if wanted.publication and self._destinations:
            problems += self._destinations.problems(workspace, wanted.publication.intake)
        elif wanted.publication:
            problems.append(Problem("spec.publication", "there are no Experiments here to publish to; take it out"))
        if (timeout_seconds or 0) > plans.RUN_TIMEOUT_MAX_SECONDS:
            most = f"{plans.RUN_TIMEOUT_MAX_SECONDS} s ({plans.RUN_TIMEOUT_MAX_SECONDS // 3600} h)"
            problems.append(Problem("timeout_seconds", f"{timeout_seconds} s is above {most}, the most a run may take"))
        for name, value in wanted.target.env_vars.items():
            if (asked := reference(value)) and asked not in self._deployment.variables:
                how = f"{asked} is not set where trials run; set it there"
                if self._deployment.variables_setting:
                    how += f", and name it in {self._deployment.variables_setting}"
                problems.append(Problem("spec.target.env_vars", f"{name} = '{value}': {how}"))
        return problems

    def _task_problems(
        self, tasks: Sequence[tuple[str, Mapping[str, Any]]], agent: str, where: "_Where", times: "_Times"
    ) -> Iterator[Problem]:
        """What keeps tasks, given as (name, task.toml), from ever running."""
        if where.profile:
            yield from _ceiling_problems(tasks, where.sizing, where.profile, times.multiplier)
        if times.multiplier > 1:
            for name, config in tasks:
                if why := stretched_problem(config, times.multiplier, times.run_seconds):
                    yield Problem(name, why)
        if where.sandbox:
            for name, config in tasks:
                found = obstacles(config, sandbox=where.sandbox.kind, agent=agent, variables=self._deployment.variables)
                for rule, why in found:
                    yield Problem(name, f"{rule}: {why}")

    def _profile(self, name: str | None, problems: list[Problem]) -> SandboxProfile | None:
        """The run's profile; what is wrong with the name is added to `problems`."""
        if self._profiles is None:
            if name is not None:
                where = "is not known here: sandboxes on this machine have no profiles; leave the profile out"
                problems.append(Problem(f"sandbox profile '{name}'", where))
            return None
        try:
            return self._profiles.get(name)
        except Refused as refused:
            problems += refused.problems or [Problem("sandbox profile", refused.message)]
            return None

    def _resolve_images(
        self, tasks: Sequence[Task], kind: SandboxKind | None, ref: str, problems: list[Problem]
    ) -> Sequence[TaskImages]:
        """What is known of the tasks' images; those never built are added to `problems`."""
        images = self._images_of(kind) if kind else None
        if images is None:
            return [TaskImages({}, {}, None, ())] * len(tasks)
        found = images.resolve(tasks)
        pairs = zip(tasks, found, strict=True)
        without = [task.name for task, of in pairs if of.missing and not of.problem]
        which = "" if kind == "kubernetes" else f" --sandbox {kind}"
        how = f"its image was never built; first run: harbor-assets tasksets build-images '{ref}'{which} --wait"
        problems += [Problem(f"tasks without images: {name}", f"image_not_built: {how}") for name in without]
        problems += [
            Problem(f"tasks without images: {task.name}", f"image_impossible: {images.impossible}")
            for task, images in zip(tasks, found, strict=True)
            if images.impossible
        ]
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
        times: "_Times",
    ) -> PlannedTask:
        return PlannedTask(
            index=index,
            name=task.name,
            native_task_id=task.harbor.native_task_id,
            ref=task.ref,
            fileset_ref=task.harbor.source.fileset_ref,
            files_hash=task.harbor.source.files_hash,
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
                multipliers={} if times.multiplier == 1 else {"agent_timeout": times.multiplier},
                reward_key=reward_key,
                sandbox=sandbox,
            ),
        )


class _Where(NamedTuple):
    """What the tasks of a run would run in. None: there is none, and the problem is known."""

    sandbox: SandboxChoice | None
    sizing: Sizing
    profile: SandboxProfile | None


class _Times(NamedTuple):
    """The run's time in seconds from its first slot, and by what each task's time for its agent is multiplied."""

    run_seconds: int
    multiplier: float


def _noted(sandbox: SandboxChoice, run_id: str, execution: Execution) -> SandboxChoice:
    if execution.sandbox.keep_seconds is None:
        return sandbox
    note = (
        f"each sandbox stays for {execution.sandbox.keep_seconds} s after its trial, and holds its place on a node: "
        f"kubectl get pods -l harbor/run-id={run_id},app.kubernetes.io/component=sandbox"
    )
    return sandbox.model_copy(update={"notes": (*sandbox.notes, note)})


def _among(files: Sequence[str]) -> Callable[[str], bool]:
    return lambda path: path in files


def _ceiling_problems(
    tasks: Sequence[tuple[str, Mapping[str, Any]]], sizing: Sizing, profile: SandboxProfile, multiplier: float
) -> Iterator[Problem]:
    """What a request and its tasks ask for above the profile's ceilings, worded as the guide to runs words it."""
    sizes = sizing.model_dump(exclude_none=True)
    for size, why in flag_problems(sizes, profile):
        yield Problem(f"execution.sandbox.{size}", why)
    for name, config in tasks:
        for why in task_problems(config, sizes, profile, multiplier):
            yield Problem(f"tasks without images: {name}", why)
