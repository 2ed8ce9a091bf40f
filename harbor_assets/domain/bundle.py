"""The result bundle `agent-eval-results/`: the shapes of its files, as existing readers of that format expect them.

========================  =========================================================================
`run.json`                `Manifest`
`metadata.json`           `RunMetadata`
`summary.json`            `Summary`
`tasks.jsonl`             one `BundleTask` a line
`trials.jsonl`            one `Trial` a line
`scores.jsonl`            one `Score` a line: (task, trial, metric)
`outcomes.jsonl`          ours: one `TrialOutcome` a line (`domain/outcomes.py`)
`outcomes.json`           ours: `OutcomeSummary` (`domain/policies.py`)
`trials.parquet`, ...     ours: the same rows as tables
`report.html`             one self-contained page
`evidence/harbor/...`     the trial folders
========================  =========================================================================

Unknown members are an error: readers of this format refuse them too. Objects are written with two spaces and sorted
keys, rows with sorted keys, both in strict JSON (no NaN) with non-ASCII characters escaped. Times carry an offset.
"""

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Discriminator, Field, JsonValue, Tag, model_validator

BUNDLE_FOLDER = "agent-eval-results"
MANIFEST, METADATA, SUMMARY = "run.json", "metadata.json", "summary.json"
TASKS, TRIALS, SCORES = "tasks.jsonl", "trials.jsonl", "scores.jsonl"
OUTCOMES, OUTCOME_SUMMARY = "outcomes.jsonl", "outcomes.json"
REPORT = "report.html"
TRIALS_TABLE, SCORES_TABLE = "trials.parquet", "scores.parquet"

NON_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}  # how rows escape them


class Row(BaseModel):
    """Base of the format's objects: unknown members are refused by name."""

    model_config = ConfigDict(frozen=True, extra="forbid")


# --- run.json, metadata.json --------------------------------------------------------------------------------------


class Parts(Row):
    """Where a bundle's parts lie, relative to it."""

    metadata: str = METADATA
    tasks: str = TASKS
    trials: str = TRIALS
    scores: str = SCORES
    summary: str = SUMMARY


class Manifest(Row):
    """`run.json`. `output_dir` is where the bundle was first written: a record, not a path to follow."""

    run_id: str
    output_dir: str
    dashboard_path: str | None = None
    artifacts: Parts = Parts()


class RunnerInfo(Row):
    """What made the trials. `config` never holds secrets."""

    name: str
    kind: str = "runner"
    version: str | None = None
    config: dict[str, JsonValue] = {}


class RunMetadata(Row):
    """`metadata.json`. `started_at` is the clock by which a publication of this run is told from another."""

    labels: dict[str, str] = {}
    target: RunnerInfo | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    duration_sec: float | None = None
    sdk_version: str | None = None


# --- tasks.jsonl --------------------------------------------------------------------------------------------------


class OutputDescriptor(Row):
    """One output of a metric. `required` is written only when it is False."""

    name: str
    description: str | None = None
    value_schema: str
    required: bool = Field(default=True, exclude_if=lambda value: value is True)


class MetricDescriptor(Row):
    """What a metric is called and what it gives; the metric itself is not stored."""

    type: str
    outputs: list[OutputDescriptor]


class ViewSignal(Row):
    metric: str
    output: str
    weight: float | None = None


class SemanticView(Row):
    """A number made of several outputs of one trial."""

    reducer: Literal["single", "all", "any", "mean", "weighted_mean"]
    signals: list[ViewSignal] = Field(min_length=1)


class BundleTask(Row):
    """One line of `tasks.jsonl`. `inputs.instruction` is the only text an agent is given."""

    id: Annotated[str, Field(pattern=r"\S")]
    intent: str
    inputs: dict[str, JsonValue]
    reference: dict[str, JsonValue] = {}
    metrics: list[MetricDescriptor] = []
    views: dict[str, SemanticView] = {}
    metadata: dict[str, JsonValue] = {}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        declared = {metric.type: {output.name for output in metric.outputs} for metric in self.metrics}
        if len(declared) != len(self.metrics):
            raise ValueError(f"task '{self.id}' has two metrics of one type")
        for name, view in self.views.items():
            for signal in view.signals:
                if signal.output not in declared.get(signal.metric, ()):
                    raise ValueError(f"view '{name}' names {signal.metric}.{signal.output}, which no metric declares")
        return self


