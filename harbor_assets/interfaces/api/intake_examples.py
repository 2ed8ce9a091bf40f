"""Examples for the description of experiments and what is published to them."""

from typing import Any, Final

from fastapi.openapi.models import Example

_EXPERIMENT: Final = "experiment-2Bv9kQ4xTzYw7mLr8nHcPd"

EXPERIMENTS: Final[dict[str, Example]] = {
    "least": {"summary": "A name", "value": {"name": "harbor-runs"}},
    "more": {
        "summary": "How its leaderboard is to be shown",
        "value": {
            "name": "harbor-runs",
            "description": "Coding agents on the nightly suite",
            "metadata": {"team": "agents"},
            "default_sort": "-evaluators.harbor_reward.reward.mean",
            "pareto": {"x_metric": "cost_usd.mean", "y_metric": "evaluators.harbor_reward.reward.mean"},
        },
    },
}
EXPERIMENT_PUTS: Final[dict[str, Example]] = {
    "baseline": {
        "summary": "Name the evaluation that others are compared with",
        "value": {"description": "Coding agents on the nightly suite", "baseline_evaluation_name": "codex-run-1"},
    },
}
EVALUATIONS: Final[dict[str, Example]] = {
    "one run": {
        "summary": "A run on a data set",
        "value": {
            "name": "codex-run-1",
            "experiment_ids": [_EXPERIMENT],
            "dataset_name": "datacurve/deep-swe",
            "dataset_version": "sha256:3f9a",
            "metadata": {"commit": "1f2e3d"},
        },
    },
}
EVALUATION_PUTS: Final[dict[str, Example]] = {
    "status": {"summary": "Say how it ended", "value": {"experiment_ids": [_EXPERIMENT], "status": "completed"}},
}
PATCHES: Final[dict[str, Example]] = {
    "root cause": {"summary": "Say why it failed", "value": {"status": "failed", "root_cause": "the proxy was down"}},
}
EXPERIMENT_FILTERS: Final[dict[str, Example]] = {
    "none": {"summary": "Everything", "value": None},
    "json": {"summary": "JSON", "value": '{"is_favorite": true, "metadata.team": "agents"}'},
    "text": {"summary": "Text", "value": 'name~"harbor"'},
}
EVALUATION_FILTERS: Final[dict[str, Example]] = {
    "none": {"summary": "Everything", "value": None},
    "json": {"summary": "JSON", "value": f'{{"experiment_id": "{_EXPERIMENT}", "cost_usd.mean": {{"$lt": 2}}}}'},
    "text": {"summary": "Text", "value": 'dataset_name:"suite" AND evaluators.harbor_reward.reward.mean>=0.5'},
}
RESULTS: Final[dict[str, Example]] = {
    "number": {
        "summary": "A number",
        "value": {
            "session_id": "run-0123456789abcdef:hello__1",
            "span_id": "agent",
            "name": "harbor_reward.reward",
            "data_type": "NUMERIC",
            "value": 1.0,
        },
    },
    "failed": {
        "summary": "An evaluator that ran and gave no value",
        "value": {
            "session_id": "run-0123456789abcdef:hello__1",
            "span_id": "agent",
            "name": "judge.helpful",
            "data_type": "BOOLEAN",
            "status": "FAILED",
            "comment": "the judge's answer could not be read",
        },
    },
}
ATIF: Final[dict[str, Example]] = {
    "trajectory": {
        "summary": "A trial of an agent, with its rewards",
        "value": {
            "schema_version": "ATIF-v1.5",
            "session_id": "run-0123456789abcdef:hello__1",
            "evaluation_context": {"evaluation_id": "codex-run-1", "test_case_id": "org/hello"},
            "agent": {"name": "codex", "version": "1.0.0", "model_name": "provider/model"},
            "final_metrics": {"total_prompt_tokens": 51701, "total_completion_tokens": 255, "total_cost_usd": 0.26},
            "extra": {"verifier_result": {"rewards": {"correctness": 0.75, "structure": 1.0}}},
            "steps": [
                {"step_id": 1, "timestamp": "2026-01-01T00:00:00Z", "source": "user", "message": "Say hello."},
                {
                    "step_id": 2,
                    "timestamp": "2026-01-01T00:00:01Z",
                    "source": "agent",
                    "message": "Done.",
                    "tool_calls": [{"tool_call_id": "c1", "function_name": "bash", "arguments": {"command": "ls"}}],
                    "observation": {"results": [{"source_call_id": "c1", "content": "hello.txt"}]},
                    "metrics": {"prompt_tokens": 51701, "completion_tokens": 255, "cost_usd": 0.26},
                },
            ],
        },
    },
}
OTLP: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/x-protobuf": {"schema": {"type": "string", "format": "binary"}},
            "application/json": {
                "schema": {
                    "type": "object",
                    "properties": {"resourceSpans": {"type": "array", "items": {"type": "object"}}},
                    "required": ["resourceSpans"],
                },
                "example": {
                    "resourceSpans": [
                        {
                            "resource": {
                                "attributes": [
                                    {"key": "nemo.experiment.id", "value": {"stringValue": "codex-run-1"}},
                                    {"key": "nemo.test_case.id", "value": {"stringValue": "org/hello"}},
                                ]
                            },
                            "scopeSpans": [
                                {
                                    "spans": [
                                        {
                                            "traceId": "5b8efff798038103d269b633813fc60c",
                                            "spanId": "eee19b7ec3c1b174",
                                            "name": "chat",
                                            "startTimeUnixNano": "1767225600000000000",
                                            "endTimeUnixNano": "1767225601000000000",
                                            "attributes": [
                                                {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "24"}}
                                            ],
                                        }
                                    ]
                                }
                            ],
                        }
                    ]
                },
            },
        },
    }
}
