"""How answers are written: the envelope of lists, records with or without their null members, and plain models."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from fastapi import Path, Query, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, JsonValue

from harbor_assets.domain.names import NAME_MAX
from harbor_assets.domain.views import Pagination
from harbor_assets.engine.ports import Page

PAGE_SIZE_MAX = 1000  # the contract's
NAME_PATTERN = r"^[\w\-\.]+$"

Name = Annotated[str, Path(pattern=NAME_PATTERN, max_length=NAME_MAX)]
PageNumber = Annotated[int, Query(ge=1, le=2**31 - 1)]
PageSize = Annotated[int, Query(ge=1, le=PAGE_SIZE_MAX)]


class Listed[T](BaseModel):
    """The envelope of every list. `unreadable` names entries of this page that could not be read; absent if none."""

    data: list[T]
    pagination: Pagination
    sort: str | None = None
    unreadable: list[str] | None = None


def model(value: BaseModel, status: int = 200) -> Response:
    """One model, nulls kept."""
    return Response(value.model_dump_json(), status, media_type="application/json")


def listed(page: Page[Any], rows: Iterable[JsonValue], **more: JsonValue) -> Response:
    """A page in the contract's envelope; `rows` are the items as JSON."""
    data = list(rows)
    pagination = Pagination(
        page=page.page,
        page_size=page.page_size,
        current_page_size=len(data),
        total_pages=-(-page.total // page.page_size),
        total_results=page.total,
    )
    unreadable: dict[str, Any] = {"unreadable": list(page.unreadable)} if page.unreadable else {}
    return JSONResponse({"data": data, "pagination": pagination.model_dump(), **more, **unreadable})


def dumped(items: Sequence[BaseModel]) -> list[JsonValue]:
    """Models as JSON values, nulls kept."""
    return [item.model_dump(mode="json") for item in items]


def without_nulls(value: JsonValue) -> JsonValue:
    """`value` without null members of objects, at any depth: how record lists are written (contract B.3)."""
    if isinstance(value, dict):
        return {key: without_nulls(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value
