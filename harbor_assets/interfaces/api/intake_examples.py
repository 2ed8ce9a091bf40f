"""Examples for the description of experiments and what is published to them."""

from typing import Final

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
