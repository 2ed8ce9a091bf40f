"""The three ways to write a filter: `filter=` with JSON or with text, and `filter[...]=` parameters.

All lead to one tree (`filters.py`). Source: the API's documented filters.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

from harbor_assets.domain.errors import Malformed
from harbor_assets.domain.filter_reader import LENGTH_MAX, Reader, all_of, check_depth, read_json
from harbor_assets.domain.filter_text import Text
from harbor_assets.domain.filters import LISTS, TEXTS, Fields, Filter

_SHORT: Final = frozenset({"gte", "lte", "gt", "lt", "like", "eq", "in", "nin", "not", "exists"})  # `$` may be left off
_SEGMENT: Final = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])+)\]")


def parse_filter(parameters: Sequence[tuple[str, str]], *, fields: Fields, workspace: str) -> Filter | None:
    """The filter of a request's query parameters; None if there is none, or if it asks nothing.

    Raises `Malformed` for what is no filter, names unknown fields or operators, or is above a limit.
    """
    reader = Reader(fields, workspace)
    whole = [value for name, value in parameters if name == "filter"]
    if whole:
        found = [
            reader.top(read_json(_short(text))) if text.lstrip().startswith("{") else Text(_short(text), reader).read()
            for text in whole
            if text.strip()
        ]
        return all_of(found)
    brackets = [(name, _short(value)) for name, value in parameters if name.startswith("filter[")]
    if sum(len(name) + len(value) for name, value in brackets) > LENGTH_MAX:
        raise Malformed(f"A filter has at most {LENGTH_MAX} characters")
    return all_of([reader.top(_bracket(_short(name), value)) for name, value in brackets])


def _short(text: str) -> str:
    if len(text) > LENGTH_MAX:
        raise Malformed(f"A filter has at most {LENGTH_MAX} characters")
    return text


def _bracket(name: str, text: str) -> dict[str, Any]:
    """`filter[f][$op]=v` as the object that JSON would write."""
    at, path = len("filter"), list[str]()
    while at < len(name):
        segment = _SEGMENT.match(name, at)
        if segment is None:
            raise Malformed(f"'{name[:80]}' is no filter; write filter[field]=value or filter[field][$op]=value")
        path.append(segment[1])
        at = segment.end()
    path = [path[0], *(f"${step}" if step in _SHORT else step for step in path[1:])]
    check_depth(len(path))
    value = _value(text, path[-1])
    for step in reversed(path):
        value = {step: value}
    return value


def _value(text: str, last: str) -> Any:
    if last in TEXTS:
        return text
    value: Any = text
    if not text:
        value = None
    elif text[0] in "{[":
        value = read_json(text)
    elif "," in text:
        value = text.split(",")
    return [value] if last in LISTS and not isinstance(value, list) else value
