"""Filters as text: `kind:"harbor" AND (intent~"capital" OR -metadata["suite"]:"x") name IN ["a", "b"]`.

AND binds tighter than OR, a space is AND, `-` negates what follows.
"""

import re
from typing import Any, Final

from harbor_assets.domain.errors import Malformed
from harbor_assets.domain.filter_reader import Reader, all_of, check_depth, read_json
from harbor_assets.domain.filters import AnyOf, Filter, Negated, Operator

_SPACE = re.compile(r"\s*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])")
_WORD = re.compile(r"[A-Za-z_][\w\-]*(?:\.[\w\-]+)*")
_COMPARISON = re.compile(r">=|<=|[:~<>]")
_OPERATORS: Final = {
    ":": Operator.EQ,
    "~": Operator.LIKE,
    ">": Operator.GT,
    ">=": Operator.GTE,
    "<": Operator.LT,
    "<=": Operator.LTE,
}


class Text:
    """One filter, and how far it is read."""

    def __init__(self, text: str, reader: Reader) -> None:
        self._text, self._at, self._reader = text, 0, reader

    def read(self) -> Filter | None:
        """All of it. Raises `Malformed` saying where it cannot be read."""
        found = self._either(0)
        self._skip()
        if self._at < len(self._text):
            raise self._wrong("expected AND, OR or the end")
        return found

    def _either(self, depth: int) -> Filter | None:
        items = [self._both(depth)]
        while self._keyword("or"):
            items.append(self._both(depth))
        kept = tuple(item for item in items if item is not None)
        if len(kept) < len(items):
            return None
        return kept[0] if len(kept) == 1 else AnyOf(kept)

    def _both(self, depth: int) -> Filter | None:
        items = [self._one(depth)]
        while True:
            self._skip()
            if self._keyword("and") or (self._at < len(self._text) and self._peek() != ")" and not self._is("or")):
                items.append(self._one(depth))
            else:
                return all_of(items)

    def _one(self, depth: int) -> Filter | None:
        check_depth(depth)
        if self._take("-"):
            found = self._one(depth + 1)
            return None if found is None else Negated(found)
        if self._take("("):
            found = self._either(depth + 1)
            if not self._take(")"):
                raise self._wrong("expected )")
            return found
        return self._clause()

    def _clause(self) -> Filter | None:
        name, key = self._place()
        if comparison := self._match(_COMPARISON):
            return self._condition(name, key, _OPERATORS[comparison], self._value())
        if self._keyword("in"):
            return self._condition(name, key, Operator.IN, self._values())
        if self._keyword("not"):
            if not self._keyword("in"):
                raise self._wrong("expected IN")
            return self._condition(name, key, Operator.NIN, self._values())
        raise self._wrong("expected one of : ~ > >= < <= IN, NOT IN")

    def _condition(self, name: str, key: str, operator: Operator, value: Any) -> Filter | None:
        return self._reader.condition(name, key, operator, value)

    def _place(self) -> tuple[str, str]:
        word = self._match(_WORD)
        if word is None:
            raise self._wrong("expected a field, -, or (")
        if word == "metadata" and self._peek() == "[":
            self._take("[")
            key = self._string()
            if not self._take("]"):
                raise self._wrong("expected ]")
            return word, key
        if word == "metadata":
            raise self._wrong('expected a key: metadata["key"] or metadata.key')
        return self._reader.place(word)

    def _values(self) -> list[Any]:
        if not self._take("["):
            raise self._wrong('expected a list as ["a", "b"]')
        if self._take("]"):
            return []
        values = [self._value()]
        while self._take(","):
            values.append(self._value())
        if not self._take("]"):
            raise self._wrong("expected , or ]")
        return values

    def _value(self) -> Any:
        self._skip()
        if self._peek() == '"':
            return self._string()
        if digits := self._match(_NUMBER):
            return read_json(digits)
        if self._keyword("null"):
            return None
        raise self._wrong('expected a value: a text in "quotes", a number, or null')

    def _string(self) -> str:
        text = self._match(_STRING)
        if text is None:
            raise self._wrong('expected a text in "quotes"')
        return read_json(text)

    def _skip(self) -> None:
        found = _SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, character: str) -> bool:
        self._skip()
        if self._peek() != character:
            return False
        self._at += 1
        return True

    def _match(self, pattern: re.Pattern[str]) -> str | None:
        self._skip()
        found = pattern.match(self._text, self._at)
        if found is None:
            return None
        self._at = found.end()
        return found[0]

    def _is(self, keyword: str) -> bool:
        self._skip()
        word = _WORD.match(self._text, self._at)
        return word is not None and word[0].casefold() == keyword

    def _keyword(self, keyword: str) -> bool:
        if not self._is(keyword):
            return False
        self._at += len(keyword)
        return True

    def _wrong(self, expected: str) -> Malformed:
        self._skip()
        near = self._text[self._at : self._at + 20] or "the end"
        return Malformed(f"The filter cannot be read at character {self._at + 1} ({near!r}): {expected}")
