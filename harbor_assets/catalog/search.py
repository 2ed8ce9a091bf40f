"""Filters as SQL: the facts of every current record in a table, and the tree of a filter as a condition on it.

A condition is answered from an index: `fact` is a hash of field, key and value, `place` of field and key. `text` and
`number` beside them are for ranges and parts of texts, `folded` for parts of texts in any case. What this says must be
what `domain/filters.py` says; a test holds both together, on every database.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, and_, delete, false, func, insert, not_, or_, select, true

from harbor_assets.catalog.schema import RecordTables
from harbor_assets.domain.filters import (
    LISTS,
    AllOf,
    AnyOf,
    Fact,
    Filter,
    Match,
    Negated,
    Operator,
    equal_form,
    folded,
    number,
    searchable,
)

_TIMES: Final = ("created_at", "updated_at")
_ROWS: Final = 2_000  # in one INSERT


def write_facts(connection: Connection, tables: RecordTables, record_id: str, facts: Iterable[Fact]) -> None:
    """Put the facts of a record in the place of those it had."""
    connection.execute(delete(tables.facts).where(tables.facts.c.record_id == record_id))
    rows = {(row["place"], row["fact"]): row for row in (_row(record_id, *fact) for fact in facts)}
    many = list(rows.values())
    for start in range(0, len(many), _ROWS):
        connection.execute(insert(tables.facts), many[start : start + _ROWS])


def _row(record_id: str, field: str, key: str, value: Any) -> dict[str, Any]:
    text = isinstance(value, str)
    return {
        "record_id": record_id,
        "place": _place(field, key),
        "fact": _fact(field, key, value),
        "text": searchable(value) if text else None,
        "folded": folded(value) if text else None,
        "number": number(value),
    }


def _place(field: str, key: str) -> str:
    return _hash(field, key, b"")


def _fact(field: str, key: str, value: Any) -> str:
    return _hash(field, key, b"=" + equal_form(value))


def _hash(field: str, key: str, value: bytes) -> str:
    # The length says where the key ends; without it another key could end as this value begins.
    name = key.encode(errors="surrogatepass")
    return hashlib.sha256(b"%s %d %s %s" % (field.encode(), len(name), name, value)).hexdigest()[:32]


def condition(asked: Filter, tables: RecordTables, dialect: str) -> ColumnElement[bool]:
    """The filter as a condition on `tables.records`. It must not look into `data` (`looks_into_data`)."""
    match asked:
        case Negated():
            return not_(condition(asked.item, tables, dialect))
        case AllOf():
            return and_(true(), *(condition(item, tables, dialect) for item in asked.items))
        case AnyOf():
            return or_(false(), *(condition(item, tables, dialect) for item in asked.items))
        case Match():
            if asked.field in _TIMES:
                return _compared(tables.records.c[asked.field], asked.operator, asked.value)
            if asked.field == "tags":
                return _tagged(asked.value if asked.operator in LISTS else [asked.value], tables)
            return tables.records.c.id.in_(_having(asked, tables, dialect))


def _having(asked: Match, tables: RecordTables, dialect: str) -> Any:
    """The ids of records with a fact that the condition holds for."""
    facts, value = tables.facts.c, asked.value
    here = facts.place == _place(asked.field, asked.key)
    match asked.operator:
        case Operator.EQ:
            held = facts.fact == _fact(asked.field, asked.key, value)
        case Operator.IN:
            held = facts.fact.in_([_fact(asked.field, asked.key, each) for each in value])
        case Operator.NIN:
            held = and_(here, facts.fact.not_in([_fact(asked.field, asked.key, each) for each in value]))
        case Operator.LIKE:
            place = func.instr if dialect == "sqlite" else func.strpos
            held = and_(here, facts.folded.is_not(None), place(facts.folded, folded(value)) > 0)
        case Operator.STARTS | Operator.ENDS:
            wanted = searchable(value)
            first = 1 if asked.operator is Operator.STARTS else func.length(facts.text) - len(wanted) + 1
            long_enough = func.length(facts.text) >= len(wanted)
            held = and_(here, long_enough, func.substr(facts.text, first, len(wanted)) == wanted)
        case _ if isinstance(value, str):
            held = and_(here, facts.text.is_not(None), _compared(facts.text, asked.operator, searchable(value)))
        case _:
            number_wanted = number(value)
            if number_wanted is None:
                held = false()
            else:
                held = and_(here, facts.number.is_not(None), _compared(facts.number, asked.operator, number_wanted))
    return select(facts.record_id).where(held)


def _compared(column: Any, operator: Operator, value: Any) -> ColumnElement[bool]:
    match operator:
        case Operator.EQ:
            return column == value
        case Operator.IN:
            return column.in_(value)
        case Operator.NIN:
            return column.not_in(value)
        case Operator.LT:
            return column < value
        case Operator.LTE:
            return column <= value
        case Operator.GT:
            return column > value
        case Operator.GTE:
            return column >= value
        case _:
            raise AssertionError(operator)


def _tagged(wanted: Sequence[str], tables: RecordTables) -> ColumnElement[bool]:
    if "latest" in wanted:  # every record has it
        return true()
    tags = tables.tags.c
    return tables.records.c.id.in_(select(tags.record_id).where(tags.tag.in_([searchable(tag) for tag in wanted])))
