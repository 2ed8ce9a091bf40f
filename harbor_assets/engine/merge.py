"""From outcome rows to a bundle: every file's content, from the plan and the account. Pure; same input, same bytes.

A trial without a reward stands as `failed` with its reason as the error's type, so that the mean in `summary.json` is
that of the scored trials (`outcomes.json`: `policies.scored_only`). pass@k there counts such a trial as not passed.
A trial that was graded after an error is `partial`, carries the error, and counts.

Files come as iterators of bytes: with ten thousand trials no file is ever held whole.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from pydantic import JsonValue

from harbor_assets.domain import bundle
from harbor_assets.domain.bundle import (
    AgentOutput,
    BundleError,
    BundleTask,
    Diagnostic,
    Evidence,
    Manifest,
    MetricDescriptor,
    OutputDescriptor,
    OutputValue,
    RunMetadata,
    RunnerInfo,
    Score,
    Summary,
    Trial,
    TrialMeasurements,
)
from harbor_assets.domain.errors import Broken
from harbor_assets.domain.outcomes import Outcome, Reason, TrialOutcome
from harbor_assets.domain.phases import RunPhase
from harbor_assets.domain.plans import PlannedTask, RunPlan
from harbor_assets.domain.policies import OutcomeSummary, account
from harbor_assets.domain.summary import summarise
from harbor_assets.engine.evidence import OUTPUT_TEXT_MAX, evidence_of, final_message
from harbor_assets.engine.ports import BundleTables
from harbor_assets.engine.report import Report, distribution, duration, report_row

METRIC = "harbor_reward"
EVIDENCE_ROOT = "evidence/harbor"
_TRACEBACK_MAX = 8192  # the format's own cut; the end of a traceback is its point
_UNNAMEABLE = ("reserved_key", "invalid_key")  # rejected names that cannot be an output
_SECRET = re.compile(r"KEY|SECRET|TOKEN|PASSWORD|CREDENTIAL|AUTH", re.IGNORECASE)  # the format's own test of a name

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
    _ids: Mapping[int, str] = field(repr=False)
    _outputs: Mapping[int, Sequence[str]] = field(repr=False)

    @cached_property
    def summary(self) -> Summary:
        """`summary.json`."""
        return summarise(list(self._tasks()), (self._trial(row, evidence=False) for row in self.rows), self._scores())

    @cached_property
    def outcomes(self) -> OutcomeSummary:
        """`outcomes.json`."""
        return account(self.rows)

    def files(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        """(name, content in pieces) of every file, the manifest last: with it the bundle is whole."""
        yield bundle.TASKS, bundle.lines(self._tasks())
        yield bundle.TRIALS, bundle.lines(map(self._trial, self.rows))
        yield bundle.SCORES, bundle.lines(self._scores())
        yield bundle.OUTCOMES, bundle.lines(self.rows)
        yield bundle.OUTCOME_SUMMARY, iter([bundle.document(self.outcomes)])
        yield bundle.SUMMARY, iter([bundle.document(self.summary)])
        yield bundle.METADATA, iter([bundle.document(self._metadata())])
        manifest = Manifest(run_id=self.plan.run_id, output_dir=self.output_dir, dashboard_path=bundle.REPORT)
        yield bundle.MANIFEST, iter([bundle.document(manifest)])

    @property
    def tables(self) -> BundleTables:
        """The rows of `trials.parquet` and `scores.parquet`; their columns are told in `leaderboard/parquet.py`."""
        return BundleTables(
            trials=_Again(lambda: map(self._trial_columns, self.rows)), scores=_Again(self._score_columns)
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
        )

    # --- tasks, metadata ------------------------------------------------------------------------------------------

    def _tasks(self) -> Iterator[BundleTask]:
        for task in self.plan.tasks:
            yield BundleTask(
                id=self._ids[task.index],
                intent=self._ids[task.index],
                inputs={"instruction": self.instructions.get(task.index)},
                metrics=[
                    MetricDescriptor(
                        type=METRIC,
                        outputs=[
                            OutputDescriptor(name=name, value_schema="ContinuousScore", required=i == 0)
                            for i, name in enumerate(self._outputs[task.index])
                        ],
                    )
                ],
                metadata={"index": task.index, "native_task_id": task.native_task_id, "task_ref": task.ref},
            )

    def _metadata(self) -> RunMetadata:
        plan, sandbox = self.plan, self.plan.sandbox
        started = self.started_at or plan.created_at  # a publication needs a clock even if nothing ever ran
        config: dict[str, JsonValue] = {
            "agent_name": plan.agent.name,
            "agent_import_path": None,
            "agent_model_name": None,
            "agent_kwargs": _redacted(plan.agent.kwargs),
            "env_secrets": {},
            "env_vars": {},
            "effective_agent": plan.agent.name,
            "n_attempts": plan.n_attempts,
            "job_dir": EVIDENCE_ROOT,
            "jobs_dir": "evidence",
            "job_name": plan.run_id,
            "reward_key": plan.reward_key,
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
            "skipped_tasks": str(len(plan.skipped)),
            "harbor_assets_version": plan.harbor_assets_version,
        }
        return RunMetadata(
            labels={name: value for name, value in labels.items() if value},
            target=RunnerInfo(name="harbor", kind="runner", version=plan.harbor_version, config=config),
            started_at=started,
            finished_at=self.finished_at,
            duration_sec=max(0.0, (self.finished_at - started).total_seconds()) if self.finished_at else None,
        )

    # --- trials ---------------------------------------------------------------------------------------------------

    def _trial(self, row: TrialOutcome, *, evidence: bool = True) -> Trial:
        scored = row.outcome is Outcome.SCORED
        error = _error(row)
        output, proof = self._output(row) if evidence else (AgentOutput(), None)
        return Trial(
            id=row.trial_id,
            task_id=self._ids[row.index],
            status="failed" if not scored else "partial" if error else "completed",
            output=output,
            evidence=proof,
            error=error,
            measurements=TrialMeasurements.model_validate(row.measurements.model_dump()),
            metadata=_trial_metadata(row),
        )

    def _output(self, row: TrialOutcome) -> tuple[AgentOutput | None, Evidence | None]:
        if row.evidence is None:
            return (AgentOutput() if row.outcome is Outcome.SCORED else None), None
        trajectory = self.trajectories.get(row.trial_id)
        text = final_message(trajectory) if trajectory is not None else None
        files = self.evidence.get(row.trial_id, ())
        about: dict[str, JsonValue] = {"harbor_trial_dir": row.evidence}
        if text and len(text) > OUTPUT_TEXT_MAX:
            about["output_text_characters"] = len(text)
            text = text[:OUTPUT_TEXT_MAX]
        proof = evidence_of(row.evidence, files, trajectory=text is not None)
        return AgentOutput(output_text=text or None, metadata=about), proof

    # --- scores ---------------------------------------------------------------------------------------------------

    def _scores(self) -> Iterator[Score]:
        position = {task.index: i for i, task in enumerate(self.plan.tasks)}
        for row in self.rows:
            task_id = self._ids[row.index]
            scored = row.outcome is Outcome.SCORED
            yield Score(
                id=f"{row.run_id}:{task_id}:{row.trial_id}:{METRIC}",
                run_id=row.run_id,
                task_id=task_id,
                trial_id=row.trial_id,
                metric_type=METRIC,
                status="completed" if scored else "failed",
                outputs=[OutputValue(name=name, value=value) for name, value in self._values(row)] if scored else [],
                diagnostics=list(self._diagnostics(row)) if scored else [_dead(row)],
                metadata={"row_index": position[row.index], "trial_metadata": _trial_metadata(row)},
            )

    def _values(self, row: TrialOutcome) -> Iterator[tuple[str, float]]:
        assert row.reward is not None
        yield row.reward_key, row.reward
        for name in self._outputs[row.index][1:]:
            if name in row.rewards:
                yield name, row.rewards[name]

    def _diagnostics(self, row: TrialOutcome) -> Iterator[Diagnostic]:
        for flag in row.flags:
            yield _info(f"the reward {row.reward} is outside 0 to 1", output=row.reward_key, reason=flag)
        for name in self._outputs[row.index][1:]:
            if name not in row.rewards:
                reason = row.reward_rejections.get(name, "absent")
                yield _info(f"this trial gave no usable '{name}'", output=name, reason=reason)
        for name, reason in row.reward_rejections.items():
            if reason in _UNNAMEABLE:
                yield _info(f"the reward '{name}' was not taken", reason=reason)
        for reason in row.reward_entry_rejections:
            yield _info("a reward whose name cannot be shown was not taken", reason=reason)

    # --- tables ---------------------------------------------------------------------------------------------------

    def _trial_columns(self, row: TrialOutcome) -> dict[str, Any]:
        ends = [one.end for one in row.tries if one.end]
        return {
            "run_id": row.run_id,
            "task_index": row.index,
            "task": row.task,
            "task_ref": row.task_ref,
            "native_task_id": row.native_task_id,
            "k": row.k,
            "trial_id": row.trial_id,
            "trial_key": row.trial_key,
            "outcome": row.outcome.value,
            "reason": row.reason.value,
            "message": row.message,
            "reward": row.reward,
            "reward_key": row.reward_key,
            "flags": list(row.flags),
            "error_type": row.error.type if row.error else None,
            "error_message": row.error.message if row.error else None,
            "tries": len(row.tries),
            "started_at": row.tries[0].start if row.tries else None,
            "ended_at": ends[-1] if ends else None,
            "duration_sec": duration(row),
            **row.measurements.model_dump(),
            "evidence": row.evidence,
            "taskset_ref": self.plan.taskset_ref,
            "agent": self.plan.agent.name,
            "sandbox": self.plan.sandbox.kind,
            "harbor_version": self.plan.harbor_version,
        }

    def _score_columns(self) -> Iterator[dict[str, Any]]:
        for row in self.rows:
            given = dict(self._values(row)) if row.outcome is Outcome.SCORED else {}
            for name in self._outputs[row.index]:
                value = given.get(name)
                yield {
                    "run_id": row.run_id,
                    "task_index": row.index,
                    "task": row.task,
                    "k": row.k,
                    "trial_id": row.trial_id,
                    "metric": METRIC,
                    "output": name,
                    "primary": name == row.reward_key,
                    "state": "observed" if value is not None else "missing" if given else "trial_failed",
                    "value": value,
                }


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
) -> BundleContent:
    """The bundle of a run that has ended.

    `outcomes`: one row per planned trial, in any order. `evidence`: trial id -> (path relative to the trial's folder,
    bytes) of its files; `trajectories`: trial id -> content of `agent/trajectory.json`; `instructions`: task index ->
    what the agent was told. The three may be lazy mappings: each entry is asked for as its row is written.
    `output_dir`: where the bundle is kept, for the record.

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
        _ids=_task_ids(plan.tasks),
        _outputs=_declared_outputs(plan, rows),
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


