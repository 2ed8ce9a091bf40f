"""`summary.json`: every figure of a bundle, recomputed from its rows. pass@k and percentiles do not merge.

Step 1 turns scores into observations: for each score and each output its metric declares on that task, one state.
Step 2 makes aggregates of them, in this order: every output, every view, pass@k of every output, then figures that a
runner supplies itself.

A trial that failed has no values, so it is left out of means; in pass@k it counts as tried and not passed.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from pydantic import JsonValue

from harbor_assets.domain.bundle import (
    NON_FINITE,
    Aggregate,
    Aggregates,
    BundleTask,
    Coverage,
    Score,
    SemanticView,
    Summary,
    Trial,
    TrialValue,
)
from harbor_assets.domain.statistics import PASS, REDUCERS, pass_estimates, spread

_VALUED = frozenset({"ContinuousScore", "DiscreteScore", "BooleanValue", "Label"})
_ESCAPED = frozenset({"ContinuousScore", "DiscreteScore"})  # whose non-finite values are written as strings
_PASSABLE = frozenset({"ContinuousScore", "BooleanValue"})

State = Literal["observed", "missing", "metric_failed", "trial_failed"]
Output = tuple[str, str]  # (metric, output)


@dataclass(frozen=True, slots=True)
class Observation:
    """What one score says of one declared output."""

    task_id: str
    trial_id: str
    output: Output
    state: State
    value: JsonValue = None  # numbers as numbers, also those that are not finite

    @property
    def number(self) -> float | None:
        """The value if it is a number; booleans and labels are not."""
        value = self.value
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    @property
    def graded(self) -> float | None:
        """The value as a number, a boolean as 1 or 0."""
        return float(self.value) if isinstance(self.value, int | float) else None


def summarise(
    tasks: Sequence[BundleTask], trials: Iterable[Trial], scores: Iterable[Score], *, extra: Sequence[Aggregate] = ()
) -> Summary:
    """The summary of a bundle. Rows are read once; `extra`: figures of a runner's own, named `runner.<runner>.*`."""
    by_id = {task.id: task for task in tasks}
    observations, score_count = _observe(by_id, scores)
    by_output: dict[Output, list[Observation]] = defaultdict(list)
    for seen in observations:
        by_output[seen.output].append(seen)
    count, errors = 0, defaultdict[str, list[str]](list)
    for trial in trials:
        count += 1
        if trial.error is not None:
            errors[trial.error.type].append(trial.id)
    return Summary(
        task_count=len(tasks),
        trial_count=count,
        score_count=score_count,
        error_count=sum(map(len, errors.values())),
        scores=Aggregates(
            scores=[
                *(
                    _aggregate(".".join(output), _numbers(by_output[output]), len(by_output[output]))
                    for output in sorted(by_output)
                ),
                *_views(tasks, observations),
                *_pass_at_k(by_id, by_output),
                *extra,
            ]
        ),
        metric_coverage=_coverage(by_output),
        task_metric_values=_values(tasks, observations),
        error_trial_ids=dict(errors),
    )


def _observe(tasks: Mapping[str, BundleTask], scores: Iterable[Score]) -> tuple[list[Observation], int]:
    """The observations in the order of the scores, and how many scores there were."""
    found: list[Observation] = []
    count = 0
    declared = {(task.id, metric.type): metric.outputs for task in tasks.values() for metric in task.metrics}
    for score in scores:
        count += 1
        given = {output.name: output.value for output in score.outputs}
        dead = score.of_dead_trial
        for output in declared.get((score.task_id, score.metric_type), ()):
            state: State = "observed"
            if dead:
                state = "trial_failed"
            elif score.status == "failed":
                state = "metric_failed"
            elif output.name not in given:
                state = "missing"
            value = given[output.name] if state == "observed" else None
            if output.value_schema in _ESCAPED and isinstance(value, str):
                value = NON_FINITE.get(value, value)
            found.append(Observation(score.task_id, score.trial_id, (score.metric_type, output.name), state, value))
    return found, count


def _numbers(observations: Iterable[Observation]) -> list[float]:
    return [seen.number for seen in observations if seen.number is not None]


def _aggregate(name: str, values: Iterable[float], total: int) -> Aggregate:
    found = spread(values)
    return Aggregate(name=name, nan_count=max(total - found.count, 0), **asdict(found))


