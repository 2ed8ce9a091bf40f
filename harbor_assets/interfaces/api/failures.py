"""What refusals look like, for the API's description."""

from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue


class Fault(BaseModel):
    """One thing wrong with a request: what it is about, and the value, the rule and the next step."""

    subject: str
    message: str


class Invalid(BaseModel):
    """One part of a request that is not of the shape described here."""

    type: str
    loc: list[str | int]
    msg: str


class Failure(BaseModel):
    """Why a request was not done. `detail` is a sentence, or for a request of the wrong shape a list of its parts.

    `error` names the kind of failure; `problems` is there if more than a sentence can be said.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"detail": "Task not found: default/nope"}]})

    detail: str | list[Invalid]
    error: str | None = None
    problems: list[Fault] | None = None


_SAID: dict[int, tuple[str, dict[str, JsonValue]]] = {
    400: (
        "It cannot be read: a filter, a tag in a body, an archive that does not fit",
        {"detail": "'tags' supports only $eq and a non-empty $in", "error": "Malformed"},
    ),
    401: (
        "There is no token, or one that is not accepted",
        {"detail": "This token is not known here; ask the service's admin for one", "error": "Unauthenticated"},
    ),
    403: (
        "The caller lacks the role that this needs in the workspace",
        {
            "detail": "'ci' does not have the role writer in workspace 'default', which this needs",
            "error": "Forbidden",
        },
    ),
    404: ("It does not exist", {"detail": "Task not found: default/nope", "error": "NotFound"}),
    408: (
        "The body came too slowly",
        {"detail": "The body did not arrive within 60 s; send it again", "error": "Refused"},
    ),
    409: (
        "It is there already, or others changed it at the same time",
        {"detail": "Task with workspace 'default' and name 't1' already exists", "error": "Conflict"},
    ),
    413: (
        "The body is too large, or a list to be sorted by what must be computed is",
        {"detail": "The body is above 16777216 bytes"},
    ),
    422: (
        "It breaks a rule: the shape of the request, a name, a reference, a project",
        {"detail": [{"type": "missing", "loc": ["body", "spec"], "msg": "is missing"}]},
    ),
    500: (
        "Our own fault",
        {"detail": "An internal error (KeyError); the service's log has it"},
    ),
    507: (
        "There is no space left",
        {"detail": "The service has no space left for uploads; its admin must free some", "error": "StorageFull"},
    ),
    503: ("It cannot be done now", {"detail": "The service is busy; try again", "error": "ServiceUnavailable"}),
}


def failures(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The answers of a route that are not successes, for `responses=`."""
    return {
        status: {
            "model": Failure,
            "description": _SAID[status][0],
            "content": {"application/json": {"example": _SAID[status][1]}},
        }
        for status in statuses
    }
