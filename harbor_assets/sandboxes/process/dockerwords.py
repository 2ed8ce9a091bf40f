"""Words of a Dockerfile: quotes, escapes, variables and here-documents.

The rules are those of BuildKit's lexer (moby/buildkit, frontend/dockerfile/shell/lex.go and parser/parser.go), told
by example in Docker's Dockerfile reference. Pure functions.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_NAME = re.compile(r"\d+|[@*#?\-$!]|\w*")  # a positional, a special parameter, or an ordinary name
_HEREDOC = re.compile(r"(\d*)<<(-?)\s*([^<]*)", re.DOTALL)


class WordError(ValueError):
    """A word cannot be read: a quote or brace that never closes, or a substitution there is none of."""


@dataclass(frozen=True, slots=True)
class Marker:
    """`<<NAME`: the body that follows ends at a line `name`. `expand`: variables in it are replaced (no quotes used).
    `chomp`: leading tabs go (`<<-NAME`)."""

    name: str
    expand: bool
    chomp: bool


class _Lexer:
    """Reads one text. `env` None keeps `$name` as it stands. `unset` gathers the names that had no value."""

    def __init__(self, text: str, env: Mapping[str, str] | None, escape: str, *, quotes: bool = True) -> None:
        self.text, self.env, self.escape, self.quotes = text, env, escape, quotes
        self.at = 0
        self.quoted = False
        self.unset: list[str] = []

    def _next(self) -> str:
        char = self.text[self.at : self.at + 1]
        self.at += 1
        return char

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def until(self, stop: str) -> str:
        """Everything up to `stop` (which is consumed), or to the end if `stop` is empty."""
        out: list[str] = []
        while self.at < len(self.text):
            char = self._next()
            if char == stop:
                return "".join(out)
            if char == "$":
                out.append(self._dollar())
            elif char == "'" and self.quotes:
                out.append(self._single())
            elif char == '"' and self.quotes:
                out.append(self._double())
            elif char == self.escape:
                out.append(self._next())
            else:
                out.append(char)
        if stop:
            raise WordError(f"'{self.text}' misses a closing {stop}")
        return "".join(out)

    def _single(self) -> str:
        self.quoted = True
        end = self.text.find("'", self.at)
        if end < 0:
            raise WordError(f"{self.text!r} opens a single quote and never closes it")
        body, self.at = self.text[self.at : end], end + 1
        return body

    def _double(self) -> str:
        self.quoted = True
        out: list[str] = []
        while self.at < len(self.text):
            char = self._next()
            if char == '"':
                return "".join(out)
            if char == "$":
                out.append(self._dollar())
            elif char == self.escape:  # escapes only what would mean something here
                follows = self._peek()
                out.append(self._next() if follows in ('"', "$", self.escape) else char if follows else "")
            else:
                out.append(char)
        raise WordError(f"{self.text!r} opens a double quote and never closes it")

    def _dollar(self) -> str:
        if self.env is None:
            return "$"
        if self._peek() != "{":
            name = self._name()
            return self._value(name) if name else "$"
        self.at += 1
        if self._peek() in ("", "{", "}", ":"):
            raise WordError(f"'{self.text}' holds a substitution without a name")
        name = self._name()
        sign = self._next()
        if sign == "}":
            return self._value(name)
        empty_is_unset = sign == ":"
        if empty_is_unset:
            sign = self._next()
        if sign not in ("-", "+", "?"):
            raise WordError(
                f"'{self.text}': after ${{{name} only -, +, ?, :-, :+ and :? are understood, not {sign or 'its end'!r}"
            )
        word = self.until("}")
        value = self.env.get(name)
        missing = value is None or (empty_is_unset and not value)
        if sign == "?" and missing:
            raise WordError(f"{name}: {word or 'is not allowed to be unset or empty'}")
        if sign == "+":
            return "" if missing else word
        return word if missing else value or ""

    def _name(self) -> str:
        match = _NAME.match(self.text, self.at)
        assert match is not None  # the last alternative matches nothing too
        self.at = match.end()
        return match.group()

    def _value(self, name: str) -> str:
        assert self.env is not None
        if name not in self.env:
            self.unset.append(name)
        return self.env.get(name, "")


def expand(
    word: str, env: Mapping[str, str], *, escape: str = "\\", quotes: bool = True, unset: list[str] | None = None
) -> str:
    """`word` with variables replaced and quotes and escapes taken away; an unset variable is empty.

    `quotes=False` leaves quotes alone (the body of a here-document). Names without a value are added to `unset`.
    Raises `WordError`.
    """
    lexer = _Lexer(word, env, escape, quotes=quotes)
    result = lexer.until("")
    if unset is not None:
        unset += [name for name in dict.fromkeys(lexer.unset) if name not in unset]
    return result


def unquote(word: str, *, escape: str = "\\") -> str:
    """`word` without its quotes and escapes; `$` stays. Raises `WordError`."""
    return _Lexer(word, None, escape).until("")


def raw_words(text: str, *, escape: str = "\\", heredocs: bool = False) -> Iterator[tuple[str, int]]:
    """(word, where it ends) of each word, split at white space outside quotes; quotes and escapes are kept.

    With `heredocs`, `<< NAME` is one word. A quote that never closes runs to the end.
    """
    at, end = 0, len(text)
    while at < end:
        while at < end and text[at].isspace():
            at += 1
        start, quote = at, ""
        while at < end and (quote or not text[at].isspace()):
            char = text[at]
            if char == escape and quote != "'":
                at += 1
            elif char == quote:
                quote = ""
            elif not quote and char in "'\"":
                quote = char
            elif heredocs and not quote and text.startswith("<<", at):
                at += 1
                while text[at + 1 : at + 2].isspace():
                    at += 1
            at += 1
        at = min(at, end)
        if at > start:
            yield text[start:at], at


def marker(word: str) -> Marker | None:
    """The here-document that a raw word opens, or None. Raises `WordError`."""
    match = _HEREDOC.fullmatch(word)
    if match is None:
        return None
    lexer = _Lexer(match[3], None, "\\")
    name = lexer.until("")
    return Marker(name, not lexer.quoted, match[2] == "-") if name else None