def _views(tasks: Iterable[BundleTask], observations: Iterable[Observation]) -> Iterator[Aggregate]:
    declared: dict[str, dict[str, SemanticView]] = {task.id: task.views for task in tasks if task.views}
    by_trial: dict[tuple[str, str], dict[Output, Observation]] = defaultdict(dict)
    for seen in observations:
        if seen.task_id in declared:
            by_trial[seen.task_id, seen.trial_id][seen.output] = seen
    reduced: dict[str, list[float | None]] = defaultdict(list)
    for (task_id, _), found in by_trial.items():
        for name, view in declared[task_id].items():
            reduced[name].append(_reduce(view, found))
    for name in sorted(reduced):
        yield _aggregate(f"view.{name}", [v for v in reduced[name] if v is not None], len(reduced[name]))


def _reduce(view: SemanticView, found: Mapping[Output, Observation]) -> float | None:
    values = []
    for signal in view.signals:
        seen = found.get((signal.metric, signal.output))
        value = seen.graded if seen else None
        if value is None or not math.isfinite(value):
            return None
        values.append(value)
    weights = [1.0 if signal.weight is None else signal.weight for signal in view.signals]
    return REDUCERS[view.reducer](values, weights)


def _pass_at_k(
    tasks: Mapping[str, BundleTask], by_output: Mapping[Output, Sequence[Observation]]
) -> Iterator[Aggregate]:
    declaring: dict[Output, set[str]] = defaultdict(set)
    for task in tasks.values():
        for metric in task.metrics:
            for output in metric.outputs:
                if output.value_schema in _PASSABLE:
                    declaring[metric.type, output.name].add(task.id)
    for output in sorted(declaring):
        of_task: dict[str, list[Observation]] = defaultdict(list)
        for seen in by_output.get(output, ()):
            if seen.task_id in declaring[output]:
                of_task[seen.task_id].append(seen)
        tried = [_tried_and_passed(of_task.get(task_id, ())) for task_id in tasks if task_id in declaring[output]]
        for k in range(1, max(map(len, of_task.values()), default=0) + 1):
            yield _aggregate(f"{'.'.join(output)}.pass@{k}", pass_estimates(tried, k), len(tried))


def _tried_and_passed(observations: Iterable[Observation]) -> tuple[int, int]:
    """(trials that count, passes): a dead trial counts, a broken metric and an output not given do not."""
    counted = [seen for seen in observations if seen.state in ("observed", "trial_failed")]
    return len(counted), sum(seen.graded is not None and seen.graded >= PASS for seen in counted)


def _coverage(by_output: Mapping[Output, Sequence[Observation]]) -> dict[str, dict[str, Coverage]]:
    found: dict[str, dict[str, Coverage]] = defaultdict(dict)
    for metric, output in sorted(by_output):
        states = [seen.state for seen in by_output[metric, output]]
        found[metric][output] = Coverage(
            total=len(states),
            scored=states.count("observed"),
            failed=states.count("metric_failed") + states.count("trial_failed"),
            missing=states.count("missing"),
        )
    return dict(found)


def _values(tasks: Iterable[BundleTask], observations: Iterable[Observation]) -> dict[str, dict[str, list[TrialValue]]]:
    found: dict[str, dict[str, list[TrialValue]]] = {
        task.id: {
            f"{metric.type}.{output.name}": []
            for metric in task.metrics
            for output in metric.outputs
            if output.value_schema in _VALUED
        }
        for task in tasks
    }
    for seen in observations:
        records = found[seen.task_id].get(".".join(seen.output))
        if records is None:
            continue
        if seen.state == "trial_failed":
            records.append(TrialValue(trial_id=seen.trial_id, value_type="missing"))
        elif isinstance(seen.value, bool | int | float | str):
            records.append(_record(seen.trial_id, seen.value))
    return found


def _record(trial_id: str, value: bool | int | float | str) -> TrialValue:
    if isinstance(value, str):
        return TrialValue(trial_id=trial_id, value_type="label", value=value)
    if isinstance(value, float) and not math.isfinite(value):
        escape = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return TrialValue(trial_id=trial_id, value_type="number", value=escape)
    return TrialValue(trial_id=trial_id, value_type="number", value=value)
