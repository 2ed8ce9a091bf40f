"""Scoring: what the metrics of a task say of given trials, as the rows of a bundle. Pure but for the templates.

The rules are the bundle format's. A trial that failed is not scored, a metric that cannot say anything of a trial is a
failed score with its reason; neither is ever a zero.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue, ValidationError

from harbor_assets.domain.agent_eval import AgentEvalTask
from harbor_assets.domain.bundle import (
    TRIAL_STATUS_DETAIL,
    AgentOutput,
    BundleTask,
    Diagnostic,
    MetricDescriptor,
    OutputDescriptor,
    OutputValue,
    Score,
    Trial,
)
from harbor_assets.domain.errors import Problem, Refused
from harbor_assets.domain.metrics.bodies import InlinePayload, MetricInline
from harbor_assets.domain.metrics.builtin import Computed, LlmJudge, definition
from harbor_assets.engine.metric_ports import Templates

PROBLEMS_MAX = 100  # told at once: who has more has the same mistake in each


@dataclass(frozen=True, slots=True)
class ScoringMetric:
    """A metric that is ready to compute."""

    descriptor: MetricDescriptor
    computed: Computed

    @property
    def type(self) -> str:
        return self.descriptor.type


@dataclass(frozen=True, slots=True)
class ScoringTask:
    """A task with its place in the evaluation (from 0)."""

    place: int
    row: BundleTask
    metrics: Sequence[ScoringMetric]


def prepare(tasks: Sequence[AgentEvalTask], templates: Templates) -> list[ScoringTask]:
    """The tasks ready to be scored. Raises `Refused` naming every task that cannot be, and why."""
    problems: list[Problem] = []
    ready: list[ScoringTask] = []
    for place, task in enumerate(tasks):
        try:
            ready.append(_prepared(place, task, templates))
        except Refused as refused:
            problems += refused.problems or [Problem(task.id, refused.message)]
    if problems:
        more = len(problems) - PROBLEMS_MAX
        raise Refused(
            "The tasks cannot be scored:",
            [*problems[:PROBLEMS_MAX], *([Problem("", f"and {more} more")] if more > 0 else [])],
        )
    return ready


def check_trials(tasks: Sequence[ScoringTask], trials: Sequence[Trial]) -> None:
    """Raises `Refused` for trials of unknown tasks, tasks without any trial, and ids of trials that stand twice."""
    known, tried = {task.row.id for task in tasks}, {trial.task_id for trial in trials}
    seen: set[str] = set()
    twice = {trial.id for trial in trials if trial.id in seen or seen.add(trial.id)}
    problems = [
        *(Problem(task, "has no trial") for task in sorted(known - tried)),
        *(Problem(task, "is no task of this evaluation, but has trials") for task in sorted(tried - known)),
        *(Problem(trial, "is the id of two trials") for trial in sorted(twice)),
    ]
    if problems:
        raise Refused("The trials cannot be scored:", problems[:PROBLEMS_MAX])


def score(run_id: str, tasks: Sequence[ScoringTask], trials: Sequence[Trial], templates: Templates) -> Iterator[Score]:
    """A score for each (task, trial, metric), in this order. Trials were held to `check_trials`."""
    of_task: dict[str, list[Trial]] = {task.row.id: [] for task in tasks}
    for trial in trials:
        of_task[trial.task_id].append(trial)
    for task in tasks:
        for trial in of_task[task.row.id]:
            for metric in task.metrics:
                yield _score(run_id, task, trial, metric, templates)


def _prepared(place: int, task: AgentEvalTask, templates: Templates) -> ScoringTask:
    problems: list[Problem] = []
    metrics: list[ScoringMetric] = []
    if not task.metrics:
        problems.append(Problem(task.id, "has no metrics to be scored by"))
    for metric in task.metrics:
        try:
            metrics.append(_metric(metric, templates))
        except Refused as refused:
            problems.append(Problem(task.id, f"metric '{metric.metric_type}': {refused.message}"))
    if problems:
        raise Refused("", problems)
    try:
        row = BundleTask(
            id=task.id,
            intent=task.intent,
            inputs=task.inputs.model_dump(mode="json"),
            reference=task.reference,
            metrics=[metric.descriptor for metric in metrics],
            views=task.views,
            metadata={item.key: item.value for item in task.metadata},
        )
    except ValidationError as error:
        raise Refused(str(error.errors()[0]["msg"]).removeprefix("Value error, ")) from None
    return ScoringTask(place, row, metrics)


def _metric(metric: MetricInline, templates: Templates) -> ScoringMetric:
    if not isinstance(metric.payload, InlinePayload):
        raise Refused("is pickled, and nothing here loads what others pickled; score with a metric given as JSON")
    known = definition(metric.payload.definition)
    if isinstance(known, LlmJudge):
        raise Refused("asks a language model, which is not available here; leave it out of what is scored")
    if not isinstance(known, Computed):
        raise Refused("is of a type that is stored here but not computed")
    for template in known.templates.values():
        templates.check(template)
    outputs = [
        OutputDescriptor(
            name=output.name,
            description=output.description,
            value_schema=output.value_schema,
            required=output.required,
        )
        for output in metric.outputs
    ]
    return ScoringMetric(MetricDescriptor(type=metric.metric_type, outputs=outputs), known)


def _score(run_id: str, task: ScoringTask, trial: Trial, metric: ScoringMetric, templates: Templates) -> Score:
    outputs: list[OutputValue] = []
    diagnostics: list[Diagnostic] = []
    if trial.status == "failed":
        diagnostics = [_failed(metric, f"the trial failed{_why(trial)}", **{TRIAL_STATUS_DETAIL: "failed"})]
    else:
        try:
            outputs = _computed(task, trial, metric, templates)
        except Refused as refused:
            diagnostics = [_failed(metric, refused.message, exception_type=type(refused).__name__)]
    return Score(
        id=f"{run_id}:{task.row.id}:{trial.id}:{metric.type}",
        run_id=run_id,
        task_id=task.row.id,
        trial_id=trial.id,
        metric_type=metric.type,
        status="failed" if diagnostics else "completed",
        outputs=outputs,
        diagnostics=diagnostics,
        metadata={"row_index": task.place, "trial_metadata": trial.metadata},
    )


def _computed(task: ScoringTask, trial: Trial, metric: ScoringMetric, templates: Templates) -> list[OutputValue]:
    values = template_values(task.row, trial.output)

    def text(template: str | None, field: str) -> str:
        if template is not None:
            try:
                return templates.render(template, values)
            except Refused as refused:
                raise Refused(f"{field}: {refused.message}") from None
        answered = trial.output.output_text if trial.output else None
        if answered is None:
            raise Refused("the trial has no output_text, and the metric names no candidate")
        return answered

    found = metric.computed.compute(text)
    return [
        OutputValue(name=output.name, value="NaN" if math.isnan(found[output.name]) else found[output.name])
        for output in metric.descriptor.outputs
    ]


def template_values(task: BundleTask, output: AgentOutput | None) -> Mapping[str, JsonValue]:
    """What templates can name.

    `item`: the task: `intent`, `inputs`, `reference` and `metadata`, the members of inputs and reference also by
    themselves, and `output`, what the agent answered, unless the task has a member of that name. `sample`:
    `output_text`, `response` and the output's metadata. Every member of both also without `item.` and `sample.`,
    those of `sample` first. What is null is not there: a template that names it fails.
    """
    sample: dict[str, JsonValue] = {}
    if output is not None:
        sample = {**output.metadata, "response": output.response, "output_text": output.output_text}
        sample = {name: value for name, value in sample.items() if value is not None}
    item: dict[str, JsonValue] = {
        **({"output": output.output_text} if output and output.output_text is not None else {}),
        **{name: value for name, value in task.inputs.items() if value is not None},
        **task.reference,
        "intent": task.intent,
        "inputs": task.inputs,
        "reference": task.reference,
        "metadata": task.metadata,
    }
    return {**item, **sample, "item": item, "sample": sample}


def _failed(metric: ScoringMetric, message: str, **details: JsonValue) -> Diagnostic:
    return Diagnostic(severity="error", message=message, source=metric.type, details=details)


def _why(trial: Trial) -> str:
    if trial.error is None:
        return ""
    return f": {trial.error.type}" + (f", {trial.error.message}" if trial.error.message else "")
