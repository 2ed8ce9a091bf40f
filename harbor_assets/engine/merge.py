"""From outcome rows to a bundle: every file's content, from the plan and the account. Pure; same input, same bytes.

The mean in `summary.json` is that of the scored trials (`outcomes.json`: `policies.scored_only`), since a trial without
a reward stands as `failed`. pass@k there counts such a trial as not passed, as `policies.missing_as_zero` does.

Files come as iterators of bytes: with ten thousand trials no file is ever held whole.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from pydantic import JsonValue

from harbor_assets.domain import bundle, credentials
from harbor_assets.domain.bundle import AgentOutput, Manifest, RunMetadata, RunnerInfo, Summary, Trial
from harbor_assets.domain.conditions import CONFIG_KEY as CONDITIONS
from harbor_assets.domain.conditions import conditions_of
from harbor_assets.domain.errors import Broken
from harbor_assets.domain.outcomes import TrialOutcome
from harbor_assets.domain.phases import RunPhase
from harbor_assets.domain.plans import RunPlan
from harbor_assets.domain.policies import OutcomeSummary, account
from harbor_assets.domain.summary import summarise
from harbor_assets.engine.bundle_rows import BundleRows
from harbor_assets.engine.evidence import OUTPUT_TEXT_MAX, evidence_of, final_message
from harbor_assets.engine.ports import BundleTables
from harbor_assets.engine.report import Report, distribution, report_row, task_rows

EVIDENCE_ROOT = "evidence/harbor"

Files = Sequence[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class _Again[T](Iterable[T]):
    """An iterable that starts afresh each time, without holding its items."""

    make: Callable[[], Iterator[T]]

    def __iter__(self) -> Iterator[T]:
        return self.make()


@dataclass(frozen=True)
class BundleContent:
    """A bundle's content. `files()` gives all but the report, the tables and the evidence, which is in place."""

    plan: RunPlan
    rows: Sequence[TrialOutcome]
    phase: RunPhase
    started_at: datetime | None
    finished_at: datetime | None
    output_dir: str
    evidence: Mapping[str, Files]
    instructions: Mapping[int, str]
    trajectories: Mapping[str, bytes]
    with_report: bool
    _made: BundleRows = field(repr=False)

    @cached_property
    def summary(self) -> Summary:
        """`summary.json`."""
        return summarise(list(self._made.tasks({})), map(self._made.trial, self.rows), map(self._made.score, self.rows))

    @cached_property
    def outcomes(self) -> OutcomeSummary:
        """`outcomes.json`."""
        return account(self.rows)

    def files(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        """(name, content in pieces) of every file, the manifest last: with it the bundle is whole."""
        yield bundle.TASKS, bundle.lines(self._made.tasks(self.instructions))
        yield bundle.TRIALS, bundle.lines(map(self._trial, self.rows))
        yield bundle.SCORES, bundle.lines(map(self._made.score, self.rows))
        yield bundle.OUTCOMES, bundle.lines(self.rows)
        yield bundle.OUTCOME_SUMMARY, iter([bundle.document(self.outcomes)])
        yield bundle.SUMMARY, iter([bundle.document(self.summary)])
        yield bundle.METADATA, iter([bundle.document(self._metadata())])
        page = bundle.REPORT if self.with_report else None
        manifest = Manifest(run_id=self.plan.run_id, output_dir=self.output_dir, dashboard_path=page)
        yield bundle.MANIFEST, iter([bundle.document(manifest)])

    @property
    def tables(self) -> BundleTables:
        """The rows of `trials.parquet` and `scores.parquet`; their columns are told in `leaderboard/parquet.py`."""
        return BundleTables(
            trials=_Again(lambda: map(self._made.trial_columns, self.rows)),
            scores=_Again(lambda: (line for row in self.rows for line in self._made.score_columns(row))),
        )

    @property
    def report(self) -> Report:
        """What the report shows."""
        return Report(
            plan=self.plan,
            phase=self.phase,
            started_at=self.started_at,
            finished_at=self.finished_at,
            summary=self.outcomes,
            bars=distribution(self.rows),
            rows=_Again(lambda: (report_row(row, self.evidence.get(row.trial_id, ())) for row in self.rows)),
            tasks=_Again(lambda: task_rows(self.rows)),
        )

    def _trial(self, row: TrialOutcome) -> Trial:
        if row.evidence is None:
            return self._made.trial(row)
        trajectory = self.trajectories.get(row.trial_id)
        text = final_message(trajectory) if trajectory is not None else None
        proof = evidence_of(row.evidence, self.evidence.get(row.trial_id, ()), trajectory=text is not None)
        about: dict[str, JsonValue] = {"harbor_trial_dir": row.evidence}
        if text and len(text) > OUTPUT_TEXT_MAX:
            about["output_text_characters"] = len(text)
            text = text[:OUTPUT_TEXT_MAX]
        return self._made.trial(row, AgentOutput(output_text=text or None, metadata=about), proof)

    def _metadata(self) -> RunMetadata:
        plan, sandbox = self.plan, self.plan.sandbox
        started = self.started_at or plan.created_at  # a publication needs a clock even if nothing ever ran
        config: dict[str, JsonValue] = {
            "agent_name": plan.agent.name,
            "agent_import_path": None,
            "agent_model_name": None,
            "agent_kwargs": _redacted(plan.agent.kwargs),
            "env_secrets": {},
            "env_vars": dict(plan.agent.env),
            "effective_agent": plan.agent.name,
            "n_attempts": plan.n_attempts,
            "job_dir": EVIDENCE_ROOT,
            "jobs_dir": "evidence",
            "job_name": plan.run_id,
            "reward_key": plan.reward_key,
            "agent_timeout_multiplier": plan.agent_timeout_multiplier,
            "agent_version": plan.agent.version,
            CONDITIONS: conditions_of(plan).model_dump(mode="json"),
        }
        labels = {
            "run_id": plan.run_id,
            "workspace": plan.workspace,
            "owner": plan.owner,
            "taskset_ref": plan.taskset_ref,
            "phase": self.phase.value,
            "agent": plan.agent.name,
            "sandbox": sandbox.kind,
            "sandbox_why": sandbox.why,
            "sandbox_notes": "; ".join(sandbox.notes),
            "sandbox_fingerprint": sandbox.fingerprint or "",
            "min_coverage": "" if plan.min_coverage is None else f"{plan.min_coverage:g}",
            "skipped_tasks": str(len(plan.skipped)),
            "rerun_of": plan.rerun_of or "",
            "regrade_of": plan.regrade_of or "",
            "harbor_assets_version": plan.harbor_assets_version,
            **(plan.publication.labels() if plan.publication else {}),
        }
        return RunMetadata(
            labels={name: value for name, value in labels.items() if value},
            target=RunnerInfo(name="harbor", kind="runner", version=plan.harbor_version, config=config),
            started_at=started,
            finished_at=self.finished_at,
            duration_sec=max(0.0, (self.finished_at - started).total_seconds()) if self.finished_at else None,
        )


def merge(
    plan: RunPlan,
    outcomes: Sequence[TrialOutcome],
    *,
    evidence: Mapping[str, Files],
    instructions: Mapping[int, str],
    phase: RunPhase,
    started_at: datetime | None,
    finished_at: datetime | None,
    output_dir: str,
    trajectories: Mapping[str, bytes] | None = None,
    with_report: bool = True,
) -> BundleContent:
    """The bundle of a run that has ended.

    `outcomes`: one row per planned trial, in any order. `evidence`: trial id -> (path relative to the trial's folder,
    bytes) of its files; `trajectories`: trial id -> content of `agent/trajectory.json`; `instructions`: task index ->
    what the agent was told. The three may be lazy mappings: each entry is asked for as its row is written.
    `output_dir`: where the bundle is kept, for the record. `with_report`: whether `report.html` will lie beside it.

    Raises `Broken` if a planned trial has no row, or two, or a row was not planned.
    """
    rows = _checked(plan, outcomes)
    return BundleContent(
        plan=plan,
        rows=rows,
        phase=phase,
        started_at=started_at,
        finished_at=finished_at,
        output_dir=output_dir,
        evidence=evidence,
        instructions=instructions,
        trajectories=trajectories or {},
        with_report=with_report,
        _made=BundleRows.of(plan, rows),
    )


def _checked(plan: RunPlan, outcomes: Sequence[TrialOutcome]) -> list[TrialOutcome]:
    planned = {(task.index, k) for task in plan.tasks for k in range(1, plan.n_attempts + 1)}
    have = Counter((row.index, row.k) for row in outcomes)
    wrong = {
        "without a row": sorted(planned - have.keys()),
        "with more than one row": sorted(key for key, n in have.items() if n > 1),
        "that were not planned": sorted(have.keys() - planned),
        "of another run": sorted((row.index, row.k) for row in outcomes if row.run_id != plan.run_id),
    }
    for what, keys in wrong.items():
        if keys:
            some = ", ".join(f"task {index} trial {k}" for index, k in keys[:5])
            raise Broken(f"Run {plan.run_id} cannot be merged: {len(keys)} trials {what} ({some})")
    return sorted(outcomes, key=lambda row: (row.index, row.k))


def _redacted(value: Any) -> Any:
    """Agent arguments without the values whose names sound like credentials."""
    if isinstance(value, dict):
        return {k: "[redacted]" if credentials.NAME.search(k) else _redacted(v) for k, v in value.items()}
    return [_redacted(item) for item in value] if isinstance(value, list) else value
