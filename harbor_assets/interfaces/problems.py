"""The error family as HTTP answers, and back: the one place that knows both.

An answer is FastAPI's shape, `{"detail": "text"}`, so that clients which show only `detail` lose nothing; `error` names
the member of the family and `problems` lists what is wrong one by one, for clients which know them.
"""

import json
from collections.abc import Mapping
from typing import Any

from harbor_assets.domain import errors
from harbor_assets.domain.errors import HarborAssetsError, Problem, Refused

BODY_TOO_SLOW = 408
BODY_TOO_LARGE = 413
UNPROCESSABLE = 422

_STATUS: dict[type[HarborAssetsError], int] = {
    errors.NotFound: 404,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.Conflict: 409,
    errors.IdempotencyConflict: 409,
    errors.BadArchive: 400,  # the contract's, as the next
    errors.Malformed: 400,
    errors.TooMany: BODY_TOO_LARGE,
    errors.NotReady: 409,  # the run's present state contradicts the request; `error` tells it from the others
    errors.HomeUnusable: 503,
    errors.StorageFull: 507,
    errors.ServiceUnavailable: 503,
    errors.Broken: 500,
    errors.Refused: UNPROCESSABLE,  # after its subclasses
}
_BY_NAME = {kind.__name__: kind for kind in _STATUS}
_BY_STATUS: dict[int, type[HarborAssetsError]] = {
    401: errors.Unauthenticated,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    429: errors.ServiceUnavailable,  # too many requests at once, or too much asked for by one client
    503: errors.ServiceUnavailable,
    507: errors.StorageFull,
}
_TEXT_MAX = 2000  # characters of an answer of unknown shape that an error message repeats


def to_answer(error: HarborAssetsError) -> tuple[int, dict[str, Any]]:
    """Status and body for an error. Its name is that of the nearest member of the family the wire knows."""
    kind = next((kind for kind in _STATUS if isinstance(error, kind)), errors.Broken)
    body: dict[str, Any] = {"detail": str(error), "error": kind.__name__}
    if isinstance(error, Refused) and error.problems:
        body["problems"] = [{"subject": p.subject, "message": p.message} for p in error.problems]
    return _STATUS[kind], body


def from_answer(status: int, content: bytes, *, retry_after: float | None = None) -> HarborAssetsError:
    """The error an answer with this status and body stands for; never raises, whatever the body is.

    `retry_after`: the seconds the answer asks to wait, said in the message of a service that cannot serve now.
    """
    error = _from_answer(status, content)
    if retry_after and isinstance(error, errors.ServiceUnavailable):
        return errors.ServiceUnavailable(f"{error}. It asks to be left alone for {retry_after:.0f} s")
    return error


def _from_answer(status: int, content: bytes) -> HarborAssetsError:
    try:
        body = json.loads(content)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        return _of(status, None)(f"The service answered {status}: {_cut(content.decode(errors='replace'))}")
    detail = body.get("detail")
    kind = _of(status, body.get("error"))
    if isinstance(detail, list):  # FastAPI's validation errors
        return Refused("The service does not accept this request:", [_validation(item) for item in detail])
    text = detail if isinstance(detail, str) else f"The service answered {status}: {_cut(json.dumps(body))}"
    if not issubclass(kind, Refused):
        return kind(text)
    problems = [_problem(item) for item in body.get("problems") or () if isinstance(item, Mapping)]
    shown = "".join(f"\n  {problem}" for problem in problems)
    return kind(text.removesuffix(shown), problems)


def _of(status: int, name: object) -> type[HarborAssetsError]:
    if isinstance(name, str) and name in _BY_NAME:
        return _BY_NAME[name]
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return errors.Refused if status < 500 else errors.Broken


def _problem(item: Mapping[str, Any]) -> Problem:
    return Problem(str(item.get("subject", "")), str(item.get("message", "")))


def _validation(item: object) -> Problem:
    if not isinstance(item, Mapping):
        return Problem("", str(item))
    where = [str(part) for part in item.get("loc") or () if part != "body"]
    return Problem(".".join(where), str(item.get("msg", item)))


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}… ({len(text)} characters)"
