"""Which sandbox a run gets on this machine, and how Harbor is told of it."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harbor_assets.domain.errors import HarborAssetsError, Problem, Refused
from harbor_assets.domain.plans import PlannedTask, RunPlan, SandboxChoice
from harbor_assets.domain.profiles import SandboxProfile
from harbor_assets.domain.tasks import Task
from harbor_assets.engine.ports import ImageRegistry

if TYPE_CHECKING:
    from harbor.models.trial.config import EnvironmentConfig

    from harbor_assets.sandboxes.engines.cli import Engine

PROCESS_NOTE = (
    "It is for checking suites, not for containing an adversary; this machine stands in for each task's image, so its "
    "results are not comparable with results from images."
)
_ENGINE = "harbor_assets.sandboxes.engines.environment:EngineEnvironment"
ENVIRONMENTS = {
    "process": "harbor_assets.sandboxes.process.environment:ProcessEnvironment",
    "docker": _ENGINE,
    "podman": _ENGINE,
    "kubernetes": "harbor_assets.sandboxes.kubernetes.environment:KubernetesEnvironment",
}
NAMED = "named in the request"
FOUND_SECONDS = 30.0  # longer than a command takes to its run, short enough for who has just started an engine


class LocalSandboxes:
    """Implements the engine's `SandboxChooser` for one machine.

    `auto` takes an engine that answers and has, or can get, every image the tasks begin from; else `process`, which
    needs neither. `registries`: the engine's own way to find images, by kind, in the order they are tried.
    `base_images` says what tasks begin from.
    """

    def __init__(
        self,
        home: Path,
        *,
        engines: Sequence["Engine"],
        registries: Callable[["Engine"], ImageRegistry],
        base_images: Callable[[Sequence[Task]], Sequence[str]],
    ) -> None:
        self._home, self._engines, self._registries, self._base_images = home, engines, registries, base_images
        self._found: dict[tuple[str, ...], tuple[float, str | None]] = {}

    def choose(self, requested: str, tasks: Callable[[], Sequence[Task]]) -> SandboxChoice:
        """See `engine.ports.SandboxChooser`."""
        engines: Mapping[str, Engine] = {engine.kind: engine for engine in self._engines}
        if requested in engines:
            engine = engines[requested]
            if absence := self._once((engine.command, "named"), engine.absence):
                raise _unfit(requested, absence)
            return SandboxChoice.model_validate({"kind": requested, "why": NAMED})
        if requested == "process":
            return self._process(NAMED)
        if requested != "auto":
            raise _unfit(requested, "runs on a deployment; name its service with --base-url, or take process")
        absences: list[str] = []
        for engine in self._engines:
            why = self._absence(engine) or self._lack(engine, tasks())
            if why is None:
                text = f"auto: {engine.kind} answers and has every image the tasks begin from"
                return SandboxChoice(kind=engine.kind, why=text)
            absences.append(why)
        return self._process(f"auto: it needs no container engine and no image ({'; '.join(absences)})")

    def _lack(self, engine: "Engine", tasks: Sequence[Task]) -> str | None:
        """Why the engine cannot give these tasks their images; None if it can."""
        registry = self._registries(engine)

        def without(image: str) -> str | None:
            try:
                registry.resolve(image)
            except HarborAssetsError as error:
                return f"{engine.kind} cannot get {image}: {error}"
            return None

        lacks = (
            self._once((engine.command, image), lambda image=image: without(image))
            for image in self._base_images(tasks)
        )
        return next((lack for lack in lacks if lack), None)

    def _absence(self, engine: "Engine") -> str | None:
        if not engine.installed:
            return f"{engine.kind} is not installed"
        return self._once((engine.command,), engine.absence)

    def _once(self, key: tuple[str, ...], look: Callable[[], str | None]) -> str | None:
        """What was found a moment ago is not looked up again: a command asks for its images and for its run."""
        at, found = self._found.get(key, (-FOUND_SECONDS, None))
        if time.monotonic() - at >= FOUND_SECONDS:
            found = look()
            self._found[key] = time.monotonic(), found
        return found

    def _process(self, why: str) -> SandboxChoice:
        from harbor_assets.sandboxes.process.host import check, fingerprint

        found = check(self._home)
        if not found.ok:
            reason = f"{found.reason or 'cannot work here'} {found.next_step or ''}".strip()
            more = "" if why == NAMED else f" {why.partition('(')[2].rstrip(')')}"
            raise Refused("No sandbox can be used on this machine:", [Problem("sandbox 'process'", f"{reason}{more}")])
        return SandboxChoice(
            kind="process",
            why=why,
            fingerprint=fingerprint(),
            max_concurrent=1 if found.shared_network else None,
            notes=(PROCESS_NOTE, *found.notes),
        )


class ClusterSandboxes:
    """Implements the engine's `SandboxChooser` for a deployment: pods, from the task's own images."""

    def choose(self, requested: str, tasks: Callable[[], Sequence[Task]]) -> SandboxChoice:
        """See `engine.ports.SandboxChooser`."""
        del tasks
        if requested not in ("auto", "kubernetes"):
            raise _unfit(requested, "cannot be had on a deployment; take kubernetes, or leave the choice to auto")
        why = NAMED if requested == "kubernetes" else "auto: this deployment runs tasks as pods"
        return SandboxChoice(kind="kubernetes", why=why)


def _unfit(requested: str, why: str) -> Refused:
    return Refused("The sandbox cannot be used here:", [Problem(f"sandbox '{requested}'", why)])


def process_environment(plan: RunPlan, *, home: Path) -> "EnvironmentConfig":
    """Harbor's environment settings for trials on this machine.

    Sizing goes to our own class: Harbor's override would hit a separate verifier's sandbox too.
    """
    return _environment(plan, home=str(home))


def engine_environment(plan: RunPlan, task: PlannedTask, *, home: Path) -> "EnvironmentConfig":
    """Harbor's environment settings for a task's containers on this machine."""
    return _environment(
        plan,
        engine=plan.sandbox.kind,
        home=str(home),
        run_id=plan.run_id,
        images=task.images,
        image_config={role: config.model_dump(mode="json") for role, config in task.image_config.items()},
        deadline_seconds=float(plan.timeout_seconds),
    )


def kubernetes_environment(
    plan: RunPlan, task: PlannedTask, *, namespace: str, owner: dict[str, str] | None, worker_pod: str | None = None
) -> "EnvironmentConfig":
    """Harbor's environment settings for a task's pods. `owner`: the Job that takes them with it; `worker_pod`: the pod
    that this process is in."""
    profile = plan.profile or SandboxProfile(name="default")
    return _environment(
        plan,
        namespace=namespace,
        run_id=plan.run_id,
        task_index=task.index,
        images=task.images,
        image_config={role: config.model_dump(mode="json") for role, config in task.image_config.items()},
        profile=profile.model_dump(mode="json"),
        owner=owner,
        worker_pod=worker_pod,
        deadline_seconds=float(plan.timeout_seconds),
        keep_seconds=plan.keep_seconds or 0,
    )


def _environment(plan: RunPlan, **kwargs: object) -> "EnvironmentConfig":
    from harbor.models.trial.config import EnvironmentConfig

    sizing = plan.sizing.model_dump(exclude_none=True)
    return EnvironmentConfig(import_path=ENVIRONMENTS[plan.sandbox.kind], kwargs={**kwargs, "sizing": sizing})
