"""Comparisons of two texts or two numbers, by the words that definitions use for them."""

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Literal, get_args

StringOperation = Literal[
    "equals", "==", "!=", "<>", "not equals", "contains", "not contains", "startswith", "endswith"
]
NumberOperation = Literal[
    "equals",
    "==",
    "!=",
    "<>",
    "not equals",
    ">=",
    "gte",
    "greater than or equal",
    ">",
    "gt",
    "greater than",
    "<=",
    "lte",
    "less than or equal",
    "<",
    "lt",
    "less than",
    "absolute difference",
]

_STRINGS: Mapping[str, Callable[[str, str], bool]] = {
    **dict.fromkeys(("equals", "=="), operator.eq),
    **dict.fromkeys(("not equals", "!=", "<>"), operator.ne),
    "contains": operator.contains,
    "not contains": lambda left, right: right not in left,
    "startswith": str.startswith,
    "endswith": str.endswith,
}
_NUMBERS: Mapping[str, Callable[[float, float], bool]] = {
    **dict.fromkeys(("equals", "=="), operator.eq),
    **dict.fromkeys(("not equals", "!=", "<>"), operator.ne),
    **dict.fromkeys((">=", "gte", "greater than or equal"), operator.ge),
    **dict.fromkeys((">", "gt", "greater than"), operator.gt),
    **dict.fromkeys(("<=", "lte", "less than or equal"), operator.le),
    **dict.fromkeys(("<", "lt", "less than"), operator.lt),
}
assert {*_STRINGS} == {*get_args(StringOperation)}
assert {*_NUMBERS, "absolute difference"} == {*get_args(NumberOperation)}

_NUMBER = re.compile(r"[+-]?[.\d]+", re.ASCII)  # with points at its end, which are the sentence's
_DIGITS_MAX = 400  # the largest float has 309; what is longer is no measurement


def check_strings(operation: StringOperation, left: str, right: str) -> float:
    """1.0 if it holds, else 0.0; `contains` is true where the left holds the right."""
    return float(_STRINGS[operation](left, right))


def check_numbers(operation: NumberOperation, left: str, right: str, epsilon: float | None = None) -> float:
    """1.0 if it holds between the last numbers of both texts, else 0.0; NaN where one has none.

    `absolute difference` holds up to `epsilon`, that included.
    """
    one, other = last_number(left), last_number(right)
    if math.isnan(one) or math.isnan(other):
        return math.nan
    if operation == "absolute difference":
        assert epsilon is not None
        return float(abs(one - other) <= epsilon)
    return float(_NUMBERS[operation](one, other))


def last_number(text: str) -> float:
    """The last number in a text (`-3.5`, `.75`, `42`); NaN if there is none, or it has two points as in `1.2.3`."""
    found = ""
    for match in _NUMBER.finditer(text):
        found = match.group().rstrip(".+-") or found
    if not found or len(found) > _DIGITS_MAX or found.count(".") > 1:
        return math.nan
    value = float(found)
    return value if math.isfinite(value) else math.nan
