"""Sandbox profiles: what an admin allows and sets for a deployment's sandboxes. Copied into a run's plan at submit.

A profile only ever narrows: it never opens a host that the task's own policy keeps closed, and never raises a limit.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from harbor_assets.domain.outcomes import Frozen

DISK_MAX_MB = 128 * 1024  # the seed's default ceiling for --storage-mb
KEEP_SECONDS = 3600  # of a request that does not say how long, and the most a profile allows that does not say
PUBLIC = ("*",)
SIZES = ("cpus", "memory_mb", "storage_mb")
_VERIFIER_SECONDS = 600.0  # Harbor's default of [verifier] timeout_sec
_HOST = re.compile(r"(?=.{1,255}$)(\*\.)?[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")
_ADDRESS = re.compile(r"[0-9.]+")

NetworkMode = Literal["public", "no-network", "allowlist"]


class NetworkPolicy(Frozen):
    """What a sandbox may reach in one phase. `hosts` (names, `*.` wildcards, addresses) only with `allowlist`."""

    mode: NetworkMode = "public"
    hosts: tuple[str, ...] = ()


class Requests(Frozen):
    """What a sandbox asks of the scheduler, as Kubernetes quantities; None: as much as its limit."""

    cpu: str | None = None
    memory: str | None = None


class SandboxProfile(Frozen):
    """One profile. Ceilings in cores and megabytes, None for none; times in seconds.

    `hosts` are the names a sandbox may reach while the agent runs and is graded (`*` first label as a wildcard;
    exactly `("*",)` is public), `install_hosts` those open only while the agent installs itself. `node_selector_keys`
    and `toleration_keys` name the labels and taints that a request may add to. `max_keep_seconds`: how long a request
    may keep sandboxes after their trial; 0: not at all.
    """

    name: str = Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")
    description: str = ""
    hosts: tuple[str, ...] = ()
    install_hosts: tuple[str, ...] = ()
    max_cpus: Annotated[float, Field(gt=0)] | None = None
    max_memory_mb: Annotated[int, Field(gt=0)] | None = None
    max_storage_mb: Annotated[int, Field(gt=0)] | None = None
    max_disk_mb: int = Field(default=DISK_MAX_MB, gt=0)
    requests: Requests = Requests()
    runtime_class: str | None = None
    node_selector: dict[str, str] = {}
    tolerations: tuple[dict[str, Any], ...] = ()
    node_selector_keys: tuple[str, ...] = ()
    toleration_keys: tuple[str, ...] = ()
    image_pull_secrets: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    pod_overrides: dict[str, Any] = {}
    gpu_resource: str | None = None  # what a GPU is called on the nodes, as nvidia.com/gpu; None: there are none
    max_lifetime_seconds: int = Field(default=24 * 3600, gt=0)
    start_grace_seconds: int = Field(default=60, gt=0)
    max_keep_seconds: int = Field(default=KEEP_SECONDS, ge=0)

    @field_validator("hosts", "install_hosts")
    @classmethod
    def _check_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        if hosts == PUBLIC:  # as written: a mistyped `*.` must not open everything
            return hosts
        found = tuple(host.strip().lower().rstrip(".") for host in hosts)
        bad = [host for host in found if not _HOST.fullmatch(host) or _ADDRESS.fullmatch(host)]
        if bad:
            raise ValueError(
                f"{', '.join(map(repr, bad))}: write host names such as site.test or *.site.test, without scheme, port "
                'or path; everything is written as exactly ["*"]'
            )
        return found


def narrow(policy: NetworkPolicy, profile: SandboxProfile) -> NetworkPolicy:
    """The policy that a phase gets: the task's own, narrowed by the profile's `hosts`, never widened.

    A wildcard covers every name below it, at any depth, and not the name itself. What is left of two lists is what
    both allow; nothing left is `no-network`.
    """
    if profile.hosts == PUBLIC or policy.mode == "no-network":
        return policy
    if policy.mode == "public":
        return _listed(profile.hosts)
    both = [_narrower(ours, theirs) for ours in policy.hosts for theirs in profile.hosts]
    return _listed(host for host in both if host)


def allows(policy: NetworkPolicy, host: str) -> bool:
    """Whether the policy lets a sandbox reach the host of that name."""
    if policy.mode != "allowlist":
        return policy.mode == "public"
    return any(_narrower(entry, host) == host for entry in policy.hosts)


def _listed(hosts: Iterable[str]) -> NetworkPolicy:
    unique = tuple(dict.fromkeys(hosts))
    return NetworkPolicy(mode="allowlist", hosts=unique) if unique else NetworkPolicy(mode="no-network")


def _narrower(one: str, other: str) -> str | None:
    """What both entries allow, as one entry; None if they share nothing."""
    if one == other or (one.startswith("*.") and other.endswith(one[1:])):
        return other
    return one if other.startswith("*.") and one.endswith(other[1:]) else None


def ceiling(profile: SandboxProfile, size: str) -> tuple[str, float] | None:
    """(name, value) of the profile's ceiling for `cpus`, `memory_mb` or `storage_mb`; None where there is none."""
    names = {"cpus": ("max_cpus",), "memory_mb": ("max_memory_mb",), "storage_mb": ("max_storage_mb", "max_disk_mb")}
    found = [(name, value) for name in names[size] if (value := getattr(profile, name)) is not None]
    return min(found, key=lambda item: item[1], default=None)


