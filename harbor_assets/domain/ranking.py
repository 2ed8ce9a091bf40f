"""A line of the leaderboard: what a run's bundle says of the run, and the figures of its own account."""

from datetime import datetime

from pydantic import JsonValue

from harbor_assets.domain.bundle import RunMetadata
from harbor_assets.domain.conditions import Conditions, recorded_conditions
from harbor_assets.domain.outcomes import Frozen
from harbor_assets.domain.policies import ConfidenceInterval, OutcomeSummary, PolicyCoverage


class RankedRun(Frozen):
    """One ended run. `mean` and `pass_at_k` are over the scored trials, and None where nothing was scored; `coverage`
    says of how many. `model` is None for an agent that calls none. `regrade_of`: the run whose trials were verified
    again in this one, so that they are no trials of its own; `rerun_of`: the one whose tasks it ran again. Times: UTC.

    What is added up from its trials (`cost_usd` of the `cost_trials` that know theirs, `duration_sec`) only the store
    knows."""

    run_id: str
    workspace: str
    owner: str
    phase: str
    taskset_ref: str
    agent: str
    model: str | None
    sandbox: str
    n_attempts: int
    reward_key: str
    mean: float | None
    mean_missing_as_zero: float | None
    pass_at_k: dict[str, float | None]
    coverage: PolicyCoverage
    harbor_version: str | None
    started_at: datetime | None
    finished_at: datetime | None
    mean_interval: ConfidenceInterval | None = None
    experiment: str | None = None
    evaluation: str | None = None
    dataset: str | None = None
    dataset_version: str | None = None
    agent_version: str | None = None
    harbor_assets_version: str | None = None
    conditions: Conditions = Conditions(taskset_ref="")
    cost_usd: float | None = None
    cost_trials: int = 0
    duration_sec: float | None = None
    rerun_of: str | None = None
    regrade_of: str | None = None


def ranked(run_id: str, metadata: RunMetadata, account: OutcomeSummary) -> RankedRun:
    """The line of a bundle, from its `metadata.json` and `outcomes.json` alone."""
    labels, target = metadata.labels, metadata.target
    config = target.config if target else {}
    scored = account.policies.scored_only
    return RankedRun(
        run_id=run_id,
        workspace=labels.get("workspace", ""),
        owner=labels.get("owner", ""),
        phase=labels.get("phase", ""),
        taskset_ref=labels.get("taskset_ref", ""),
        agent=labels.get("agent", ""),
        model=_text(config.get("agent_model_name")),
        sandbox=labels.get("sandbox", ""),
        n_attempts=max(1, len(scored.pass_at_k)),
        reward_key=_text(config.get("reward_key")) or "reward",
        mean=scored.mean,
        mean_missing_as_zero=account.policies.missing_as_zero.mean,
        pass_at_k=scored.pass_at_k,
        coverage=scored.coverage,
        harbor_version=target.version if target else None,
        started_at=metadata.started_at,
        finished_at=metadata.finished_at,
        mean_interval=scored.mean_interval,
        experiment=labels.get("experiment"),
        evaluation=labels.get("evaluation"),
        dataset=labels.get("dataset"),
        dataset_version=labels.get("dataset_version"),
        agent_version=_text(config.get("agent_version")),
        harbor_assets_version=labels.get("harbor_assets_version"),
        conditions=recorded_conditions(labels, config),
        rerun_of=labels.get("rerun_of"),
        regrade_of=labels.get("regrade_of"),
    )


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None
