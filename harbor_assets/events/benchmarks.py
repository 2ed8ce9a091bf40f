"""The event of a benchmark's day: which run filled it, with its figures, so that Dagster plots them over time."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from harbor_assets.domain.benchmarks import DayOf, Spent
from harbor_assets.domain.names import Ref
from harbor_assets.domain.outcomes import TrialOutcome
from harbor_assets.domain.phases import RunPhase
from harbor_assets.domain.plans import RunPlan
from harbor_assets.domain.policies import account
from harbor_assets.domain.text import visible
from harbor_assets.events.links import partition_link, runs_link


def benchmark_key(name: str) -> dg.AssetKey:
    """The asset of a benchmark."""
    return dg.AssetKey(["benchmark", name])


def day_metadata(plan: RunPlan, rows: Sequence[TrialOutcome], *, phase: RunPhase) -> dict[str, Any]:
    """What stands beside the day. Numbers keep their kind and what is unknown is left out, never 0."""
    summary, spent = account(rows), Spent.on(rows)
    scored = summary.policies.scored_only
    within = scored.mean_interval
    metadata: dict[str, Any] = {
        "run": plan.run_id,
        "mean": _float(scored.mean),
        "mean_low": _float(within.low if within else None),
        "mean_high": _float(within.high if within else None),
        "mean_missing_as_zero": _float(summary.policies.missing_as_zero.mean),
        "coverage": _float(scored.coverage.trials / summary.planned if summary.planned else None),
        "trials_scored": scored.coverage.trials,
        "trials_planned": summary.planned,
        "cost_usd": _float(spent.usd if spent.unknown < summary.planned else None),
        "trials_of_unknown_cost": spent.unknown,
        "phase": str(phase),
        "agent": visible(plan.agent.name),
        "taskset": plan.taskset_ref,
        "taskset_revision": partition_link("taskset", Ref.parse(plan.taskset_ref, workspace="default").partition_key),
        "bundle": partition_link("merged_bundle", plan.run_id),
        "dagster_runs": runs_link(plan.run_id),
        "show": f"harbor-assets runs results {plan.run_id} --workspace {plan.workspace}",
    }
    return {name: value for name, value in metadata.items() if value is not None}


def day_event(
    of: DayOf, plan: RunPlan, rows: Sequence[TrialOutcome], *, phase: RunPhase
) -> dg.AssetMaterialization | dg.AssetObservation:
    """The day as filled; as observed only where no trial has a score, which leaves the day open for another run."""
    key, metadata = benchmark_key(of.benchmark), day_metadata(plan, rows, phase=phase)
    if "mean" in metadata:
        return dg.AssetMaterialization(key, partition=of.day, metadata=metadata)
    return dg.AssetObservation(
        key, partition=of.day, metadata=metadata, description=f"{plan.run_id} ended {phase} without any score"
    )


def begun_event(name: str, day: str, run_id: str) -> dg.AssetObservation:
    """That the day's run was begun; the day is filled when it has ended."""
    return dg.AssetObservation(
        benchmark_key(name),
        partition=day,
        description=f"{run_id} was begun",
        metadata={
            "run": run_id,
            "dagster_runs": runs_link(run_id),
            "follow": f"harbor-assets runs status {run_id} --watch",
        },
    )


def _float(value: float | None) -> dg.MetadataValue | None:
    return None if value is None else dg.MetadataValue.float(float(value))
