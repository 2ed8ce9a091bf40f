"""Bodies as JSON and nothing more: what Python's parser accepts beyond it could be stored and then not be answered."""

import json
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from fastapi import HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from harbor_assets.domain.validation import sentence
from harbor_assets.interfaces.problems import UNPROCESSABLE

_PROBLEMS_MAX = 100
_WHY_MAX = 200  # characters of what the parser says
_STEPS_MAX = 40  # of a path into a body: deeper than any body that is of use


class StrictRoute(APIRoute):
    """A route whose body may hold no NaN, no infinity and no unpaired surrogate; else 422, as for broken JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """See FastAPI."""
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return strict


class _StrictRequest(Request):
    async def json(self) -> Any:
        body = await self.body()
        try:
            value = json.loads(body, parse_constant=_refuse)
        except json.JSONDecodeError:
            raise
        except RecursionError:
            raise HTTPException(400, "The body is nested too deeply to be read; send it flatter") from None
        except ValueError as error:  # not in UTF-8, or a number with thousands of digits
            raise HTTPException(400, f"The body cannot be read as JSON: {str(error)[:_WHY_MAX]}") from None
        if b"\\u" in body:
            try:
                json.dumps(value, ensure_ascii=False).encode()
            except UnicodeEncodeError as error:
                raise json.JSONDecodeError(
                    "an unpaired surrogate is no character", error.object, error.start
                ) from error
        return value


def _refuse(constant: str) -> NoReturn:
    raise json.JSONDecodeError(f"{constant} is not a JSON number", constant, 0)


async def validation_answer(_: Request, error: Exception) -> JSONResponse:
    """FastAPI's own shape in our words, without the values that were sent: one may be a secret, or not be JSON.

    Of many problems the first are told, and how many there are: an answer must not be larger than its question.
    """
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    detail = [
        {"type": at["type"], "loc": at["loc"][:_STEPS_MAX], "msg": sentence(at, shown=False)}
        for at in found[:_PROBLEMS_MAX]
    ]
    if len(found) > _PROBLEMS_MAX:
        more = f"and {len(found) - _PROBLEMS_MAX} more problems of this request; correct these first"
        detail.append({"type": "too_many_problems", "loc": ["body"], "msg": more})
    return JSONResponse({"detail": detail}, UNPROCESSABLE)
