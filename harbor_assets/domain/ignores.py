"""The patterns of a .dockerignore and of a COPY's wildcards. Pure.

Rules: moby/patternmatcher (and its ignorefile) and Go's filepath.Match, as Docker's documentation tells them.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self


class BadPattern(ValueError):
    """A pattern that cannot be read; the text says which and why."""


@dataclass(frozen=True)
class Ignore:
    """The patterns of a .dockerignore, in order; the last that matches a path or one of its parents decides."""

    patterns: tuple[tuple[re.Pattern[str], bool], ...] = ()  # (pattern, it is an exception)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a .dockerignore. Raises `BadPattern`."""
        lines = text.removeprefix("\ufeff").splitlines()
        return cls.of(line.strip() for line in lines if line.strip() and not line.startswith("#"))

    @classmethod
    def of(cls, lines: Iterable[str]) -> Self:
        """From patterns one by one, `!` before an exception. Raises `BadPattern`."""
        found = []
        for line in lines:
            pattern = posixpath.normpath(line.removeprefix("!").strip() or ".")
            pattern = pattern.lstrip("/") or "/"
            found.append((compile_pattern(pattern, f".dockerignore, {line}"), line.startswith("!")))
        return cls(tuple(found))

    @property
    def has_exceptions(self) -> bool:
        return any(exception for _, exception in self.patterns)

    def __call__(self, path: str) -> bool:
        """True if `path`, relative to the context, is left out of it."""
        left_out = False
        for pattern, exception in self.patterns:
            if exception == left_out and any(map(pattern.fullmatch, _with_parents(path))):
                left_out = not exception
        return left_out


def _with_parents(path: str) -> Iterator[str]:
    parts = path.split("/")
    return ("/".join(parts[:count]) for count in range(len(parts), 0, -1))


def compile_pattern(pattern: str, where: str) -> re.Pattern[str]:
    """A pattern as a regular expression: `*` and `?` stay within a segment, `**` crosses them.

    Raises `BadPattern`, beginning with `where`.
    """
    out, at = [], 0
    while at < len(pattern):
        char = pattern[at]
        if pattern.startswith("**", at):
            at += len(pattern) - at - len(re.sub(r"^(\*\*/?)+", "", pattern[at:]))  # **/**/ says no more than **/
            out.append("(?:.*/)?" if at < len(pattern) else ".*")
            continue
        at += 1
        if char == "*":
            out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif char == "[" and (end := pattern.find("]", at + 1)) > 0:
            inside = pattern[at:end].replace("\\", "\\\\").replace("[", "\\[")
            out.append(f"[{inside}]")
            at = end + 1
        elif char == "\\" and at < len(pattern):
            out.append(re.escape(pattern[at]))
            at += 1
        else:
            out.append(re.escape(char))
    try:
        return re.compile("".join(out), re.DOTALL)
    except re.error as error:
        raise BadPattern(f"{where}: the pattern cannot be read ({error}). Correct it.") from None
