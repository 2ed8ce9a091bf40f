"""Verifying again what an ended run kept of its agent's work, as a new run that names the old one. Pure.

Only a verifier with a sandbox of its own (`environment_mode = "separate"`) can be run again: what it gets are the
artifacts that were collected, and those are kept. One in the agent's sandbox needs that sandbox, which is gone.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from harbor_assets.domain.digests import digest_of
from harbor_assets.domain.outcomes import Outcome, TrialOutcome
from harbor_assets.domain.plans import RunPlan
from harbor_assets.domain.profiles import separate
from harbor_assets.domain.requests import RunRequest, TaskSelection
from harbor_assets.domain.reruns import request_again
from harbor_assets.domain.tasks import Body

HOW_TO_KEEP = (
    "to be able to verify later runs again, give the verifier a sandbox of its own (in task.toml, [verifier] "
    'environment_mode = "separate") and name what it needs under `artifacts`'
)
SHARED = f"its verifier works in the agent's own sandbox, which ended with the trial; {HOW_TO_KEEP}"
NAMED_MAX = 10  # tasks of one reason, by name; the rest is counted
# Endings after which the agent's work may be whole. Of a lost sandbox it is asked of the trial's own record.
_WHOLE = (Outcome.SCORED, Outcome.VERIFIER_FAILED, Outcome.INFRA_FAILED)


class Regrade(Body):
    """Which tasks of a run to verify again: all, or those that `select` names (as for a rerun).

    `taskset`: whose tests; None: the newest that pins the tasks' newest revisions, else the run's own if these are
    still the newest.
    """

    select: list[str] | None = None
    taskset: str | None = None


def verifier_problem(config: Mapping[str, Any]) -> str | None:
    """Why a task's verifier cannot be run on kept artifacts, or None. `config`: its task.toml."""
    whole = separate(_table(config.get("verifier")))
    steps: Any = config.get("steps")
    if not steps:
        return None if whole else SHARED
    return None if all(separate(_table(_table(step).get("verifier")), whole) for step in steps) else SHARED


def by_reason(without: Mapping[str, str]) -> list[tuple[str, str]]:
    """Tasks and why nothing of them is kept, those of one reason together: (`t1`, or `9 tasks (t1, t2, …)`; why)."""
    groups: dict[str, list[str]] = {}
    for name, why in without.items():
        groups.setdefault(why, []).append(name)
    return [(_together(names), why) for why, names in groups.items()]


def _together(names: Sequence[str]) -> str:
    more = ", …" if len(names) > NAMED_MAX else ""
    return names[0] if len(names) == 1 else f"{len(names)} tasks ({', '.join(names[:NAMED_MAX])}{more})"


def row_problem(row: TrialOutcome | None) -> str | None:
    """Why of a trial, by its outcome row (None: it has none), nothing can be verified again, or None."""
    if row is None:
        return "it has no outcome there"
    if row.outcome not in _WHOLE:
        return f"it ended {row.outcome} ({row.reason}) there, so its agent's work is not whole"
    if row.evidence is None:
        return f"it ended {row.outcome} ({row.reason}) there and left no folder"
    return None


def agent_was_done(result: Mapping[str, Any]) -> bool:
    """Whether the agent's work had come to its end when a trial was lost, by Harbor's own record (`result.json`)."""
    began = _table(result.get("verifier")).get("started_at")
    failed = _table(result.get("exception_info")).get("occurred_at")
    return result.get("step_results") is None and bool(began) and (failed is None or str(failed) > str(began))


def request_to_regrade(plan: RunPlan, indexes: Sequence[int], taskset_ref: str) -> RunRequest:
    """The request that verifies these tasks again by the tests of a taskset, with the run's settings. It is published
    nowhere: an Evaluation would count the agent's cost a second time."""
    again = request_again(plan, indexes)
    names = [plan.task(index).name for index in indexes]
    spec = again.spec.model_copy(
        update={"tasks": TaskSelection(taskset=taskset_ref, select=names), "publication": None}
    )
    return again.model_copy(update={"spec": spec, "rerun_of": None, "regrade_of": plan.run_id})


def regraded_key(agent_key: str, verifier_key: str) -> str:
    """The trial key of a regraded trial: its agent worked under `agent_key`, and `verifier_key` is what a new trial
    would have. The same where nothing that decides a reward has changed."""
    return agent_key if agent_key == verifier_key else digest_of({"agent": agent_key, "verifier": verifier_key})


def origin(row: TrialOutcome) -> dict[str, JsonValue]:
    """What a regraded trial's details say of the one whose agent's work it verifies, and who paid for that."""
    paid = row.measurements.model_dump(mode="json", exclude_none=True)
    return {
        "run_id": row.run_id,
        "trial_id": row.trial_id,
        "trial_key": row.trial_key,
        "outcome": row.outcome.value,
        "reason": row.reason.value,
        "reward": row.reward,
        "flags": list(row.flags),
        "paid": paid,
    }


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
