"""The events of an ended run: its bundle, and what was found when that was read back."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import dagster as dg

from harbor_assets.domain import bundle
from harbor_assets.domain.benchmarks import Spent
from harbor_assets.domain.names import Ref
from harbor_assets.domain.outcomes import Outcome, TrialOutcome
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.domain.plans import RunPlan
from harbor_assets.domain.policies import Policy, account
from harbor_assets.domain.text import figure
from harbor_assets.engine.inspection import Finding
from harbor_assets.events.links import partition_link, runs_link
from harbor_assets.events.markdown import plain, row
from harbor_assets.events.trials import Place, seconds_of

ROWS_SHOWN = 200  # of the table of trials: the page stays quick, and the report has all
REASONS_SHOWN = 20  # lines of the summary's list of what was not scored

TRIALS = dg.TableSchema(
    [
        dg.TableColumn("index", "int", description="of the task in the run's taskset"),
        dg.TableColumn("task"),
        dg.TableColumn("k", "int", description="attempt, from 1"),
        dg.TableColumn("outcome"),
        dg.TableColumn("reason"),
        dg.TableColumn("reward", "float", description="empty unless scored"),
        dg.TableColumn("seconds", "float"),
        dg.TableColumn("evidence", description="folder in the bundle"),
    ]
)


def bundle_metadata(
    plan: RunPlan, rows: Sequence[TrialOutcome], *, phase: RunPhase, state: ResultState, place: Place
) -> dict[str, Any]:
    """What stands beside a bundle's materialisation. `place`: a path in the bundle -> where a person finds it."""
    summary = account(rows)
    scored, zeroed, spent = summary.policies.scored_only, summary.policies.missing_as_zero, Spent.on(rows)
    metadata: dict[str, Any] = {
        "summary": dg.MetadataValue.md(_summary(plan, rows, phase)),
        "report": dg.MetadataValue.path(place(bundle.REPORT)),
        "mean": None if scored.mean is None else dg.MetadataValue.float(scored.mean),
        "mean_missing_as_zero": None if zeroed.mean is None else dg.MetadataValue.float(zeroed.mean),
        "cost_usd": None if spent.unknown == summary.planned else dg.MetadataValue.float(spent.usd),
        "trials_scored": scored.coverage.trials,
        "trials_planned": summary.planned,
        "tasks_scored": scored.coverage.tasks,
        "tasks": scored.coverage.of_tasks,
        "trials": dg.MetadataValue.table(_records(rows), TRIALS),
        "phase": str(phase),
        "result_state": str(state),
        **{f"outcome_{name}": n for name, n in summary.counts.items() if n},
        "agent": plan.agent.name,
        "sandbox": plan.sandbox.kind,
        "taskset": plan.taskset_ref,
        "taskset_revision": partition_link("taskset", Ref.parse(plan.taskset_ref, workspace="default").partition_key),
        "dagster_runs": runs_link(plan.run_id),
        "dagster/uri": place(""),
        "dagster/row_count": summary.planned,
    }
    return {name: value for name, value in metadata.items() if value is not None}


def bundle_event(run_id: str, metadata: dict[str, Any]) -> dg.AssetMaterialization:
    """The bundle of an ended run."""
    return dg.AssetMaterialization("merged_bundle", partition=run_id, metadata=metadata)


def check_event(run_id: str, finding: Finding) -> dg.AssetCheckEvaluation:
    """A finding as the result of the asset check of that name."""
    return dg.AssetCheckEvaluation(
        asset_key=dg.AssetKey("merged_bundle"),
        check_name=finding.name,
        passed=finding.passed,
        severity=dg.AssetCheckSeverity.WARN if finding.warning else dg.AssetCheckSeverity.ERROR,
        description=f"{run_id}: {finding.text}",
        metadata={"run": partition_link("merged_bundle", run_id), **finding.facts},
        partition=run_id,
    )


def _records(rows: Sequence[TrialOutcome]) -> list[dg.TableRecord]:
    """Those without a score first: of a long run they are what one looks for."""
    ordered = sorted(rows, key=lambda r: (r.outcome is Outcome.SCORED, r.index, r.k))
    return [
        dg.TableRecord(
            {
                "index": r.index,
                "task": r.task,
                "k": r.k,
                "outcome": str(r.outcome),
                "reason": str(r.reason),
                "reward": r.reward,
                "seconds": seconds_of(r),
                "evidence": r.evidence,
            }
        )
        for r in ordered[:ROWS_SHOWN]
    ]


def _summary(plan: RunPlan, rows: Sequence[TrialOutcome], phase: RunPhase) -> str:
    summary = account(rows)
    policies = summary.policies
    taskset = plain(Ref.parse(plan.taskset_ref, workspace=plan.workspace).partition_key)
    about = f"Agent **{plain(plan.agent.name)}** on {taskset} in the sandbox {plain(plan.sandbox.kind)}"
    lines = [
        f"### {plain(plan.run_id)}: {phase}",
        "",
        f"{about}; {plan.n_attempts} attempts a task, submitted by {plain(plan.owner)}.",
        "",
        row("", "mean", "95 % interval", "pass@1", "trials counted", "tasks counted"),
        row("---", "---:", "---:", "---:", "---:", "---:"),
        _policy("scored only", policies.scored_only),
        _policy("missing as zero", policies.missing_as_zero, all_counted=True),
        "",
        row("outcome", "trials"),
        row("---", "---:"),
        *(row(plain(outcome), str(n)) for outcome, n in summary.counts.items() if n),
        "",
        *_not_scored(rows),
    ]
    if len(rows) > ROWS_SHOWN:
        lines += ["", f"The table of trials shows {ROWS_SHOWN} of {len(rows)}, those without a score first."]
    return "\n".join(lines)


def _policy(name: str, policy: Policy, *, all_counted: bool = False) -> str:
    cover, passed = policy.coverage, policy.pass_at_k.get("1")
    trials = f"{cover.of_trials if all_counted else cover.trials} of {cover.of_trials}"
    tasks = f"{cover.of_tasks if all_counted else cover.tasks} of {cover.of_tasks}"
    within = policy.mean_interval
    interval = f"{within.low:.4f} to {within.high:.4f}" if within else "none"
    return row(name, _figure(policy.mean), interval, _figure(passed), trials, tasks)


def _figure(value: float | None) -> str:
    return "none" if value is None else figure(value)


def _not_scored(rows: Sequence[TrialOutcome]) -> list[str]:
    missing = [r for r in rows if r.outcome is not Outcome.SCORED]
    if not missing:
        return ["Every planned trial was scored."]
    reasons = Counter((str(r.outcome), str(r.reason)) for r in missing)
    told = ", ".join(f"{n} {plain(o)} ({plain(why)})" for (o, why), n in reasons.most_common())
    shown = [f"- {plain(r.task)}, trial {r.k}: {plain(r.message or r.reason)}" for r in missing[:REASONS_SHOWN]]
    more = [f"- and {len(missing) - REASONS_SHOWN} more"] if len(missing) > REASONS_SHOWN else []
    return [f"**Not scored:** {told}", "", *shown, *more]
