"""Filters as objects: what all three ways to write one become, and the limits that keep any of them cheap to answer."""

import json
import math
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn

from harbor_assets.domain.errors import Malformed
from harbor_assets.domain.filters import ALWAYS, KEYED, AllOf, AnyOf, Fields, Filter, Negated, Operator, condition

LENGTH_MAX: Final = 16_384  # characters; a query of more does not fit through most proxies anyhow
DEPTH_MAX: Final = 20  # of nested groups: nobody writes more by hand, and databases refuse hundreds
CONDITIONS_MAX: Final = 100  # each is a look-up of its own
VALUES_MAX: Final = 1_000  # in the lists of one filter

_LOGICAL: Final = frozenset({"$and", "$or", "$not"})
type _Read = Callable[[str, Any, int], Filter | None]


class Reader:
    """Objects as JSON writes them, and the conditions all three ways end in. Counts what it makes."""

    def __init__(self, fields: Fields, workspace: str) -> None:
        self._fields, self._workspace = fields, workspace
        self._conditions = self._values = 0

    def top(self, value: Any, depth: int = 0, leaf: _Read | None = None) -> Filter | None:
        """An object of fields, or of one logical operator; `leaf` reads one field with what is asked of it."""
        check_depth(depth)
        if not isinstance(value, dict):
            raise Malformed("A filter is an object of fields")
        logical = self._logical(value, depth, lambda each, below: self.top(each, below, leaf))
        if logical is not None:
            return logical[0]
        return all_of((leaf or self._named)(name, asked, depth + 1) for name, asked in value.items())

    def condition(self, name: str, key: str, operator: Operator, value: Any) -> Filter | None:
        """One condition, counted."""
        self._conditions += 1
        self._values += len(value) if isinstance(value, list) else 1
        if self._conditions > CONDITIONS_MAX or self._values > VALUES_MAX:
            raise Malformed(f"A filter has at most {CONDITIONS_MAX} conditions and {VALUES_MAX} values")
        return condition(name, key, operator, value, fields=self._fields, workspace=self._workspace)

    def place(self, text: str) -> tuple[str, str]:
        """Field and key of a name: `kind`, `metadata.suite`, `metadata[suite]`, `data.spec.intent`."""
        if text.startswith("metadata[") and text.endswith("]"):
            name, key = "metadata", text[len("metadata[") : -1]
        else:
            name, _, key = text.partition(".")
        if name == "data" and key:
            return name, key
        kind = self._fields.kind(name)
        if key and kind not in KEYED:
            self._fields.kind(text)  # which it is not
        return name, key

    def _named(self, text: str, asked: Any, depth: int) -> Filter | None:
        name, key = self.place(text)
        if name == "metadata" and text == name:
            return self._annotations(asked, depth)
        return self._asked(name, key, asked, depth)

    def _annotations(self, asked: Any, depth: int) -> Filter | None:
        """`metadata` with an object: every key of it must match."""
        if not isinstance(asked, dict) or not asked:
            raise Malformed("'metadata' takes an object of keys and values; for one key write metadata.<key>")
        return self.top(asked, depth, lambda key, value, below: self._asked("metadata", key, value, below))

    def _asked(self, name: str, key: str, asked: Any, depth: int) -> Filter | None:
        """What is asked of one field: a value it equals, operators, or one logical operator over such."""
        check_depth(depth)
        if not isinstance(asked, dict) or not any(each.startswith("$") for each in asked):
            return self.condition(name, key, Operator.EQ, asked)
        logical = self._logical(asked, depth, lambda each, below: self._asked(name, key, each, below))
        if logical is not None:
            return logical[0]
        return all_of(self._operator(name, key, operator, value, depth) for operator, value in asked.items())

    def _operator(self, name: str, key: str, text: str, value: Any, depth: int) -> Filter | None:
        try:
            operator = Operator(text)
        except ValueError:
            raise Malformed(f"'{text[:80]}' is no operator; there are {', '.join(Operator)}") from None
        if operator is Operator.ELEM_MATCH and name == "data":
            value = self._element(value, depth)
        return self.condition(name, key, operator, value)

    def _element(self, asked: Any, depth: int) -> Filter:
        """What an element of a list must be: operators on itself, or an object of its members."""
        if isinstance(asked, dict) and not any(each.startswith("$") for each in asked):
            found = self.top(asked, depth, lambda path, value, below: self._asked("data", path, value, below))
        else:
            found = self._asked("data", "", asked, depth + 1)
        return found or ALWAYS

    def _logical(
        self, value: dict[str, Any], depth: int, read: Callable[[Any, int], Filter | None]
    ) -> tuple[Filter | None] | None:
        """The filter, in a tuple of its own, if `value` is a logical operator."""
        operators = _LOGICAL & value.keys()
        if not operators:
            return None
        if len(value) > 1:
            raise Malformed(f"{min(operators)} stands alone in its object; put what is beside it into an $and")
        ((operator, inner),) = value.items()
        if operator == "$not":
            if not isinstance(inner, dict):
                raise Malformed("$not takes an object")
            found = read(inner, depth + 1)
            return (None if found is None else Negated(found),)
        if not isinstance(inner, list) or not inner:
            raise Malformed(f"{operator} takes a list of at least one filter")
        items = [read(each, depth + 1) for each in inner]
        kept = tuple(item for item in items if item is not None)
        if operator == "$or":
            # A part that asks nothing is met by every record.
            return (AnyOf(kept) if len(kept) == len(items) else None,)
        return (all_of(kept),)


def all_of(items: Iterable[Filter | None]) -> Filter | None:
    """Every one of those that ask something; None if none does."""
    kept = tuple(item for item in items if item is not None)
    return kept[0] if len(kept) == 1 else AllOf(kept) if kept else None


def check_depth(depth: int) -> None:
    """Raises `Malformed` below the deepest level a filter may have."""
    if depth > DEPTH_MAX:
        raise Malformed(f"A filter is at most {DEPTH_MAX} levels deep")


def read_json(text: str) -> Any:
    """A value of a filter. Raises `Malformed` for what is not JSON, or what JSON can say and no database can hold."""
    try:
        value = json.loads(
            text, parse_constant=_no_number, parse_float=_finite, object_pairs_hook=_no_doubles, strict=False
        )
        json.dumps(value, ensure_ascii=False).encode()  # a lone surrogate is no character
    except RecursionError:
        raise Malformed(f"A filter is at most {DEPTH_MAX} levels deep") from None
    except ValueError as error:
        raise Malformed(f"The filter is not JSON: {str(error)[:200]}") from None
    return value


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is too large")
    return value


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice; put the conditions into an $and")
    return found