# --- trials.jsonl -------------------------------------------------------------------------------------------------

TrialStatus = Literal["completed", "partial", "failed"]


class AgentOutput(Row):
    output_text: str | None = None
    response: JsonValue = None
    metadata: dict[str, JsonValue] = {}


class Descriptor(Row):
    """One piece of evidence: a file or folder (`ref`, relative to the bundle if it lies there) or the data itself."""

    kind: str
    ref: str | None = None
    format: str | None = None
    data: JsonValue = None
    description: str | None = None
    metadata: dict[str, JsonValue] = {}

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.ref is None and self.data is None:
            raise ValueError("a descriptor needs a ref or data")
        return self


class Evidence(Row):
    """Evidence by key. A bare mapping of descriptors is read as well."""

    descriptors: dict[str, Descriptor] = {}
    metadata: dict[str, JsonValue] = {}

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: Any) -> Any:
        if isinstance(value, dict) and not set(value) <= {"descriptors", "metadata"}:
            return {"descriptors": value}
        return value


class BundleError(Row):
    """A trial's error as its producer told it. It does not imply that the trial failed."""

    type: Annotated[str, Field(pattern=r"\S")]
    message: str | None = None
    traceback: str | None = None
    occurred_at: str | None = None  # as written; may have no offset


Tokens = Annotated[int, Field(ge=0, strict=True)] | None
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)] | None


class TrialMeasurements(Row):
    """What a trial used; null is unknown. `total_tokens` is always prompt + completion."""

    prompt_tokens: Tokens = None
    completion_tokens: Tokens = None
    total_tokens: Tokens = None
    cache_creation_tokens: Tokens = None
    cache_read_tokens: Tokens = None
    runtime_sec: Amount = None
    cost_usd: Amount = None

    @model_validator(mode="before")
    @classmethod
    def _total(cls, value: Any) -> Any:
        if not isinstance(value, dict) or value.get("total_tokens") is not None:
            return value
        prompt, completion = value.get("prompt_tokens"), value.get("completion_tokens")
        if isinstance(prompt, int) and isinstance(completion, int):
            return {**value, "total_tokens": prompt + completion}
        return value

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if self.total_tokens is not None:
            if self.prompt_tokens is None or self.completion_tokens is None:
                raise ValueError("total_tokens needs prompt_tokens and completion_tokens")
            if self.total_tokens != self.prompt_tokens + self.completion_tokens:
                raise ValueError("total_tokens is not prompt_tokens + completion_tokens")
        return self


class Trial(Row):
    """One line of `trials.jsonl`. `completed`: an output and no error; `failed`: nothing that could be scored."""

    id: str = Field(min_length=1)
    task_id: str = Field(min_length=1)
    status: TrialStatus
    output: AgentOutput | None = None
    evidence: Evidence | None = None
    error: BundleError | None = None
    measurements: TrialMeasurements = TrialMeasurements()
    metadata: dict[str, JsonValue] = {}

    @model_validator(mode="after")
    def _has_output(self) -> Self:
        if self.status == "completed" and self.output is None:
            raise ValueError("a completed trial has an output")
        return self


# --- scores.jsonl -------------------------------------------------------------------------------------------------

TRIAL_STATUS_DETAIL = "trial_status"  # its value "failed" tells a dead trial from a broken metric


class OutputValue(Row):
    """A metric's output. Numbers that are not finite are written as "NaN", "Infinity", "-Infinity"."""

    name: str
    value: JsonValue


class Diagnostic(Row):
    severity: Literal["error", "warning", "info"]
    message: str
    source: str | None = None
    details: dict[str, JsonValue] = {}


