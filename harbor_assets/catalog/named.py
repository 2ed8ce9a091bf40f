"""Named records that are deleted softly: what experiments and evaluations share."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ValidationError
from sqlalchemy import ColumnElement, Connection, Row, Table, func, select, update

from harbor_assets.catalog.records import check_names, new_id
from harbor_assets.catalog.schema import EVALUATIONS, EXPERIMENTS
from harbor_assets.domain.errors import Broken, Conflict, NotFound
from harbor_assets.domain.evaluation_lists import asks_deleted
from harbor_assets.domain.experiments import deleted_name
from harbor_assets.domain.filters import Filter
from harbor_assets.domain.names import nearest

_NAMES_COMPARED = 10_000  # for "did you mean"
_NOUNS = {EXPERIMENTS.name: "Experiment", EVALUATIONS.name: "Evaluation"}


def new_row(noun: str, workspace: str, name: str, created_by: str | None) -> dict[str, Any]:
    """The columns of a new record. Raises `Refused` for a bad name."""
    check_names(noun, workspace, name, ())
    now = datetime.now(UTC)
    return {
        "id": new_id(noun),
        "workspace": workspace,
        "name": name,
        "created_by": created_by,
        "created_at": now,
        "updated_at": now,
    }


def content(body: BaseModel, kind: type[BaseModel], without: Iterable[str] = ()) -> str:
    """The stored body: the members of `kind`, but for those that have columns."""
    return body.model_dump_json(include=set(kind.model_fields) - set(without))


def check_free(connection: Connection, table: Table, workspace: str, name: str) -> None:
    """Raises `Conflict` if the name is taken."""
    taken = select(table.c.id).where(table.c.workspace == workspace, table.c.name == name)
    if connection.scalar(taken) is not None:
        raise Conflict(f"{_NOUNS[table.name]} with workspace '{workspace}' and name '{name}' already exists")


def one(connection: Connection, table: Table, workspace: str, name: str, *, lock: bool = False) -> Row[Any]:
    """The record of that name, held for this transaction with `lock`. Raises `NotFound` with the nearest names."""
    query = select(table).where(table.c.workspace == workspace, table.c.name == name, table.c.deleted_at.is_(None))
    row = connection.execute(query.with_for_update() if lock else query).first()
    if row is None:
        names = select(table.c.name).where(table.c.workspace == workspace, table.c.deleted_at.is_(None))
        close = nearest(name, connection.scalars(names.limit(_NAMES_COMPARED)))
        hint = f"; did you mean {', '.join(close)}?" if close else ""
        raise NotFound(f"{_NOUNS[table.name]} not found: {workspace}/{name[:80]}{hint}")
    return row


def change(connection: Connection, table: Table, record_id: str, **values: Any) -> None:
    """Change columns of a record, and say when."""
    connection.execute(update(table).where(table.c.id == record_id).values(updated_at=datetime.now(UTC), **values))


def delete_softly(connection: Connection, table: Table, record_id: str) -> None:
    """Give a record another name and say that it is deleted."""
    name = connection.scalar(select(table.c.name).where(table.c.id == record_id))
    now = datetime.now(UTC)
    connection.execute(
        update(table)
        .where(table.c.id == record_id)
        .values(name=deleted_name(name or "", record_id), deleted_at=now, updated_at=now)
    )


def conditions(table: Table, workspace: str, where: Filter | None) -> list[ColumnElement[bool]]:
    """A workspace's records; deleted ones only if the filter asks for them."""
    here = [table.c.workspace == workspace]
    return here if asks_deleted(where) else [*here, table.c.deleted_at.is_(None)]


def order_by(table: Table, sort: str) -> Sequence[ColumnElement[Any]]:
    """What to order by; equal times by name."""
    column = table.c[sort.removeprefix("-")]
    return (column.desc() if sort.startswith("-") else column, table.c.name)


def page_of(connection: Connection, query: Any, page: int, page_size: int) -> tuple[Sequence[Row[Any]], int]:
    """One page of a query, and how many rows there are in all."""
    total = connection.scalar(select(func.count()).select_from(query.order_by(None).subquery())) or 0
    return connection.execute(query.limit(page_size).offset((page - 1) * page_size)).all(), total


def read[T: BaseModel](kind: type[T], what: str, values: Mapping[str, Any]) -> T:
    """A record from its members. Raises `Broken` if it cannot be read."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise Broken(f"{what} in the catalog cannot be read: {error.errors()[0]['msg']}") from error


def common(row: Row[Any]) -> dict[str, Any]:
    """The members that every record has, and those of its body."""
    names = ("id", "name", "workspace", "created_by", "created_at", "updated_at")
    return {**json.loads(row.body), **{name: getattr(row, name) for name in names}}
