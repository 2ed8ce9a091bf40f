"""Which sandbox a run gets on this machine, and how Harbor is told of it."""

from pathlib import Path
from typing import TYPE_CHECKING

from harbor_assets.domain.errors import Problem, Refused
from harbor_assets.domain.plans import PlannedTask, RunPlan, SandboxChoice
from harbor_assets.domain.profiles import SandboxProfile

if TYPE_CHECKING:
    from harbor.models.trial.config import EnvironmentConfig

PROCESS_NOTE = (
    "It is for checking suites, not for containing an adversary; this machine stands in for each task's image, so its "
    "results are not comparable with results from images."
)
ENVIRONMENTS = {
    "process": "harbor_assets.sandboxes.process.environment:ProcessEnvironment",
    "kubernetes": "harbor_assets.sandboxes.kubernetes.environment:KubernetesEnvironment",
}


class LocalSandboxes:
    """Implements the engine's `SandboxChooser` for one machine. `auto` takes `process`, the one that needs nothing."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def choose(self, requested: str) -> SandboxChoice:
        """See `engine.ports.SandboxChooser`."""
        if requested not in ("auto", "process"):
            raise _unfit(requested, "runs on a deployment; name its service with --base-url, or take process")
        from harbor_assets.sandboxes.process.host import check, fingerprint

        found = check(self._home)
        if not found.ok:
            problem = Problem(
                "sandbox 'process'", f"{found.reason or 'cannot work here'} {found.next_step or ''}".strip()
            )
            raise Refused("No sandbox can be used on this machine:", [problem])
        why = "named in the request" if requested == "process" else "auto: it needs no container engine and no image"
        return SandboxChoice(
            kind="process",
            why=why,
            fingerprint=fingerprint(),
            max_concurrent=1 if found.shared_network else None,
            notes=(PROCESS_NOTE, *found.notes),
        )


class ClusterSandboxes:
    """Implements the engine's `SandboxChooser` for a deployment: pods, from the task's own images."""

    def choose(self, requested: str) -> SandboxChoice:
        """See `engine.ports.SandboxChooser`."""
        if requested not in ("auto", "kubernetes"):
            raise _unfit(requested, "cannot be had on a deployment; take kubernetes, or leave the choice to auto")
        why = "named in the request" if requested == "kubernetes" else "auto: this deployment runs tasks as pods"
        return SandboxChoice(kind="kubernetes", why=why)


def _unfit(requested: str, why: str) -> Refused:
    return Refused("The sandbox cannot be used here:", [Problem(f"sandbox '{requested}'", why)])


def process_environment(plan: RunPlan, *, home: Path) -> "EnvironmentConfig":
    """Harbor's environment settings for trials on this machine.

    Sizing goes to our own class: Harbor's override would hit a separate verifier's sandbox too.
    """
    return _environment(plan, home=str(home))


def kubernetes_environment(
    plan: RunPlan, task: PlannedTask, *, namespace: str, owner: dict[str, str] | None
) -> "EnvironmentConfig":
    """Harbor's environment settings for a task's pods. `owner`: the Job that takes them with it."""
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
        deadline_seconds=float(plan.timeout_seconds),
    )


def _environment(plan: RunPlan, **kwargs: object) -> "EnvironmentConfig":
    from harbor.models.trial.config import EnvironmentConfig

    sizing = plan.sizing.model_dump(exclude_none=True)
    return EnvironmentConfig(import_path=ENVIRONMENTS[plan.sandbox.kind], kwargs={**kwargs, "sizing": sizing})