class Score(Row):
    """One line of `scores.jsonl`: what a metric says of a trial. An output that was not given is absent, never null."""

    id: str
    run_id: str
    task_id: str
    trial_id: str
    metric_type: str
    status: Literal["completed", "failed", "partial"]
    outputs: list[OutputValue] = []
    diagnostics: list[Diagnostic] = []
    metadata: dict[str, JsonValue] = {}

    @property
    def of_dead_trial(self) -> bool:
        """True if the metric did not run because the trial had failed."""
        dead = any(d.details.get(TRIAL_STATUS_DETAIL) == "failed" for d in self.diagnostics)
        return self.status == "failed" and dead


# --- summary.json -------------------------------------------------------------------------------------------------


class Figures(Row):
    """One figure over many values. `count`: finite values, null if unknown; `nan_count`: observations without one."""

    name: str
    count: int | None = None
    nan_count: int
    sum: float | None = None
    mean: float | None = None
    min: float | None = None
    max: float | None = None
    median: float | None = None
    variance: float | None = None
    std_dev: float | None = None
    sample_variance: float | None = None
    sample_std_dev: float | None = None


class Aggregate(Figures):
    """The only kind that is written."""

    score_type: Literal["range"] = "range"
    percentiles: dict[str, float] | None = None
    histogram: JsonValue = None


class ScalarAggregate(Figures):
    """Read only: a figure that came as one value."""

    score_type: Literal["scalar"] = "scalar"
    value: float


class RubricAggregate(Figures):
    """Read only: a figure over categories."""

    score_type: Literal["rubric"] = "rubric"
    rubric_distribution: list[JsonValue]
    mode_category: str | None = None


def _score_type(value: Any) -> str:
    kind = value.get("score_type", "range") if isinstance(value, dict) else value.score_type
    return kind if isinstance(kind, str) else "range"


class Aggregates(Row):
    scores: list[
        Annotated[
            Annotated[Aggregate, Tag("range")]
            | Annotated[ScalarAggregate, Tag("scalar")]
            | Annotated[RubricAggregate, Tag("rubric")],
            Discriminator(_score_type),
        ]
    ] = []


class Coverage(Row):
    """How many observations of an output have a value. The three parts sum to `total`."""

    total: int = 0
    scored: int = 0
    failed: int = 0
    missing: int = 0


class TrialValue(Row):
    trial_id: str
    value_type: Literal["number", "label", "missing"]
    value: JsonValue = None


class Summary(Row):
    """`summary.json`. Its rules are in `domain/summary.py`."""

    task_count: int = 0
    trial_count: int = 0
    score_count: int = 0
    error_count: int = Field(default=0, ge=0)
    scores: Aggregates = Aggregates()
    metric_coverage: dict[str, dict[str, Coverage]] = {}
    task_metric_values: dict[str, dict[str, list[TrialValue]]] = {}
    error_trial_ids: dict[str, list[str]] = {}

    @model_validator(mode="after")
    def _counts_agree(self) -> Self:
        listed = sum(len(ids) for ids in self.error_trial_ids.values())
        if self.error_count != listed:
            raise ValueError(f"error_count is {self.error_count}, but error_trial_ids lists {listed}")
        return self

    def aggregate(self, name: str) -> Aggregate | ScalarAggregate | RubricAggregate | None:
        """The aggregate of that name, or None."""
        return next((aggregate for aggregate in self.scores.scores if aggregate.name == name), None)


# --- how it is written --------------------------------------------------------------------------------------------


def document(value: BaseModel) -> bytes:
    """A whole file: an object with two spaces, sorted keys and a newline at its end."""
    return _dumped(value.model_dump(mode="json"), indent=2)


def lines(rows: Iterable[BaseModel]) -> Iterator[bytes]:
    """A `.jsonl` file, line by line: sorted keys, one object each."""
    for row in rows:
        yield _dumped(row.model_dump(mode="json"))


def _dumped(plain: Any, indent: int | None = None) -> bytes:
    text = json.dumps(plain, sort_keys=True, indent=indent, allow_nan=False)
    if "\\ud" in text:  # perhaps a surrogate without its pair, as in names that are not UTF-8: most readers refuse it
        whole = json.dumps(plain, sort_keys=True, ensure_ascii=False).encode("utf-8", "replace")
        text = json.dumps(json.loads(whole), sort_keys=True, indent=indent)
    return text.encode("ascii") + b"\n"