def flag_problems(sizes: Mapping[str, float | None], profile: SandboxProfile) -> Iterator[tuple[str, str]]:
    """(size, why) for every value of a request that is above the profile's ceiling."""
    for size, value in sizes.items():
        top = ceiling(profile, size)
        if value is not None and top and value > top[1]:
            yield (
                size,
                f"{value:g} is above {top[0]} = {top[1]:g} of sandbox profile '{profile.name}'; "
                "ask for less, or choose another profile",
            )


def task_problems(
    config: Mapping[str, Any], replaced: Container[str], profile: SandboxProfile, multiplier: float = 1.0
) -> Iterator[str]:
    """What a task.toml asks for that the profile does not give, each as `<rule>: <why>`.

    `replaced` are the sizes that the request's own values replace in the agent's sandbox; a separate verifier's
    sandbox keeps the task's. `multiplier`: of the agent's timeouts.
    """
    environment = _table(config, "environment")
    for size in SIZES:
        if size not in replaced:
            yield from _exceeds(f"[environment] {size}", environment, size, profile)
    for where, sizes in _verifier_environments(config):
        for size in SIZES:
            yield from _exceeds(f"{where} {size}", sizes, size, profile)
    for where, table in (("[environment]", environment), *_verifier_environments(config)):
        gpus = table.get("gpus")
        if isinstance(gpus, int) and gpus > 0 and profile.gpu_resource is None:
            yield (
                f"gpus_unavailable: {where} gpus = {gpus}: sandbox profile '{profile.name}' has no gpu_resource; "
                "choose a profile with GPUs"
            )
    agent = sum(_agent_seconds(config))
    lifetime = agent * multiplier + sum(_verifier_seconds(config))
    if lifetime > profile.max_lifetime_seconds:
        times = f" (the agent {agent:g} s × {multiplier:g})" if multiplier != 1 else ""
        lower = "the multiplier or timeout_sec" if multiplier > 1 else "timeout_sec"
        yield (
            f"timeout_exceeds_policy: agent and verifier together may take {lifetime:g} s{times}, above "
            f"max_lifetime_seconds = {profile.max_lifetime_seconds} of sandbox profile '{profile.name}'; lower {lower} "
            "in task.toml, or choose another profile"
        )


def stretched_problem(config: Mapping[str, Any], multiplier: float, run_seconds: int) -> str | None:
    """Why a task's time for its agent, times `multiplier`, makes no sense in a run of so many seconds; None if it does.

    Only asked of requests that stretch it: whose run is merely short knows that it may end first.
    """
    agent = sum(_agent_seconds(config))
    if agent * multiplier <= run_seconds:
        return None
    return (
        f"timeout_exceeds_run: the agent's {agent:g} s × {multiplier:g} = {agent * multiplier:g} s is above the run's "
        f"own timeout_seconds = {run_seconds}; lower the multiplier, or give the run more time"
    )


def _exceeds(where: str, environment: Mapping[str, Any], size: str, profile: SandboxProfile) -> Iterator[str]:
    value, top = _size(environment, size), ceiling(profile, size)
    if value is not None and top and value > top[1]:
        yield (
            f"resources_exceed_policy: {where} = {value:g} is above {top[0]} = {top[1]:g} of sandbox profile "
            f"'{profile.name}'"
        )


def _size(environment: Mapping[str, Any], size: str) -> float | None:
    """A size as Harbor reads it: also its older spelling, `memory = "4G"`."""
    value = environment.get(size)
    if value is None and size != "cpus":
        value = environment.get(size.removesuffix("_mb"))
        if isinstance(value, str) and (match := re.fullmatch(r"\s*([0-9.]+)\s*([GMK])\s*", value.upper())):
            scale = {"G": 1024.0, "M": 1.0, "K": 1 / 1024}
            try:
                return float(int(float(match[1]) * scale[match[2]]))
            except ValueError:
                return None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def separate(verifier: Mapping[str, Any], inherited: bool = False) -> bool:
    """Whether a `[verifier]` table means a sandbox of its own (Harbor's rule; a step without one inherits)."""
    mode = verifier.get("environment_mode")
    if mode is not None:
        return mode == "separate"
    return True if verifier.get("environment") is not None else inherited


def _verifier_environments(config: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    verifier = _table(config, "verifier")
    whole = separate(verifier)
    shared = _table(verifier, "environment") or _table(config, "environment")
    where = "[verifier.environment]" if _table(verifier, "environment") else "[environment] (of the separate verifier)"
    steps = _steps(config)
    if not steps and whole:
        yield where, shared
    for step in steps:
        own = _table(step, "verifier")
        if separate(own, whole):
            if environment := _table(own, "environment"):
                yield f"[verifier.environment] of step {step.get('name')!r}", environment
            else:
                yield where, shared


def _agent_seconds(config: Mapping[str, Any]) -> Iterator[float]:
    """What each step's agent may take; 0 where the task sets no limit."""
    agent = _table(config, "agent")
    for step in _steps(config) or [{}]:
        yield _number(_table(step, "agent").get("timeout_sec", agent.get("timeout_sec")), 0.0)


def _verifier_seconds(config: Mapping[str, Any]) -> Iterator[float]:
    """What each verifier that works in the agent's sandbox may take."""
    verifier = _table(config, "verifier")
    for step in _steps(config) or [{}]:
        own = _table(step, "verifier")
        if not separate(own, separate(verifier)):
            yield _number(own.get("timeout_sec", verifier.get("timeout_sec")), _VERIFIER_SECONDS)


def _number(value: Any, default: float) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else default


def _table(holder: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = holder.get(name)
    return found if isinstance(found, Mapping) else {}


def _steps(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = config.get("steps")
    return [step for step in found if isinstance(step, Mapping)] if isinstance(found, list) else []
