"""The frozen plan of a run: everything that decides its numbers, fixed when the run is accepted."""

from datetime import datetime
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from harbor_assets.domain.digests import digest_of
from harbor_assets.domain.marks import Mark
from harbor_assets.domain.outcomes import Frozen
from harbor_assets.domain.profiles import SandboxProfile
from harbor_assets.domain.publication import Publication
from harbor_assets.domain.retries import RETRIES_MAX
from harbor_assets.domain.tasks import Hex64

# Harbor's own list of agents without a model connection is longer: the others call models through their own accounts.
ORACLE = "oracle"  # applies a task's own solution
NOP = "nop"  # does nothing
NON_CALLING_AGENTS = (ORACLE, NOP)
# Harbor 0.26's built-in names that call a model; a test keeps the two lists equal to Harbor's.
HARBOR_AGENTS = tuple(
    """acp claude-code cline-cli cortex-code terminus terminus-1 terminus-2 aider codex cursor-cli gemini-cli
    antigravity-cli rovodev-cli goose grok-build hermes junie mini-swe-agent nemo-agent swe-agent opencode openclaw
    openhands openhands-sdk antigravity-sdk kimi-code kimi-cli langgraph deerflow mimo mcode pi qwen-coder copilot-cli
    code-puppy devin trae-agent computer-1 eve fx fx-dev dspy-rlm vibe muse-code strands fabric opencode-v2""".split()
)
DEFAULT_CONCURRENCY = 4  # Harbor's own default for trials at once
RUN_ID = r"^run-[0-9a-f]{16}$"
RUN_TIMEOUT_SECONDS = 24 * 3600  # a run's time budget, from its first slot
RUN_TIMEOUT_MAX_SECONDS = 72 * 3600

SandboxKind = Literal["process", "docker", "podman", "kubernetes"]
ENGINES: tuple[SandboxKind, ...] = ("docker", "podman")
SandboxWord = Literal["auto", "process", "docker", "podman", "kubernetes"]  # as a request names one

MinCoverage = Annotated[float, Field(gt=0, le=1)]  # of a run's planned trials, the share that must be scored


class Sizing(Frozen):
    """What replaces task.toml's values for the agent's sandbox; None keeps the task's own. Cores and megabytes."""

    cpus: Annotated[float, Field(gt=0, le=1024)] | None = None
    memory_mb: Annotated[int, Field(gt=0, le=16 * 1024 * 1024)] | None = None
    storage_mb: Annotated[int, Field(gt=0, le=1024 * 1024 * 1024)] | None = None


class AgentSpec(Frozen):
    """A built-in Harbor agent, by name. `env`: its variables; `${NAME}` is what NAME holds where trials run.

    What was added after runs were stored is left out where it is empty: trial keys of before are to stay equal.
    """

    name: str = Field(min_length=1, max_length=128)
    version: str | None = None
    kwargs: dict[str, JsonValue] = {}
    env: dict[str, str] = Field(default={}, exclude_if=lambda env: not env)


class SandboxChoice(Frozen):
    """Which sandbox the run uses, and why that one (`auto` prints its choice).

    `fingerprint` stands in for the image where the sandbox has none: what machine the tasks ran on.
    """

    kind: SandboxKind
    why: str
    fingerprint: str | None = None
    max_concurrent: int | None = None  # what the sandbox itself allows at once; None: no limit of its own
    notes: tuple[str, ...] = ()


class SkippedTask(Frozen):
    """A child of the suite that was left out because the user said so (`--skip-invalid`)."""

    name: str
    file: str
    reason: str


class ImageConfig(Frozen):
    """What an image says of how its processes run; None where it says nothing."""

    user: str | None = None
    workdir: str | None = None
    env: dict[str, str] = {}


class ImageProblem(Frozen):
    """Why a task has no image to run: it was not built, or could not be found. The task's trials end with it."""

    reason: Literal["image_build", "image_pull"]
    message: str