def _task_ids(tasks: Sequence[PlannedTask]) -> dict[int, str]:
    """A task is known by its native id; where a taskset has one twice (of two suites), by its stored name as well."""
    seen = Counter(task.native_task_id for task in tasks)
    return {
        task.index: task.native_task_id if seen[task.native_task_id] == 1 else f"{task.native_task_id} ({task.name})"
        for task in tasks
    }


def _declared_outputs(plan: RunPlan, rows: Iterable[TrialOutcome]) -> dict[int, list[str]]:
    """Per task: the primary reward, then every other name seen in any of its trials, sorted."""
    seen: dict[int, set[str]] = defaultdict(set)
    for row in rows:
        seen[row.index].update(row.rewards)
        seen[row.index].update(name for name, why in row.reward_rejections.items() if why not in _UNNAMEABLE)
    return {task.index: [plan.reward_key, *sorted(seen[task.index] - {plan.reward_key})] for task in plan.tasks}


def _error(row: TrialOutcome) -> BundleError | None:
    if row.outcome is Outcome.SCORED and row.reason is Reason.GRADED and row.error is None:
        return None
    source = row.error
    message = row.message or (source.message if source else None)
    return BundleError(
        type=source.type if source and row.outcome is Outcome.SCORED else row.reason.value,
        message=message,
        traceback=source.traceback[-_TRACEBACK_MAX:] if source and source.traceback else None,
        occurred_at=source.occurred_at if source else None,
    )


