"""Filters of record lists: what can be asked of a record, and whether one answers to it.

A record is looked at as its facts, (field, key, value) each: `("kind", "", "harbor")`, one `("metadata", key, value)`
for each annotation, one `("metrics", "", "ws/name")` for each metric. A condition holds if one fact of its field and
key does; a field without a value has the fact None. `data.<path>` alone looks into the stored body.

Source of fields, operators and their meanings: the API's documented filters. How filters are written is in
`filter_syntax.py`; how a database answers them in `catalog/search.py`, which must agree with `holds` here.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, StrEnum, auto
from typing import Any, Final

from harbor_assets.domain.digests import canonical_json
from harbor_assets.domain.errors import Malformed, Refused
from harbor_assets.domain.names import Ref
from harbor_assets.domain.rollups import STATS

type Fact = tuple[str, str, Any]  # (field, key, value); the key is an annotation's, else empty


class Operator(StrEnum):
    """What can be asked of one value. `like` is a substring in any case; `startsWith` and `endsWith` mind the case."""

    EQ, IN, NIN = "$eq", "$in", "$nin"
    LIKE, STARTS, ENDS = "$like", "$startsWith", "$endsWith"
    LT, LTE, GT, GTE = "$lt", "$lte", "$gt", "$gte"
    CONTAINS, ELEM_MATCH, HAS_KEY = "$contains", "$elemMatch", "$hasKey"  # of `data.<path>` alone


LISTS: Final = frozenset({Operator.IN, Operator.NIN})
TEXTS: Final = frozenset({Operator.LIKE, Operator.STARTS, Operator.ENDS})
RANGES: Final = frozenset({Operator.LT, Operator.LTE, Operator.GT, Operator.GTE})
_ORDINARY: Final = frozenset({Operator.EQ}) | LISTS | TEXTS | RANGES
_EXACT: Final = frozenset({Operator.EQ, Operator.IN})


class Kind(Enum):
    """How a field's values are read and compared."""

    SCALAR = auto()
    TIME = auto()
    TAGS = auto()
    METRICS = auto()  # references `workspace/name`
    MEMBERS = auto()  # the same, each also with `#digest`
    METADATA = auto()
    DATA = auto()
    CONSTANT = auto()  # the same for every record of the list
    DROPPED = auto()  # accepted, and asks nothing
    FLAG = auto()  # true or false
    COUNT = auto()  # a number that is computed
    FIGURE = auto()  # the same, `<field>.<statistic>`
    EVALUATOR = auto()  # the same, `<field>.<name of the evaluator>.<statistic>`


_NUMBERS: Final = frozenset({Kind.COUNT, Kind.FIGURE, Kind.EVALUATOR})
KEYED: Final = frozenset({Kind.METADATA, Kind.FIGURE, Kind.EVALUATOR})  # fields that have a key after the dot


@dataclass(frozen=True, slots=True)
class Match:
    """One condition. `value` is a datetime (or a list of them) where the field is a time, and a filter of an element
    where the operator is `$elemMatch`."""

    field: str
    key: str
    operator: Operator
    value: Any


@dataclass(frozen=True, slots=True)
class AllOf:
    """Every one of them holds; also if there is none."""

    items: "tuple[Filter, ...]"


@dataclass(frozen=True, slots=True)
class AnyOf:
    """One of them holds."""

    items: "tuple[Filter, ...]"


@dataclass(frozen=True, slots=True)
class Negated:
    """It does not hold."""

    item: "Filter"


type Filter = Match | AllOf | AnyOf | Negated

ALWAYS, NEVER = AllOf(()), AnyOf(())


@dataclass(frozen=True, slots=True)
class Fields:
    """What a list can be filtered by. `constants` are fields with one value for all of its records."""

    kinds: Mapping[str, Kind]
    constants: Mapping[str, str] = field(default_factory=dict[str, str])

    def kind(self, name: str) -> Kind:
        """Raises `Malformed` naming the fields there are."""
        if name in self.constants:
            return Kind.CONSTANT
        if name not in self.kinds:
            known = ", ".join(sorted([*self.kinds, *self.constants, "data.<path>"]))
            raise Malformed(f"'{name[:80]}' is no field of this list; there are {known}")
        return self.kinds[name]


def _fields(noun: str, **more: Kind) -> Fields:
    base = {"id": Kind.SCALAR, "name": Kind.SCALAR, "project": Kind.SCALAR, "workspace": Kind.DROPPED}
    times = {"created_at": Kind.TIME, "updated_at": Kind.TIME}
    return Fields(base | times | more, {"entity_type": noun})


