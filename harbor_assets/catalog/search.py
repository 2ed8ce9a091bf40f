"""Filters as SQL: the facts of every current record in a table, and the tree of a filter as a condition on it.

A condition is answered from an index: `fact` is a hash of field, key and value, `place` of field and key. `text` and
`number` beside them are for ranges and parts of texts, `folded` for parts of texts in any case. What this says must be
what `domain/filters.py` says; a test holds both together, on every database.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, false, func, insert, not_, or_, select, true

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
_COMMON: Final = ("kind", "entity_type", "derived")
_BY_VALUE: Final = (Operator.EQ, Operator.IN)
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
    """The filter as a condition on `tables.records`. It must not look into `data` (`looks_into_data`).

    One part that must hold is a list of ids, which a database can begin with; the others are asked of single records.
    Were all of them lists, SQLite would make each whole before it looks at the first record.
    """
    return _condition(asked, tables, dialect, _leader(asked))


def led(asked: Filter) -> bool:
    """Whether a list of ids stands in the filter's condition, from which few records follow."""
    return _leader(asked) is not None


def _leader(asked: Filter) -> Match | None:
    """The part to begin with: by value before by range, and the kind last, which nearly all records share."""
    items = asked.items if isinstance(asked, AllOf) else (asked,)
    facts = [item for item in items if isinstance(item, Match) and item.field not in (*_TIMES, "tags")]
    return min(facts, key=lambda item: (item.field in _COMMON, item.operator not in _BY_VALUE), default=None)


def _condition(asked: Filter, tables: RecordTables, dialect: str, leader: Match | None) -> ColumnElement[bool]:
    match asked:
        case Negated():
            return not_(_condition(asked.item, tables, dialect, None))
        case AllOf():
            return and_(true(), *(_condition(item, tables, dialect, leader) for item in asked.items))
        case AnyOf():
            return or_(false(), *(_condition(item, tables, dialect, None) for item in asked.items))
        case Match():
            if asked.field in _TIMES:
                return _compared(tables.records.c[asked.field], asked.operator, asked.value)
            if asked.field == "tags":
                return _tagged(asked.value if asked.operator in LISTS else [asked.value], tables)
            held, facts = _held(asked, tables, dialect), tables.facts.c
            if asked is leader:
                return tables.records.c.id.in_(select(facts.record_id).where(held))
            return exists(facts.record_id).where(facts.record_id == tables.records.c.id, held)


def _held(asked: Match, tables: RecordTables, dialect: str) -> ColumnElement[bool]:
    """The condition on a fact."""
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
    return held


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
