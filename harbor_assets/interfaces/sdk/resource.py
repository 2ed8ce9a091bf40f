"""What the SDK's resources have in common: addresses, bodies, answers as models, pages."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, JsonValue, TypeAdapter

from harbor_assets.domain.errors import Refused
from harbor_assets.domain.names import name_problem
from harbor_assets.domain.views import Pagination
from harbor_assets.interfaces.sdk.connection import AsyncClient
from harbor_assets.interfaces.sdk.http import query, segment
from harbor_assets.interfaces.sdk.pages import AsyncPage

Order = Literal["created_at", "-created_at", "updated_at", "-updated_at", "name", "-name"]
"""How lists are sorted; `-` is descending."""
type Where = str | Mapping[str, JsonValue] | None
"""A filter as the API takes it: text, or an object that is sent as JSON."""


class AsyncResource:
    """A part of the API, in the workspace of its client unless a call names another."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._http = client.http

    def _at(self, workspace: str | None, *segments: str) -> str:
        return self._below("evals", workspace, segments)

    def _intake(self, workspace: str | None, *segments: str) -> str:
        """The same in the part of the API that experiments are in."""
        return self._below("intake", workspace, segments)

    def _below(self, part: str, workspace: str | None, segments: Sequence[str]) -> str:
        where = named("workspace", self._client.workspace if workspace is None else workspace)
        return "/".join([f"/apis/{part}/v2/workspaces/{segment(where)}", *segments])

    async def _get(self, path: str, **parameters: object) -> bytes:
        return (await self._http.call("GET", path, params=query(**parameters))).content

    async def _read[T: BaseModel](self, kind: type[T], path: str, **parameters: object) -> T:
        return kind.model_validate_json(await self._get(path, **parameters))

    async def _read_all[T](self, kind: TypeAdapter[list[T]], path: str, **parameters: object) -> list[T]:
        return kind.validate_json(await self._get(path, **parameters))

    async def _send[T: BaseModel](
        self,
        kind: type[T],
        method: str,
        path: str,
        body: BaseModel | None = None,
        *,
        brief: bool = False,
        **headers: str,
    ) -> T:
        """`brief`: without fields that hold their default, since an earlier service refuses those it does not know."""
        answer = await self._http.call(method, path, content=encoded(body, brief=brief), headers={**JSON, **headers})
        return kind.model_validate_json(answer.content)

    async def _list[T](
        self, read: Callable[[Any], T], path: str, parameters: Sequence[tuple[str, str]], page: int
    ) -> AsyncPage[T]:
        async def fetch(number: int) -> AsyncPage[T]:
            answer = await self._http.call("GET", path, params=[*parameters, ("page", str(number))])
            envelope = json.loads(answer.content)
            return AsyncPage(
                [read(row) for row in envelope["data"]],
                Pagination.model_validate(envelope["pagination"]),
                envelope.get("sort"),
                envelope.get("unreadable") or (),
                _fetch=fetch,
            )

        return await fetch(page)


JSON = {"Content-Type": "application/json"}


def encoded(body: BaseModel | None, *, brief: bool = False) -> bytes | None:
    """A body as JSON; `brief`: without fields that hold their default. Raises `Refused` for numbers that JSON has no
    form of."""
    if body is None:
        return None
    try:
        return json.dumps(body.model_dump(mode="json", exclude_defaults=brief), allow_nan=False).encode()
    except ValueError as error:
        raise Refused(f"The {type(body).__name__} cannot be sent as JSON: {error}") from None


def named(what: str, name: str) -> str:
    """`name` if the catalog can hold it. Raises `Refused`: a path would lead elsewhere with some of the others."""
    if problem := name_problem(name):
        raise Refused(f"The {what} '{name[:80]}' {problem}")
    return name


def conditions(filter: Where, **asked: JsonValue) -> list[tuple[str, str]]:
    """The parameters that filter a list: everything `asked` (None: nothing) and the caller's own `filter` hold."""
    given = {name.replace("__", "."): value for name, value in asked.items() if value not in (None, {})}
    found = [("filter", _json(given))] if given else []
    if filter:
        found.append(("filter", filter if isinstance(filter, str) else _json(dict(filter))))
    return found


def _json(value: Mapping[str, JsonValue]) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Refused(f"The filter cannot be written as JSON: {error}") from None