TASK_FIELDS: Final = _fields(
    "task",
    kind=Kind.SCALAR,
    intent=Kind.SCALAR,
    native_task_id=Kind.SCALAR,
    metrics=Kind.METRICS,
    tags=Kind.TAGS,
    metadata=Kind.METADATA,
)
TASKSET_FIELDS: Final = _fields(
    "taskset", description=Kind.SCALAR, tasks=Kind.MEMBERS, tags=Kind.TAGS, metadata=Kind.METADATA
)
METRIC_FIELDS: Final = _fields("metric", metric_type=Kind.SCALAR, description=Kind.SCALAR, derived=Kind.SCALAR)


def condition(name: str, key: str, operator: Operator, value: Any, *, fields: Fields, workspace: str) -> Filter | None:
    """One condition with its value checked and completed; None for one that asks nothing.

    `name` is a field of `fields`, or `data` with a path as `key`. Raises `Malformed` for an operator or a value that
    the field does not have.
    """
    kind = Kind.DATA if name == "data" else fields.kind(name)
    if kind is Kind.DROPPED:
        return None
    _check(name, kind, operator, value)
    match kind:
        case Kind.CONSTANT:
            return ALWAYS if _compare(operator, fields.constants[name], value) else NEVER
        case Kind.TIME:
            times = [_time(name, each) for each in _listed(operator, value)]
            return Match(name, key, operator, times if operator in LISTS else times[0])
        case Kind.METRICS | Kind.MEMBERS:
            refs = [_ref(name, kind, each, workspace) for each in _listed(operator, value)]
            return Match(name, key, operator, refs if operator in LISTS else refs[0])
        case Kind.FLAG:
            flags = [_flag(name, each) for each in _listed(operator, value)]
            return Match(name, key, operator, flags if operator in LISTS else flags[0])
        case Kind.COUNT | Kind.FIGURE | Kind.EVALUATOR:
            _check_statistic(name, key, kind)
            numbers = [_number(name, each) for each in _listed(operator, value)]
            return Match(name, key, operator, numbers if operator in LISTS else numbers[0])
        case _:
            return Match(name, key, operator, value)


def _listed(operator: Operator, value: Any) -> Sequence[Any]:
    return value if operator in LISTS else [value]


def _check(name: str, kind: Kind, operator: Operator, value: Any) -> None:
    if kind in (Kind.TAGS, Kind.METRICS, Kind.MEMBERS):
        texts = _listed(operator, value)
        if operator not in _EXACT or not isinstance(texts, list) or not texts:
            raise Malformed(f"'{name}' supports only $eq and a non-empty $in")
        if not all(isinstance(text, str) for text in texts):
            raise Malformed(f"'{name}' is compared with text")
        return
    if kind is not Kind.DATA and operator not in _ORDINARY:
        raise Malformed(f"'{name}' has no operator {operator}; only data.<path> has")
    if kind is Kind.TIME and operator in TEXTS:
        raise Malformed(f"'{name}' is a time, which has no operator {operator}")
    if operator in LISTS and not isinstance(value, list):
        raise Malformed(f"{operator} takes a list of values")
    if operator in TEXTS | {Operator.HAS_KEY} and not isinstance(value, str):
        raise Malformed(f"{operator} takes a text; the one for '{name}' is none")
    if kind in _NUMBERS and operator in TEXTS:
        raise Malformed(f"'{name}' is a number, which has no operator {operator}")
    if kind is Kind.FLAG and operator not in _EXACT:
        raise Malformed(f"'{name}' is true or false; ask with $eq")
    if operator in RANGES and (isinstance(value, bool) or not isinstance(value, str | int | float)):
        raise Malformed(f"{operator} takes a text or a number; the value for '{name}' is neither")
    if kind in (Kind.SCALAR, Kind.CONSTANT) and any(isinstance(v, list | dict) for v in _listed(operator, value)):
        raise Malformed(f"'{name}' has one plain value and cannot equal a list or an object; for several write $in")


