"""Running an ended run's tasks again, as a new run that names the old one: an ended run never changes."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from harbor_assets.domain.errors import Problem, Refused
from harbor_assets.domain.outcomes import Outcome, TrialOutcome
from harbor_assets.domain.placement import Toleration
from harbor_assets.domain.plans import RunPlan
from harbor_assets.domain.profiles import SandboxProfile
from harbor_assets.domain.publication import Intake, Publication, PublicationRequest
from harbor_assets.domain.requests import (
    AgentSource,
    Execution,
    RunRequest,
    SandboxRequest,
    Spec,
    Target,
    TaskSelection,
)
from harbor_assets.domain.selection import select_members
from harbor_assets.domain.tasks import Body

INDEXES_SHOWN = 20  # of a run's tasks in a refusal


class Rerun(Body):
    """Which tasks of a run to run again: those `failed`, of which a trial has no score, `all` of them, or those that
    `select` names (exact or unique short names, or indexes)."""

    which: Literal["all", "failed"] = "all"
    select: list[str] | None = None


def not_scored(plan: RunPlan, rows: Iterable[TrialOutcome]) -> list[int]:
    """The indexes of the tasks of which a planned trial has no score."""
    scored = Counter(row.index for row in rows if row.outcome is Outcome.SCORED)
    return [task.index for task in plan.tasks if scored[task.index] < plan.n_attempts]


def selected(plan: RunPlan, select: Sequence[str]) -> list[int]:
    """The indexes of the run's own tasks that `select` names. Raises `Refused` with a problem per entry."""
    stored = {task.name for task in plan.tasks}
    native: dict[str, list[str]] = {}
    for task in plan.tasks:
        native.setdefault(task.native_task_id, []).append(task.name)
    by_index = {str(task.index): task.name for task in plan.tasks}
    entries: list[str] = []
    problems: list[Problem] = []
    for entry in (text.strip() for text in select):
        indexed, named = by_index.get(entry), [entry] if entry in stored else native.get(entry, [])
        if indexed and named and named != [indexed] and entry not in stored:
            why = f"is the name of {' and '.join(named)} and the index of {indexed}; write a stored name"
            problems.append(Problem(f"task '{entry}'", why))
        elif entry.isascii() and entry.isdigit() and not indexed and not named:
            shown = ", ".join(list(by_index)[:INDEXES_SHOWN]) + (", …" if len(by_index) > INDEXES_SHOWN else "")
            why = f"is the index of no task of {plan.run_id}; it ran: {shown}"
            problems.append(Problem(f"task '{entry}'", why))
        else:
            entries.append(named[0] if len(named) == 1 else indexed or entry)
    if problems:
        raise Refused("Cannot select tasks:", problems)
    found = select_members([(task.name, task.native_task_id) for task in plan.tasks], entries)
    return [plan.tasks[at].index for at in found]


def request_again(plan: RunPlan, indexes: Sequence[int]) -> RunRequest:
    """The request that makes a plan with the same settings for these tasks of it.

    Every trial of that plan has the key it had, unless the images, the profile or Harbor are others by now.
    """
    sizing, profile = plan.sizing, plan.profile
    selector, tolerations = _placement(profile) if profile else ({}, [])
    return RunRequest(
        spec=Spec(
            tasks=TaskSelection(taskset=plan.taskset_ref, select=[plan.task(index).name for index in indexes]),
            target=Target(
                source=AgentSource(name=plan.agent.name),
                agent_kwargs=plan.agent.kwargs,
                env_vars=plan.agent.env,
                n_attempts=plan.n_attempts,
                max_retries=plan.max_retries,
                reward_key=plan.reward_key,
                agent_timeout_multiplier=plan.agent_timeout_multiplier,
            ),
            publication=_published_again(plan.publication) if plan.publication else None,
        ),
        execution=Execution(
            sandbox=SandboxRequest(
                kind=plan.sandbox.kind,
                profile=profile.name if profile else None,
                node_selector=selector,
                tolerations=tolerations,
                cpus=sizing.cpus,
                memory_mb=sizing.memory_mb,
                storage_mb=sizing.storage_mb,
                keep_seconds=plan.keep_seconds,
            ),
            max_concurrent_task_jobs=plan.n_concurrent,
            infra_retries=plan.infra_retries,
        ),
        timeout_seconds=plan.timeout_seconds,
        min_coverage=plan.min_coverage,
        rerun_of=plan.run_id,
    )


def _published_again(published: Publication) -> PublicationRequest:
    """A new run is a new Evaluation, unless the one of before was there before it."""
    about = {
        "agent_name": published.agent_name,
        "agent_version": published.agent_version,
        "required": published.required,
    }
    where = {"evaluation_id": published.evaluation}
    if published.new:
        where = {
            "experiment": published.experiment,
            "dataset_name": published.dataset,
            "dataset_version": published.dataset_version,
        }
    return PublicationRequest(intake=Intake.model_validate({**about, **where}))


def _placement(profile: SandboxProfile) -> tuple[dict[str, str], list[Toleration]]:
    """What a request may have said of nodes: all that the profile leaves open. The rest is the admin's, and is there
    again."""
    selector = {key: value for key, value in profile.node_selector.items() if key in profile.node_selector_keys}
    asked = [one for one in profile.tolerations if one.get("key") in profile.toleration_keys]
    return selector, [Toleration.model_validate(one) for one in asked if one.keys() <= Toleration.model_fields.keys()]
