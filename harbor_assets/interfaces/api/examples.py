"""Examples for the API's description."""

from typing import Any, Final

from fastapi.openapi.models import Example

_HASH: Final = "0" * 64
TASKS: Final[dict[str, Example]] = {
    "evaluator": {
        "summary": "A task scored by stored metrics",
        "value": {
            "spec": {
                "kind": "evaluator",
                "intent": "Answer the user's geography question with the capital city.",
                "inputs": {"instruction": "What is the capital of France?"},
                "reference": {"expected": "Paris"},
                "metrics": ["default/answer-exact-match"],
            },
            "metadata": [{"key": "suite", "value": "geography"}],
        },
    },
    "harbor": {
        "summary": "A Harbor task whose archive was uploaded before",
        "value": {
            "spec": {
                "kind": "harbor",
                "native_task_id": "harbor/hello-world",
                "source": {
                    "kind": "fileset-archive",
                    "fileset_ref": f"default/harbor-tasks#hello-world/{_HASH}/task_archive",
                    "files_hash": _HASH,
                    "archive_format": "tar-gzip-v1",
                },
                "harbor_hash": {
                    "digest": _HASH,
                    "method": "harbor-packager-content-v1",
                    "harbor_version": "0.26.0",
                },
            },
            "tags": ["stable"],
        },
    },
}
TASKSETS: Final[dict[str, Example]] = {
    "by reference": {
        "summary": "The current revisions of two tasks",
        "value": {
            "description": "Geography questions for validating the agent.",
            "tasks": ["default/capital-of-france", "capital-of-japan#latest"],
        },
    },
}
METRICS: Final[dict[str, Example]] = {
    "exact match": {
        "summary": "A metric that tasks name as workspace/name",
        "value": {
            "metric_type": "exact-match",
            "outputs": [{"name": "exact-match", "value_json_schema": {"type": "number"}}],
            "payload": {
                "kind": "inline",
                "metric": {"type": "exact-match", "reference": "{{item.expected}}"},
            },
        },
    },
}
EVALUATIONS: Final[dict[str, Example]] = {
    "outputs": {
        "summary": "Outputs that exist, scored by the metrics of a stored taskset",
        "value": {
            "spec": {
                "tasks": "default/geography-suite#blessed",
                "trials": [
                    {
                        "id": "1",
                        "task_id": "capital-of-france",
                        "status": "completed",
                        "output": {"output_text": "Paris"},
                    }
                ],
            }
        },
    },
}
FILTERS: Final[dict[str, Example]] = {
    "none": {"summary": "Everything", "value": None},
    "json": {"summary": "JSON", "value": '{"metadata.suite": "geography", "name": {"$like": "capital"}}'},
    "text": {"summary": "Text", "value": 'metadata["suite"]:"geography" AND name~"capital"'},
}
_BYTES: Final[dict[str, Any]] = {"schema": {"type": "string", "format": "binary"}}
BYTES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The file's bytes", "content": {"application/octet-stream": _BYTES}}
}
BUNDLE_FILE: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The file's bytes; by its own type if this service wrote it",
        "content": {
            **dict.fromkeys(("application/octet-stream", "application/x-ndjson", "text/html"), _BYTES),
            "application/json": {"schema": {"type": "object"}},
        },
    }
}
TEXT: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The log", "content": {"text/plain": {"schema": {"type": "string"}}}}
}
PARQUET: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The rows", "content": {"application/vnd.apache.parquet": _BYTES}}
}
UPLOAD: Final[dict[str, Any]] = {"requestBody": {"required": True, "content": {"application/octet-stream": _BYTES}}}
CUT: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The content is the current revision's; none was cut"},
    201: {"description": "A revision was cut"},
}