def _time(name: str, value: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        raise Malformed(f"'{name}' is compared with a time as 2026-01-31T12:00:00Z") from None


def _flag(name: str, value: Any) -> bool:
    flags = {"true": True, "false": False}
    found = flags.get(value.casefold(), value) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise Malformed(f"'{name}' is true or false")
    return found


def _number(name: str, value: Any) -> float | None:
    if value is None:
        return None
    try:
        found = float(value) if isinstance(value, str) else number(value)
    except ValueError:
        found = None
    if found is None or not math.isfinite(found):
        raise Malformed(f"'{name}' is compared with a number")
    return found


def _check_statistic(name: str, key: str, kind: Kind) -> None:
    evaluator, _, statistic = key.rpartition(".")
    whole = not key if kind is Kind.COUNT else statistic in STATS and bool(evaluator) is (kind is Kind.EVALUATOR)
    if not whole:
        form = f"{name}.<name>.<stat>" if kind is Kind.EVALUATOR else name if kind is Kind.COUNT else f"{name}.<stat>"
        raise Malformed(f"'{f'{name}.{key}'[:80]}' is no figure; write {form}, <stat> being one of {', '.join(STATS)}")


def _ref(name: str, kind: Kind, text: str, workspace: str) -> str:
    try:
        ref = Ref.parse(text, workspace=workspace)
    except Refused as refused:
        raise Malformed(f"'{name}': {refused.message[:300]}") from None
    if ref.fragment and (kind is Kind.METRICS or not ref.digest):
        what = "write workspace/name" if kind is Kind.METRICS else "write workspace/name, or #digest for one revision"
        raise Malformed(f"'{name}' cannot be matched by '#{ref.fragment[:80]}', since no record holds that; {what}")
    return str(ref)


# --- whether a record answers -------------------------------------------------------------------------------------


def holds(asked: Filter, facts: Iterable[Fact], data: Any = None) -> bool:
    """Whether a record with these facts and this stored body answers to the filter."""
    held: dict[tuple[str, str], list[Any]] = {}
    for name, key, value in facts:
        held.setdefault((name, key), []).append(value)
    return _holds(asked, lambda at: _data(at, data) if at.field == "data" else held.get((at.field, at.key), ()))


def looks_into_data(asked: Filter) -> bool:
    """Whether it needs the stored body, which no database is asked for."""
    match asked:
        case Match():
            return asked.field == "data"
        case Negated():
            return looks_into_data(asked.item)
        case _:
            return any(map(looks_into_data, asked.items))


def apart(asked: Filter) -> tuple[Filter | None, Filter | None]:
    """The filter as two that must both hold: what a database can answer, and what needs the stored body."""
    items = asked.items if isinstance(asked, AllOf) else (asked,)
    inside = tuple(item for item in items if looks_into_data(item))
    if not inside:
        return asked, None
    outside = tuple(item for item in items if item not in inside)
    return AllOf(outside) if outside else None, AllOf(inside)


def _holds(asked: Filter, values: Callable[[Match], Iterable[Any]]) -> bool:
    match asked:
        case Match():
            return any(_compare(asked.operator, value, asked.value) for value in values(asked))
        case AllOf():
            return all(_holds(item, values) for item in asked.items)
        case AnyOf():
            return any(_holds(item, values) for item in asked.items)
        case Negated():
            return not _holds(asked.item, values)


def _data(at: Match, data: Any) -> tuple[Any]:
    for step in at.key.split(".") if at.key else ():
        data = data.get(step) if isinstance(data, dict) else None
    return (data,)


def _compare(operator: Operator, value: Any, wanted: Any) -> bool:
    match operator:
        case Operator.EQ:
            return _same(value, wanted)
        case Operator.IN:
            return any(_same(value, each) for each in wanted)
        case Operator.NIN:
            return not any(_same(value, each) for each in wanted)
        case Operator.LIKE:
            return isinstance(value, str) and folded(wanted) in folded(value)
        case Operator.STARTS:
            return isinstance(value, str) and searchable(value).startswith(searchable(wanted))
        case Operator.ENDS:
            return isinstance(value, str) and searchable(value).endswith(searchable(wanted))
        case Operator.CONTAINS:
            if isinstance(value, str):
                return isinstance(wanted, str) and wanted in value
            return isinstance(value, list) and any(_same(each, wanted) for each in value)
        case Operator.HAS_KEY:
            return isinstance(value, dict) and wanted in value
        case Operator.ELEM_MATCH:
            return isinstance(value, list) and any(holds(wanted, (), each) for each in value)
        case _:
            return _ordered(operator, value, wanted)


def _same(one: Any, other: Any) -> bool:
    return equal_form(one) == equal_form(other)


def _ordered(operator: Operator, value: Any, wanted: Any) -> bool:
    for of in (_as_time, _as_text, number):
        left, right = of(value), of(wanted)
        if left is not None and right is not None:
            below = operator in (Operator.LT, Operator.LTE)
            return bool(left < right if below else left > right) or (
                operator in (Operator.LTE, Operator.GTE) and bool(left == right)
            )
    return False


def _as_time(value: Any) -> Any:
    return value if isinstance(value, datetime) else None


def _as_text(value: Any) -> Any:
    return searchable(value) if isinstance(value, str) else None


def number(value: Any) -> float | None:
    """A number as it is ordered; None for what is none, or too large to be."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def searchable(text: str) -> str:
    """Text as it is searched: no database column holds the character NUL or a lone surrogate."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def folded(text: str) -> str:
    """The same, whatever the case."""
    return searchable(text).casefold()


def equal_form(value: Any) -> bytes:
    """Equal values have equal forms, and only they: 1 is 1.0, and neither is true."""
    return value.isoformat().encode() if isinstance(value, datetime) else canonical_json(_normal(value))


def _normal(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_normal(each) for each in value]
    if isinstance(value, dict):
        return {key: _normal(each) for key, each in value.items()}
    return value
