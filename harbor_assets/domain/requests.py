"""What a client asks for when it submits a run: the body of a submit, to which the request file of `--spec-file` and
the flags of the command line come too.

Unknown members are refused by name. Members that are understood but do not work yet are refused by name too, by
`unsupported`: a run must never look as if it did what it did not.
"""

import json
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import Field, JsonValue, field_validator, model_validator

from harbor_assets.domain import credentials
from harbor_assets.domain.digests import digest_of
from harbor_assets.domain.errors import IdempotencyConflict, Problem, Refused
from harbor_assets.domain.names import nearest
from harbor_assets.domain.placement import (
    PLACEMENTS_MAX,
    LabelKey,
    LabelValue,
    Toleration,
    label_problem,
)
from harbor_assets.domain.plans import HARBOR_AGENTS, NON_CALLING_AGENTS, RUN_ID, MinCoverage, SandboxWord, SkippedTask
from harbor_assets.domain.publication import PublicationRequest
from harbor_assets.domain.retries import RETRIES_MAX
from harbor_assets.domain.tasks import Body

ATTEMPTS_MAX = 1000
KEY_MAX = 255  # characters of an idempotency key
CHANGES_SHOWN = 10  # paths in a message; more say no more than "nearly everything"
VARIABLES_MAX = 100
KEEP_MAX_SECONDS = 24 * 3600
VALUE_MAX = 32_768  # characters of one variable
MULTIPLIER_MAX = 100.0  # an agent of a minute gets 100; what the run's own time allows is asked of each task
# Values that may hold what should have been a secret.
VALUES_UNSEEN = ("spec.target.agent_kwargs", "spec.target.env_secrets", "spec.target.env_vars")

VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]{0,254}$")
Variable = Annotated[str, Field(pattern=VARIABLE.pattern)]


class ModelRef(Body):
    """A model by the name the gateway knows it by: `workspace/name`."""

    ref: str = Field(pattern=r"^[\w\-.]+(/[\w\-.]+)?$", max_length=511)


class AgentSource(Body):
    """A built-in Harbor agent by name, and the model it calls if it calls one."""

    name: str = Field(default="oracle", min_length=1, max_length=128)
    model: ModelRef | None = None


