"""The lines and table rows of a bundle: how a plan and its outcome rows read in the bundle format. Pure.

A trial without a reward stands as `failed` with its reason as the error's type. A trial that was graded after an error
is `partial`, carries the error, and counts.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from pydantic import JsonValue

from harbor_assets.domain.bundle import (
    TRIAL_STATUS_DETAIL,
    AgentOutput,
    BundleError,
    BundleTask,
    Diagnostic,
    Evidence,
    MetricDescriptor,
    OutputDescriptor,
    OutputValue,
    Score,
    Trial,
    TrialMeasurements,
)
from harbor_assets.domain.outcomes import Outcome, Reason, TrialOutcome
from harbor_assets.domain.plans import PlannedTask, RunPlan
from harbor_assets.engine.report import duration

METRIC = "harbor_reward"
_TRACEBACK_MAX = 8192  # the format's own cut; the end of a traceback is its point
_UNNAMEABLE = ("reserved_key", "invalid_key")  # rejected names that cannot be an output


@dataclass(frozen=True, slots=True)
class BundleRows:
    """Makes the rows of one run. `ids`, `outputs`, `positions`: by task index, the id, the outputs and the place."""

    plan: RunPlan
    ids: Mapping[int, str]
    outputs: Mapping[int, Sequence[str]]
    positions: Mapping[int, int]

    @classmethod
    def of(cls, plan: RunPlan, rows: Iterable[TrialOutcome]) -> Self:
        """For a plan and all its outcome rows: a task's outputs are known only when every trial of it is."""
        return cls(
            plan=plan,
            ids=_task_ids(plan.tasks),
            outputs=_declared_outputs(plan.tasks, plan.reward_key, rows),
            positions={task.index: i for i, task in enumerate(plan.tasks)},
        )

    def of_tasks(self, rows: Sequence[TrialOutcome]) -> Self:
        """The same for these rows alone, which are all the rows of their tasks: a run has thousands."""
        tasks = [self.plan.task(index) for index in sorted({row.index for row in rows})]
        return replace(self, outputs=_declared_outputs(tasks, self.plan.reward_key, rows))

    def tasks(self, instructions: Mapping[int, str]) -> Iterator[BundleTask]:
        """`tasks.jsonl`, by task index: what each agent was told and what its trials are measured by."""
        for task in self.plan.tasks:
            yield BundleTask(
                id=self.ids[task.index],
                intent=self.ids[task.index],
                inputs={"instruction": instructions.get(task.index)},
                metrics=[
                    MetricDescriptor(
                        type=METRIC,
                        outputs=[
                            OutputDescriptor(name=name, value_schema="ContinuousScore", required=i == 0)
                            for i, name in enumerate(self.outputs[task.index])
                        ],
                    )
                ],
                metadata={"index": task.index, "native_task_id": task.native_task_id, "task_ref": task.ref},
            )

    def trial(self, row: TrialOutcome, output: AgentOutput | None = None, evidence: Evidence | None = None) -> Trial:
        """The line of a trial; what its folder holds is given by the caller, who may not need it."""
        scored = row.outcome is Outcome.SCORED
        error = _error(row)
        return Trial(
            id=row.trial_id,
            task_id=self.ids[row.index],
            status="failed" if not scored else "partial" if error else "completed",
            output=output or (AgentOutput() if scored else None),
            evidence=evidence,
            error=error,
            measurements=TrialMeasurements.model_validate(row.measurements.model_dump()),
            metadata=_trial_metadata(row),
        )

    def score(self, row: TrialOutcome) -> Score:
        """The line of a trial's score: its rewards, or that it has none because it failed."""
        task_id = self.ids[row.index]
        scored = row.outcome is Outcome.SCORED
        return Score(
            id=f"{row.run_id}:{task_id}:{row.trial_id}:{METRIC}",
            run_id=row.run_id,
            task_id=task_id,
            trial_id=row.trial_id,
            metric_type=METRIC,
            status="completed" if scored else "failed",
            outputs=[OutputValue(name=name, value=value) for name, value in self._values(row)] if scored else [],
            diagnostics=list(self._diagnostics(row)) if scored else [_dead(row)],
            metadata={"row_index": self.positions[row.index], "trial_metadata": _trial_metadata(row)},
        )

    def _values(self, row: TrialOutcome) -> Iterator[tuple[str, float]]:
        assert row.reward is not None
        yield row.reward_key, row.reward
        for name in self.outputs[row.index][1:]:
            if name in row.rewards:
                yield name, row.rewards[name]

    def _diagnostics(self, row: TrialOutcome) -> Iterator[Diagnostic]:
        for flag in row.flags:
            yield _info(f"the reward {row.reward} is outside 0 to 1", output=row.reward_key, reason=flag)
        for name in self.outputs[row.index][1:]:
            if name not in row.rewards:
                reason = row.reward_rejections.get(name, "absent")
                yield _info(f"this trial gave no usable '{name}'", output=name, reason=reason)
        for name, reason in row.reward_rejections.items():
            if reason in _UNNAMEABLE:
                yield _info(f"the reward '{name}' was not taken", reason=reason)
        for reason in row.reward_entry_rejections:
            yield _info("a reward whose name cannot be shown was not taken", reason=reason)

    def trial_columns(self, row: TrialOutcome) -> dict[str, Any]:
        """The row of a trial in `trials.parquet`."""
        ends = [one.end for one in row.tries if one.end]
        task = self.plan.task(row.index)
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
            "archive": task.fileset_ref,
            "archive_hash": task.files_hash,
            "agent_image": task.images.get("agent"),
            "verifier_image": task.images.get("verifier"),
            "verifier_revision": row.task_ref.partition("#")[2] or None,  # verifiers lie in the tasks' archives
        }

    def score_columns(self, row: TrialOutcome) -> Iterator[dict[str, Any]]:
        """The rows of `scores.parquet` that a trial gives: one for each output its task declares."""
        given = dict(self._values(row)) if row.outcome is Outcome.SCORED else {}
        for name in self.outputs[row.index]:
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


def _task_ids(tasks: Sequence[PlannedTask]) -> dict[int, str]:
    """A task is known by its native id; where a taskset has one twice (of two suites), by its stored name as well."""
    seen = Counter(task.native_task_id for task in tasks)
    return {
        task.index: task.native_task_id if seen[task.native_task_id] == 1 else f"{task.native_task_id} ({task.name})"
        for task in tasks
    }


def _declared_outputs(
    tasks: Iterable[PlannedTask], reward_key: str, rows: Iterable[TrialOutcome]
) -> dict[int, list[str]]:
    """Per task: the primary reward, then every other name seen in any of its trials, sorted."""
    seen: dict[int, set[str]] = defaultdict(set)
    for row in rows:
        seen[row.index].update(row.rewards)
        seen[row.index].update(name for name, why in row.reward_rejections.items() if why not in _UNNAMEABLE)
    return {task.index: [reward_key, *sorted(seen[task.index] - {reward_key})] for task in tasks}


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
        details={TRIAL_STATUS_DETAIL: "failed"},
    )


def _info(message: str, **details: JsonValue) -> Diagnostic:
    return Diagnostic(severity="info", message=message, source=METRIC, details=details)
