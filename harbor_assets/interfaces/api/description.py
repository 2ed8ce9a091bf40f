"""The API's description made whole: what every endpoint may answer beside its own, and how callers say who they are."""

from collections.abc import Mapping
from typing import Any, Final

from fastapi import FastAPI

from harbor_assets.interfaces.api.failures import Failure, Fault, Invalid, failures
from harbor_assets.interfaces.api.guard import OPEN

_BEARER: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "A token of the service's access file, or a signed token of an issuer that it names.",
}
_METHODS: Final = frozenset({"get", "head", "post", "put", "patch", "delete"})
_WRITES: Final = frozenset({"post", "put", "patch", "delete"})
_NAMING = frozenset({"experiment", "taskset", "of"})  # parameters that name what may not be there
_FAILURE: Final = "#/components/schemas/Failure"


def described(app: FastAPI, *, guarded: bool) -> dict[str, Any]:
    """The OpenAPI document of `app`; `guarded`: callers need a token."""
    if app.openapi_schema is None:
        document = FastAPI.openapi(app)
        schemas: dict[str, Any] = document.setdefault("components", {}).setdefault("schemas", {})
        for kind in (Fault, Invalid, Failure):
            schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
            schema.pop("$defs", None)
            schemas[kind.__name__] = schema
        for unused in ("HTTPValidationError", "ValidationError"):  # FastAPI's; ours stand in `Failure`
            schemas.pop(unused, None)
        document["components"]["securitySchemes"] = {"bearer": _BEARER}
        if guarded:
            document["security"] = [{"bearer": []}]
        for path, item in document["paths"].items():
            for method, operation in item.items():
                if method in _METHODS:
                    _complete(path, method, operation, guarded=guarded)
    assert app.openapi_schema is not None
    return app.openapi_schema


def _complete(path: str, method: str, operation: dict[str, Any], *, guarded: bool) -> None:
    answers: dict[str, Any] = operation["responses"]
    if path in OPEN:
        if guarded:
            operation["security"] = []
        may = [503] if path == "/readyz" else []
    else:
        may = [422, 500, 503]
        if guarded:
            may += [401, 403]
        if path.count("{") > 1 or method in _WRITES:  # something by name, or by a reference in the body
            may += [404, 409]
        if any(one["in"] == "query" and one["name"] in _NAMING for one in operation.get("parameters", ())):
            may += [404]
        if method in _WRITES:
            may += [507]
        if "requestBody" in operation:
            may += [400, 408, 413]
        if method == "get" and not path.endswith("}"):
            may += [400]  # a filter
    ours: Mapping[int | str, dict[str, Any]] = failures(*may)
    for status, answer in ours.items():
        content: dict[str, Any] = {
            "application/json": {"schema": {"$ref": _FAILURE}, **answer["content"]["application/json"]}
        }
        said = answers.setdefault(str(status), {"description": answer["description"], "content": content})
        if status == 422:  # FastAPI's own shape stands there
            said.update(description=answer["description"], content=content)
    for status, other in (("201", "200"), ("200", "201")):  # cut or not, created or there: the same record
        if "content" not in answers.get(status, {"content": None}) and "content" in answers.get(other, {}):
            answers[status]["content"] = answers[other]["content"]
    if method == "head":
        for answer in answers.values():
            answer.pop("content", None)
