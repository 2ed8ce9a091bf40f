"""What a client asks for when it submits a run: the request file's shape, as far as it works today.

Unknown members are refused by name; members that do not work yet are refused by name too, by `engine/planning.py`.
"""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from harbor_assets.domain.digests import digest_of
from harbor_assets.domain.plans import SkippedTask
from harbor_assets.domain.tasks import Body


class AgentSource(Body):
    """A built-in Harbor agent by name."""

    name: str = Field(default="oracle", min_length=1, max_length=128)


class Target(Body):
    """Who attempts the tasks, and how often."""

    kind: Literal["harbor"] = "harbor"
    source: AgentSource = AgentSource()
    agent_kwargs: dict[str, JsonValue] = {}
    n_attempts: int = Field(default=1, ge=1, le=1000)
    reward_key: str = Field(default="reward", min_length=1, max_length=255)


class TaskSelection(Body):
    """A stored taskset, and which of its tasks: exact or unique short names, or zero-based indexes; None: all."""

    taskset: str
    select: list[str] | None = None


class Spec(Body):
    target: Target = Target()
    tasks: TaskSelection


class SandboxRequest(Body):
    """Which sandbox, under which of the deployment's profiles (None: its default), and what replaces task.toml's sizing
    for the agent's. Cores and megabytes."""

    kind: Literal["auto", "process", "kubernetes"] = "auto"
    profile: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    cpus: Annotated[float, Field(gt=0, le=1024)] | None = None
    memory_mb: Annotated[int, Field(gt=0, le=16 * 1024 * 1024)] | None = None
    storage_mb: Annotated[int, Field(gt=0, le=1024 * 1024 * 1024)] | None = None


class Execution(Body):
    sandbox: SandboxRequest = SandboxRequest()
    max_concurrent_task_jobs: int | None = Field(default=None, ge=1, le=1000)


class RunRequest(Body):
    """The body of `POST .../agent-evaluate/runs`. `skipped` records what `--skip-invalid` left out of the suite."""

    spec: Spec
    execution: Execution = Execution()
    timeout_seconds: int | None = Field(default=None, ge=1)
    skipped: list[SkippedTask] = []

    def digest(self) -> str:
        """What an idempotency key is bound to: any change of the request changes it."""
        return digest_of(self.model_dump(mode="json"))
