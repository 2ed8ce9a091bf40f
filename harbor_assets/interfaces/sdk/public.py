"""The names of `harbor_assets.sdk`: those which users of the API's own SDK know, and what else they come across."""

from harbor_assets.domain.agent_eval import AgentEvalInputSpec, AgentEvalJob, AgentEvalResult, AgentEvalTaskInput
from harbor_assets.domain.asking import SqlAnswer
from harbor_assets.domain.bundle import BundleTask, RunMetadata, Score, SemanticView, Summary, Trial
from harbor_assets.domain.errors import (
    BadArchive,
    Broken,
    Conflict,
    Forbidden,
    HarborAssetsError,
    HomeUnusable,
    IdempotencyConflict,
    Malformed,
    NotFound,
    NotReady,
    Problem,
    Refused,
    ServiceUnavailable,
    StorageFull,
    TooMany,
    Unauthenticated,
)
from harbor_assets.domain.experiments import (
    Evaluation,
    EvaluationPatch,
    EvaluationUpdate,
    EvaluatorResult,
    Experiment,
    ExperimentUpdate,
    Pareto,
)
from harbor_assets.domain.experiments import StoredSession as Session
from harbor_assets.domain.marks import Mark, Verdict
from harbor_assets.domain.metrics.bodies import Metric, MetricInline
from harbor_assets.domain.metrics.builtin import F1 as F1Metric
from harbor_assets.domain.metrics.builtin import Bleu as BLEUMetric
from harbor_assets.domain.metrics.builtin import ExactMatch as ExactMatchMetric
from harbor_assets.domain.metrics.builtin import LlmJudge as LLMJudgeMetric
from harbor_assets.domain.metrics.builtin import NumberCheck as NumberCheckMetric
from harbor_assets.domain.metrics.builtin import RangeScore, RubricScore
from harbor_assets.domain.metrics.builtin import Rouge as ROUGEMetric
from harbor_assets.domain.metrics.builtin import StringCheck as StringCheckMetric
from harbor_assets.domain.outcomes import Outcome, Reason, TrialOutcome
from harbor_assets.domain.phases import ResultState, RunPhase, TaskPhase
from harbor_assets.domain.policies import OutcomeSummary
from harbor_assets.domain.requests import RunRequest
from harbor_assets.domain.tasks import Annotation as MetadataItem
from harbor_assets.domain.tasks import (
    ArchiveSource,
    HarborHash,
    Revision,
    Task,
    TaskInput,
    TaskInputs,
    Taskset,
    TasksetInput,
)
from harbor_assets.domain.tasks import EvaluatorTask as EvaluatorTaskDefinition
from harbor_assets.domain.tasks import HarborTask as HarborTaskDefinition
from harbor_assets.domain.traces import Span
from harbor_assets.domain.verification import JudgedTask, Verification
from harbor_assets.domain.views import LogChunk, RunStatus, RunSummary, Submitted, TaskView
from harbor_assets.domain.waiting import Wait, WaitReason
from harbor_assets.interfaces.sdk.client import Client
from harbor_assets.interfaces.sdk.connection import AsyncClient
from harbor_assets.interfaces.sdk.evaluator import AsyncEvaluator, Evaluator
from harbor_assets.interfaces.sdk.pages import AsyncPage, Page
from harbor_assets.interfaces.sdk.readers import Bundle, read_bundle, read_trials
from harbor_assets.interfaces.sdk.results import Results
from harbor_assets.interfaces.sdk.words import MetricRef, Model, ModelTarget, TaskRef, TasksetRef

__all__ = [  # noqa: RUF022 - doors first
    "Evaluator",
    "AsyncEvaluator",
    "Client",
    "AsyncClient",
    "read_bundle",
    "read_trials",
    "AgentEvalInputSpec",
    "AgentEvalJob",
    "AgentEvalResult",
    "AgentEvalTaskInput",
    "ArchiveSource",
    "AsyncPage",
    "BadArchive",
    "BLEUMetric",
    "Broken",
    "Bundle",
    "BundleTask",
    "Conflict",
    "Evaluation",
    "EvaluationPatch",
    "EvaluationUpdate",
    "EvaluatorResult",
    "EvaluatorTaskDefinition",
    "ExactMatchMetric",
    "Experiment",
    "ExperimentUpdate",
    "F1Metric",
    "Forbidden",
    "HarborAssetsError",
    "HarborHash",
    "HarborTaskDefinition",
    "HomeUnusable",
    "IdempotencyConflict",
    "JudgedTask",
    "LLMJudgeMetric",
    "LogChunk",
    "Malformed",
    "Mark",
    "MetadataItem",
    "Metric",
    "MetricInline",
    "MetricRef",
    "Model",
    "ModelTarget",
    "NotFound",
    "NotReady",
    "NumberCheckMetric",
    "Outcome",
    "OutcomeSummary",
    "Page",
    "Pareto",
    "Problem",
    "RangeScore",
    "Reason",
    "Refused",
    "Results",
    "ResultState",
    "Revision",
    "ROUGEMetric",
    "RubricScore",
    "RunMetadata",
    "RunPhase",
    "RunRequest",
    "RunStatus",
    "RunSummary",
    "Score",
    "SemanticView",
    "ServiceUnavailable",
    "Session",
    "Span",
    "StorageFull",
    "StringCheckMetric",
    "SqlAnswer",
    "Submitted",
    "Summary",
    "Task",
    "TaskInput",
    "TaskInputs",
    "TaskPhase",
    "TaskRef",
    "Taskset",
    "TasksetInput",
    "TasksetRef",
    "TaskView",
    "TooMany",
    "Trial",
    "TrialOutcome",
    "Unauthenticated",
    "Verdict",
    "Verification",
    "Wait",
    "WaitReason",
]