class Target(Body):
    """Who attempts the tasks, how often, and under which name its reward is read.

    `env_vars` are variables of the agent: a text, or `${NAME}` for what NAME holds where trials run. `env_secrets` maps
    one to the NAME of a secret. `max_retries`: how often a trial that errs is tried again. `agent_timeout_multiplier`
    stretches the time that each task gives its agent.
    """

    kind: Literal["harbor"] = "harbor"
    source: AgentSource = AgentSource()
    agent_kwargs: dict[str, JsonValue] = {}
    env_secrets: dict[Variable, str] = {}
    env_vars: dict[Variable, Annotated[str, Field(max_length=VALUE_MAX)]] = Field(default={}, max_length=VARIABLES_MAX)
    n_attempts: int = Field(default=1, ge=1, le=ATTEMPTS_MAX)
    max_retries: int = Field(default=0, ge=0, le=RETRIES_MAX)
    reward_key: str = Field(default="reward", min_length=1, max_length=255)
    agent_timeout_multiplier: Annotated[float, Field(gt=0, le=MULTIPLIER_MAX)] | None = None

    @field_validator("agent_kwargs")
    @classmethod
    def _no_plaintext(cls, arguments: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if found := [f"{at} {why}" for at, why in credentials.plaintext(arguments)]:
            raise ValueError("; ".join(found))
        return arguments

    @field_validator("env_secrets")
    @classmethod
    def _names_only(cls, secrets: dict[str, str]) -> dict[str, str]:
        for variable, name in secrets.items():
            if not _is_name(name) or credentials.looks_like_key(name):
                raise ValueError(f"{variable} must be the name of a secret (letters, digits, '-_.'), not its value")
        return secrets

    @field_validator("env_vars")
    @classmethod
    def _no_secrets(cls, variables: dict[str, str]) -> dict[str, str]:
        found = ((name, credentials.variable_problem(name, value)) for name, value in variables.items())
        if problems := [f"{name} {why}" for name, why in found if why]:
            raise ValueError("; ".join(problems))
        return variables

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        if twice := sorted(self.env_vars.keys() & self.env_secrets.keys()):
            raise ValueError(f"{', '.join(twice)}: in env_vars and in env_secrets; keep one")
        return self


class TaskSelection(Body):
    """A stored taskset, and which of its tasks: exact or unique short names, or zero-based indexes; None: all."""

    taskset: str
    select: list[str] | None = None


class Wanted(Body):
    """The part of a request that does not say which tasks."""

    target: Target = Target()
    publication: PublicationRequest | None = None


class Spec(Wanted):
    tasks: TaskSelection


class SandboxRequest(Body):
    """Which sandbox, under which of the deployment's profiles (None: its default), and what replaces task.toml's sizing
    for the agent's. Cores and megabytes. `node_selector` and `tolerations`: on which nodes the sandboxes may lie, as
    far as the profile leaves that open. `keep_seconds`: how long each stays after its trial, to be looked at."""

    kind: SandboxWord = "auto"
    profile: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    cpus: Annotated[float, Field(gt=0, le=1024)] | None = None
    memory_mb: Annotated[int, Field(gt=0, le=16 * 1024 * 1024)] | None = None
    storage_mb: Annotated[int, Field(gt=0, le=1024 * 1024 * 1024)] | None = None
    node_selector: dict[LabelKey, LabelValue] = Field(default={}, max_length=PLACEMENTS_MAX)
    tolerations: list[Toleration] = Field(default=[], max_length=PLACEMENTS_MAX)
    keep_seconds: Annotated[int, Field(ge=1, le=KEEP_MAX_SECONDS)] | None = None

    @field_validator("node_selector")
    @classmethod
    def _labels(cls, labels: dict[str, str]) -> dict[str, str]:
        found = ((key, label_problem(key, value)) for key, value in labels.items())
        if problems := [f"'{key[:80]}' {why}" for key, why in found if why]:
            raise ValueError("; ".join(problems))
        return labels


class Execution(Body):
    """Where and how the trials run. `infra_retries`: how often one is tried again that was lost through no fault of
    its own; None: as often as the deployment says."""

    sandbox: SandboxRequest = SandboxRequest()
    max_concurrent_task_jobs: int | None = Field(default=None, ge=1, le=1000)
    infra_retries: int | None = Field(default=None, ge=0, le=RETRIES_MAX)


class RequestFile(Body):
    """The request file of `--spec-file`: everything of a request but the tasks, which the command line names."""

    spec: Wanted = Wanted()
    execution: Execution
    timeout_seconds: int | None = Field(default=None, ge=1)
    min_coverage: MinCoverage | None = None

    def request(self, tasks: TaskSelection, skipped: list[SkippedTask]) -> "RunRequest":
        """The request for these tasks."""
        spec = Spec(target=self.spec.target, publication=self.spec.publication, tasks=tasks)
        return RunRequest(
            spec=spec,
            execution=self.execution,
            timeout_seconds=self.timeout_seconds,
            min_coverage=self.min_coverage,
            skipped=skipped,
        )


class RunRequest(Body):
    """The body of `POST .../agent-evaluate/runs`. `min_coverage`: the share of its trials that must be scored for the
    run's check to pass. `skipped` records what `--skip-invalid` left out of the suite;
    `rerun_of` names the run of the same workspace whose tasks these are, run again; `regrade_of` the one whose kept
    work is verified again, without an agent."""

    spec: Spec
    execution: Execution = Execution()
    timeout_seconds: int | None = Field(default=None, ge=1)
    min_coverage: MinCoverage | None = None
    skipped: list[SkippedTask] = []
    rerun_of: str | None = Field(default=None, pattern=RUN_ID)
    regrade_of: str | None = Field(default=None, pattern=RUN_ID)

    def canonical(self) -> dict[str, Any]:
        """The request without what is as it would be anyway: two that mean the same are equal, also when a later
        version knows more fields."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def digest(self) -> str:
        """What an idempotency key is bound to: any change of the request changes it."""
        return digest_of(self.canonical())


def changes(before: Any, after: Any, at: str = "") -> Iterator[str]:
    """The paths of the values in which two canonical requests differ, sorted. What is absent has no members."""
    old, new = ({} if value is None else value for value in (before, after))
    if isinstance(old, dict) and isinstance(new, dict) and (old or new):
        for key in sorted(old.keys() | new.keys()):
            yield from changes(old.get(key), new.get(key), f"{at}.{key}" if at else key)
    elif before != after:
        yield at


def check_key(key: str) -> str:
    """An idempotency key as it came. Raises `Refused` for one that a header cannot carry, and for an empty one: that is
    a variable that was not set, and a retry under it would start a second run."""
    if not key.strip():
        raise Refused("The idempotency key is empty; choose one, as nightly-7, or leave it out")
    if len(key) > KEY_MAX or not (key.isascii() and key.isprintable()):
        raise Refused(
            f"The idempotency key {key[:40]!r} must be printable ASCII of at most {KEY_MAX} characters, as nightly-7"
        )
    return key


def key_conflict(key: str, run_id: str, before: str | None, after: str | None) -> IdempotencyConflict:
    """The refusal of a key that came with another request before; `before` and `after`: both as canonical JSON."""
    paths = list(changes(json.loads(before), json.loads(after))) if before and after else []
    shown = ", ".join(paths[:CHANGES_SHOWN])
    if len(paths) > CHANGES_SHOWN:
        shown += f" and {len(paths) - CHANGES_SHOWN} more"
    return IdempotencyConflict(
        f"The idempotency key {key!r} was used for run {run_id} with another request"
        f"{f'; changed: {shown}' if shown else ''}. Choose another key for a new run, or repeat the request as it was."
    )


def unsupported(wanted: Wanted) -> list[Problem]:
    """What of a request this version cannot do, each by name. Also asked before a suite is published for the run."""
    return list(_agent_problems(wanted.target))


def _agent_problems(target: Target) -> Iterator[Problem]:
    name, model = target.source.name, target.source.model
    works = f"agents that work today: {', '.join(NON_CALLING_AGENTS)}"
    if name in NON_CALLING_AGENTS:
        if model is not None:
            yield Problem("spec.target.source.model", f"agent '{name}' calls no model; take it out")
        if target.env_secrets:
            yield Problem("spec.target.env_secrets", f"agent '{name}' needs no secret; take them out")
        return
    if name not in HARBOR_AGENTS:
        close = nearest(name, (*NON_CALLING_AGENTS, *HARBOR_AGENTS))
        hint = f"did you mean {', '.join(close)}?" if close else works
        yield Problem(f"agent '{name}'", f"is no built-in Harbor agent; {hint}")
        return
    lacks = [
        f"an inference gateway that serves the model {model.ref}"
        if model
        else "a model (spec.target.source.model.ref of a request file) and an inference gateway that serves it",
        *(f"a store that holds the secret {secret} for {at}" for at, secret in target.env_secrets.items()),
    ]
    yield Problem(f"agent '{name}'", f"calls a model; missing in this version: {'; '.join(lacks)}. {works}")


def _is_name(text: str) -> bool:
    return 0 < len(text) <= 255 and all(c.isascii() and (c.isalnum() or c in "-_.") for c in text)