class PlannedTask(Frozen):
    """One task of the run, pinned. `index` is its position, by stored name, in the run's taskset."""

    index: int = Field(ge=0)
    name: str
    native_task_id: str
    ref: str
    fileset_ref: str
    files_hash: Hex64
    images: dict[str, str] = {}  # role (agent, verifier) -> repository@digest; empty where the sandbox needs none
    image_config: dict[str, ImageConfig] = {}
    image_problem: ImageProblem | None = None
    trial_key: Hex64


class RunPlan(Frozen):
    """The plan of a run. Never changes after the run was accepted."""

    plan_version: Literal[1] = 1
    run_id: str = Field(pattern=RUN_ID)
    rerun_of: str | None = Field(default=None, pattern=RUN_ID)  # the ended run whose tasks these are, run again
    # The ended run whose kept work this one verifies again, without an agent.
    regrade_of: str | None = Field(default=None, pattern=RUN_ID, exclude_if=lambda run: run is None)
    workspace: str
    owner: str
    created_at: datetime
    taskset_ref: str
    tasks: tuple[PlannedTask, ...] = Field(min_length=1)
    agent: AgentSpec
    sandbox: SandboxChoice
    profile: SandboxProfile | None = None
    sizing: Sizing = Sizing()
    n_attempts: int = Field(default=1, ge=1, le=1000)
    max_retries: int = Field(default=0, ge=0, le=RETRIES_MAX)  # of a trial that errs (`domain/retries.py`)
    infra_retries: int = Field(default=0, ge=0, le=RETRIES_MAX)  # of one lost with its sandbox; 0 in plans of before
    n_concurrent: int = Field(default=DEFAULT_CONCURRENCY, ge=1, le=1000)
    timeout_seconds: int = Field(default=RUN_TIMEOUT_SECONDS, ge=1, le=RUN_TIMEOUT_MAX_SECONDS)
    reward_key: str = "reward"
    min_coverage: MinCoverage | None = None  # None: no share is asked for, and one below 1 is a warning
    keep_seconds: int | None = None  # how long a sandbox stays after its trial, to be looked at; None: not at all
    agent_timeout_multiplier: float | None = None  # of each task's [agent] timeout_sec; None: as it is
    harbor_version: str
    harbor_assets_version: str
    skipped: tuple[SkippedTask, ...] = ()
    publication: Publication | None = Field(default=None, exclude_if=lambda value: value is None)
    # What warned of its tasks when it was accepted; a report must not change with what is found later.
    marks: tuple[Mark, ...] = Field(default=(), exclude_if=lambda marks: not marks)

    @cached_property
    def _by_index(self) -> dict[int, PlannedTask]:
        return {task.index: task for task in self.tasks}

    def task(self, index: int) -> PlannedTask:
        """The task with that index. Raises KeyError; indexes need not be contiguous."""
        return self._by_index[index]


def trial_id(task: PlannedTask, k: int) -> str:
    """A trial's id: unique across its run and stable for (task, k). Safe as a folder name of at most 64 bytes."""
    slug = (
        "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in task.name)[:40].strip("-") or "task"
    )
    return f"{slug}__{task.index:05d}-{k}"


def job_name(run_id: str, index: int) -> str:
    """The name of a task's Job, and of its folder under the bundle's `evidence/harbor`."""
    return f"{run_id}-task-{index}"


def trial_key(
    *,
    task_digest: str,
    images: dict[str, str],
    agent: AgentSpec,
    model: dict[str, JsonValue] | None,
    harbor_version: str,
    sizing: Sizing,
    network: dict[str, JsonValue],
    multipliers: dict[str, float],
    reward_key: str,
    sandbox: SandboxChoice,
) -> str:
    """The digest of everything that decides a trial's reward: two trials are comparable only if theirs are equal."""
    return digest_of(
        {
            "task": task_digest,
            "images": images,
            "agent": agent.model_dump(mode="json"),
            "model": model,
            "harbor_version": harbor_version,
            "sizing": sizing.model_dump(mode="json"),
            "network": network,
            "multipliers": multipliers,
            "reward_key": reward_key,
            "sandbox": {"kind": sandbox.kind, "fingerprint": sandbox.fingerprint},
        }
    )