def _trial_metadata(row: TrialOutcome) -> dict[str, JsonValue]:
    return {
        "harbor_primary_reward_key": row.reward_key,
        "reward": row.reward,
        "reward_details": {**row.rewards, **({row.reward_key: row.reward} if row.reward is not None else {})},
        "reward_rejections": dict(row.reward_rejections),
        "reward_entry_rejections": list(row.reward_entry_rejections),
        "harbor_trial_dir": row.evidence,
        "attempt": row.k,
        "outcome": row.outcome.value,
        "reason": row.reason.value,
        "trial_key": row.trial_key,
    }


def _dead(row: TrialOutcome) -> Diagnostic:
    said = f": {row.message}" if row.message else ""
    return Diagnostic(
        severity="error",
        message=f"not scored, the trial ended {row.outcome.value} ({row.reason.value}){said}",
        source=METRIC,
        details={bundle.TRIAL_STATUS_DETAIL: "failed"},
    )


def _info(message: str, **details: JsonValue) -> Diagnostic:
    return Diagnostic(severity="info", message=message, source=METRIC, details=details)


def _redacted(value: Any) -> Any:
    """Agent arguments without the values whose names sound like credentials."""
    if isinstance(value, dict):
        return {k: "[redacted]" if _SECRET.search(k) else _redacted(v) for k, v in value.items()}
    return [_redacted(item) for item in value] if isinstance(value, list) else value
