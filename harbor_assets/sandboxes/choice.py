"""Which sandbox a run gets on this machine, and how Harbor is told of it."""

from pathlib import Path
from typing import TYPE_CHECKING

from harbor_assets.domain.errors import Problem, Refused
from harbor_assets.domain.plans import RunPlan, SandboxChoice

if TYPE_CHECKING:
    from harbor.models.trial.config import EnvironmentConfig

PROCESS_NOTE = (
    "It is for checking suites, not for containing an adversary; this machine stands in for each task's image, so its "
    "results are not comparable with results from images."
)
ENVIRONMENTS = {"process": "harbor_assets.sandboxes.process.environment:ProcessEnvironment"}


class LocalSandboxes:
    """Implements the engine's `SandboxChooser` for one machine. `auto` takes `process`, the one that needs nothing."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def choose(self, requested: str) -> SandboxChoice:
        """See `engine.ports.SandboxChooser`."""
        from harbor_assets.sandboxes.process.host import check, fingerprint

        found = check(self._home)
        if not found.ok:
            problem = Problem(
                "sandbox 'process'", f"{found.reason or 'cannot work here'} {found.next_step or ''}".strip()
            )
            raise Refused("No sandbox can be used on this machine:", [problem])
        why = "you asked for it" if requested == "process" else "auto: it needs no container engine and no image"
        return SandboxChoice(
            kind="process",
            why=why,
            fingerprint=fingerprint(),
            max_concurrent=1 if found.shared_network else None,
            notes=(PROCESS_NOTE, *found.notes),
        )


def harbor_environment(plan: RunPlan, *, home: Path) -> "EnvironmentConfig":
    """Harbor's environment settings for a plan's sandbox.

    Sizing goes to our own class: Harbor's override would hit a separate verifier's sandbox too.
    """
    from harbor.models.trial.config import EnvironmentConfig

    return EnvironmentConfig(
        import_path=ENVIRONMENTS[plan.sandbox.kind],
        kwargs={"home": str(home), "sizing": plan.sizing.model_dump(exclude_none=True)},
    )
