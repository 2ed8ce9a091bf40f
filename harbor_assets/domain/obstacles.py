"""What keeps a task from ever running, seen in its task.toml before anything is published, built or started. Pure.

Each would otherwise fail late, one trial at a time. Rules of Harbor 0.26: an environment refuses GPUs and host lists it
cannot give when it is made; `${NAME}` in an `env` table is filled from the worker's environment, or the trial fails.
"""

import ipaddress
import math
import re
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any, NamedTuple

from harbor_assets.domain.images import COMPOSE, DOCKERFILE, ImagesImpossible, plan_images
from harbor_assets.domain.plans import ORACLE

# What a client tells of a task's files: enough for the rules here, without sending the task.
TOLD_FILES = (
    *(f"{folder}/{name}" for folder in ("environment", "tests") for name in (DOCKERFILE, COMPOSE)),
    "solution/solve.sh",
)
_TEMPLATE = re.compile(r"\$\{([^}:]+)(:-.*)?\}", re.DOTALL)  # Harbor's: a value that is nothing but a template


class Abilities(NamedTuple):
    """What a kind of sandbox can give. `images`: it runs from a task's image, so there must be one."""

    images: bool
    gpus: bool
    allowlist: bool


ABILITIES = {
    "process": Abilities(images=False, gpus=False, allowlist=False),
    "docker": Abilities(images=True, gpus=False, allowlist=False),
    "podman": Abilities(images=True, gpus=False, allowlist=False),
    "kubernetes": Abilities(images=True, gpus=True, allowlist=True),
}


def obstacles(
    config: Mapping[str, Any], *, sandbox: str, agent: str, variables: Container[str]
) -> Iterator[tuple[str, str]]:
    """(rule, why) of everything in a task.toml that the sandbox cannot do or that makes no sense.

    `variables` are the names that a template may use: those of the environment that trials run in.
    """
    able = ABILITIES[sandbox]
    for where, table in environments(config):
        gpus = table.get("gpus")
        if not able.gpus and isinstance(gpus, int) and gpus > 0:
            yield "gpus_unavailable", f"{where} gpus = {gpus}: the sandbox '{sandbox}' has none; run it on a deployment"
    if not able.allowlist:
        for where, table in _phases(config):
            if table.get("network_mode") == "allowlist":
                yield (
                    "network_unavailable",
                    f"{where} network_mode = 'allowlist': the sandbox '{sandbox}' cannot filter by host name; take "
                    "'public' or 'no-network', or run it on a deployment",
                )
    else:
        for where, table in _phases(config):
            hosts = table.get("allowed_hosts") if table.get("network_mode") == "allowlist" else None
            for host in hosts if isinstance(hosts, list) else ():
                if isinstance(host, str) and _is_address(host):
                    yield (
                        "network_unavailable",
                        f"{where} allowed_hosts: {host} is an address; the sandbox '{sandbox}' filters by host name: "
                        "write names",
                    )
    for where, seconds in _timeouts(config):
        if not math.isfinite(seconds) or seconds <= 0:
            yield "timeout_invalid", f"{where} = {seconds:g}: write seconds above 0"
    for where, table in _env_tables(config, agent):
        for name, value in table.items():
            match = _TEMPLATE.fullmatch(value) if isinstance(value, str) else None
            if match and match[2] is None and match[1] not in variables:
                yield (
                    "variable_unset",
                    f"{where} {name} = '${{{match[1]}}}': {match[1]} is not set where trials run; write a default as "
                    f"${{{match[1]}:-value}}, or set it there",
                )


def image_obstacle(config: Mapping[str, Any], has_file: Callable[[str], bool], *, sandbox: str) -> str | None:
    """Why there can be no image of a task that needs one; None if there can."""
    if not ABILITIES[sandbox].images:
        return None
    try:
        plan_images(config, has_file)
    except ImagesImpossible as error:
        return str(error)
    return None


def lacks_solution(config: Mapping[str, Any], has_file: Callable[[str], bool], *, agent: str) -> bool:
    """Whether the agent `oracle` will find no solution to apply. A task in steps has one in each, not looked at."""
    return agent == ORACLE and not config.get("steps") and not has_file("solution/solve.sh")


def environments(config: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(name, table) of every environment that a task.toml describes."""
    yield "[environment]", _table(config, "environment")
    for where, verifier in _verifiers(config):
        yield f"{where.removesuffix(']')}.environment]", _table(verifier, "environment")


def _phases(config: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield from environments(config)
    yield "[agent]", _table(config, "agent")
    yield from _verifiers(config)
    for at, step in enumerate(_steps(config)):
        yield f"[steps[{at}].agent]", _table(step, "agent")


def _verifiers(config: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield "[verifier]", _table(config, "verifier")
    for at, step in enumerate(_steps(config)):
        yield f"[steps[{at}].verifier]", _table(step, "verifier")


def _timeouts(config: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    found = [(f"{where} timeout_sec", table.get("timeout_sec")) for where, table in _phases(config)]
    found += [(f"{where} build_timeout_sec", table.get("build_timeout_sec")) for where, table in environments(config)]
    for where, seconds in found:
        if (isinstance(seconds, int | float) and not isinstance(seconds, bool)) or seconds in ("inf", "-inf", "nan"):
            yield where, float(seconds)


def _env_tables(config: Mapping[str, Any], agent: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    holders = [*environments(config), *_verifiers(config)]
    if agent == ORACLE:
        holders.append(("[solution]", _table(config, "solution")))
    for where, holder in holders:
        yield f"{where.removesuffix(']')}.env]", _table(holder, "env")


def _steps(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = config.get("steps")
    return [step for step in found if isinstance(step, Mapping)] if isinstance(found, list) else []


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_network(host, strict=False)
    except ValueError:
        return False
    return True


def _table(holder: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = holder.get(name)
    return found if isinstance(found, Mapping) else {}
