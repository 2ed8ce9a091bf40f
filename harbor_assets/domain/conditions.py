"""Under what conditions a run's numbers were made. Two runs are ranked together only where these are equal.

What an agent and its model are is not among them: that is what a ranking compares. Each member is a text that equal
conditions write equally, since it is stored, compared and shown. None is "not recorded", as in bundles of earlier
versions, and is equal only to itself.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final

from pydantic import JsonValue, ValidationError

from harbor_assets.domain.outcomes import Frozen
from harbor_assets.domain.plans import RunPlan

CONFIG_KEY: Final = "conditions"  # where `metadata.json` has them, in `target.config`
# A verifier alone, on what an agent did for another run: perhaps for another revision, and counted there already.
REGRADED: Final = "alone, on kept work"
_WORDS: Final = {
    "taskset_ref": "taskset",
    "tasks": "selection of tasks",
    "reward_key": "reward key",
    "verifier": "verifier",
    "multipliers": "time multipliers",
    "sizing": "sizing",
    "network": "network",
    "sandbox": "sandbox",
    "machine": "machine of the process sandbox",
}
_PLAIN: Final = {"verifier": "in the trial itself", "multipliers": "none", "sizing": "as each task says"}
_SHOWN_MAX: Final = 80


class Conditions(Frozen):
    """`tasks` is `tasks_digest` of the tasks that were run, which may be fewer than the taskset's.

    `verifier` is empty where each trial was graded by its task's own verifier; `multipliers`, `sizing` and `network`
    are empty where nothing but the task decides. `machine` is the fingerprint of what the `process` sandbox ran on.
    """

    taskset_ref: str
    tasks: str | None = None
    reward_key: str = "reward"
    verifier: str = ""
    multipliers: str | None = None
    sizing: str | None = None
    network: str | None = None
    sandbox: str = ""
    machine: str | None = None

    def differences(self, other: "Conditions") -> tuple[str, ...]:
        """What differs, as `name: of this one, not of the other`; empty where they can be ranked together."""
        mine, its = self.model_dump(), other.model_dump()
        return tuple(
            f"{word}: {_shown(name, mine[name], its[name])}, not {_shown(name, its[name], mine[name])}"
            for name, word in _WORDS.items()
            if mine[name] != its[name]
        )


def tasks_digest(refs: Iterable[str]) -> str:
    """The digest of a selection of pinned tasks; their order does not matter. The store makes the same in SQL."""
    return sha256("\n".join(sorted(set(refs))).encode()).hexdigest()


def conditions_of(plan: RunPlan) -> Conditions:
    """The conditions that a plan sets."""
    profile = plan.profile
    multiplier = plan.agent_timeout_multiplier
    hosts = {"hosts": profile.hosts, "install_hosts": profile.install_hosts} if profile else {}
    return Conditions(
        taskset_ref=plan.taskset_ref,
        tasks=tasks_digest(task.ref for task in plan.tasks),
        reward_key=plan.reward_key,
        verifier=REGRADED if plan.regrade_of else "",
        multipliers=f"agent_timeout={multiplier:g}" if multiplier is not None and multiplier != 1 else "",
        sizing=" ".join(f"{name}={value:g}" for name, value in plan.sizing.model_dump(exclude_none=True).items()),
        network=" ".join(f"{name}={','.join(sorted(names))}" for name, names in hosts.items() if names),
        sandbox=plan.sandbox.kind,
        machine=plan.sandbox.fingerprint,
    )


def recorded_conditions(labels: Mapping[str, str], config: Mapping[str, JsonValue]) -> Conditions:
    """The conditions that a bundle's `metadata.json` records; what an earlier version did not record is None."""
    try:
        return Conditions.model_validate(config[CONFIG_KEY])
    except (KeyError, ValidationError):
        reward_key = config.get("reward_key")
        return Conditions(
            taskset_ref=labels.get("taskset_ref", ""),
            reward_key=reward_key if isinstance(reward_key, str) else "reward",
            sandbox=labels.get("sandbox", ""),
            machine=labels.get("sandbox_fingerprint"),
        )


def _shown(name: str, value: str | None, other: str | None) -> str:
    if value is None:
        return "not recorded"
    if not value:
        return _PLAIN.get(name, "none")
    if name == "tasks":
        return value[:12]
    if name == "taskset_ref":
        stem, _, digest = value.partition("#")
        return f"{stem}#{digest[:12]}"
    return value if len(value) <= _SHOWN_MAX else f"{value[:_SHOWN_MAX]}…"
