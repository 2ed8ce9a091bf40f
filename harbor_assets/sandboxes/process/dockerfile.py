"""A Dockerfile as a list of instructions: lines, comments, continuations, directives, flags, here-documents. Pure.

The grammar is that of Docker's Dockerfile reference as BuildKit reads it (moby/buildkit, frontend/dockerfile/parser).
What the instructions mean is in `recipe.py`.
"""

import json
import re
from dataclasses import dataclass

from harbor_assets.domain.errors import HarborAssetsError, Refused
from harbor_assets.sandboxes.process.dockerwords import Marker, WordError, marker, raw_words, unquote

MAX_BYTES = 1 << 20  # the longest Dockerfile of the public suites has 30 KB; here-documents may carry scripts
KNOWN = frozenset(
    "FROM ARG ENV WORKDIR USER SHELL COPY ADD RUN "
    "CMD ENTRYPOINT EXPOSE LABEL VOLUME HEALTHCHECK STOPSIGNAL MAINTAINER ONBUILD".split()
)
_WITH_HEREDOCS = frozenset({"RUN", "COPY", "ADD"})
_DIRECTIVE = re.compile(r"#\s*([a-zA-Z][a-zA-Z0-9]*)\s*=\s*(.+?)\s*")
_SPACES = re.compile(r"[\t\v\f\r ]+")


class DockerfileUnsupported(Refused):
    """The Dockerfile asks for something a view of the machine cannot give, or cannot be read. Nothing was built."""


class LayerBuildError(HarborAssetsError):
    """An instruction failed: which one, its exit code, and the end of what it printed (at most 2000 characters)."""


@dataclass(frozen=True, slots=True)
class Heredoc:
    """One here-document. `body` has lost the leading tabs of `<<-`; `raw` is as in the file."""

    marker: Marker
    raw: str

    @property
    def body(self) -> str:
        return re.sub(r"(?m)^\t+", "", self.raw) if self.marker.chomp else self.raw


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. `word` is upper case; `rest` is what follows the flags, continuations joined, not expanded.

    `flags` are (name, value) pairs in order, without `--`; `array` is `rest` where it is a JSON array of strings.
    """

    line: int
    word: str
    rest: str
    flags: tuple[tuple[str, str], ...] = ()
    array: tuple[str, ...] | None = None
    heredocs: tuple[Heredoc, ...] = ()

    @property
    def text(self) -> str:
        """One line for people, at most 200 characters."""
        line = " ".join([self.word, *(f"--{name}={value}" for name, value in self.flags), *self.rest.split()])
        return line if len(line) <= 200 else line[:197] + "..."

    def refusal(self, why: str) -> DockerfileUnsupported:
        """An error that names this instruction, with `why` saying the rule and the next step."""
        return DockerfileUnsupported(f"Dockerfile line {self.line}, {self.text}: {why}")


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """A parsed file. `escape` escapes characters and continues lines: a backslash unless a directive says otherwise."""

    instructions: tuple[Instruction, ...]
    escape: str = "\\"


def parse(data: bytes) -> Dockerfile:
    """Read a Dockerfile. Raises `DockerfileUnsupported` with the line where it cannot be read."""
    return _Parser(_text(data)).run()


def _text(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise DockerfileUnsupported(f"The Dockerfile has {len(data)} bytes, {MAX_BYTES} are allowed. COPY big files.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DockerfileUnsupported(f"The Dockerfile is not UTF-8 at byte {error.start}. Save it as UTF-8.") from None
    if "\0" in text:
        raise DockerfileUnsupported("The Dockerfile holds a NUL character, which no command can. Remove it.")
    return text


class _Parser:
    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")  # not splitlines: a form feed does not end a line
        self.at = 0
        self.escape = "\\"

    def run(self) -> Dockerfile:
        self._directives()
        found: list[Instruction] = []
        while self.at < len(self.lines):
            start = self.at + 1
            if logical := self._logical_line():
                found.append(self._instruction(start, logical))
        if not found:
            raise DockerfileUnsupported("The Dockerfile has no instructions. Write at least FROM.")
        return Dockerfile(tuple(found), self.escape)

    def _directives(self) -> None:
        """`# escape=` and its kind stand before anything else; the first other line ends them."""
        seen: set[str] = set()
        for number, line in enumerate(self.lines, 1):
            match = _DIRECTIVE.fullmatch(line.strip())
            name = match[1].lower() if match else ""
            if match is None or name not in ("syntax", "escape", "check"):
                return
            if name in seen:
                raise DockerfileUnsupported(f"Dockerfile line {number}: the directive '{name}' may stand only once.")
            seen.add(name)
            if name == "escape":
                if match[2] not in ("\\", "`"):
                    raise DockerfileUnsupported(f"Dockerfile line {number}: escape is \\ or `, not '{match[2]}'.")
                self.escape = match[2]

    def _logical_line(self) -> str:
        """The next line with its continuations; empty for a comment or blank line."""
        parts: list[str] = []
        goes_on = True
        while goes_on and self.at < len(self.lines):
            line = self.lines[self.at].rstrip("\r")
            self.at += 1
            bare = line.lstrip()
            if bare.startswith("#") or (parts and not bare):
                if not parts:
                    return ""
                continue  # comments and blank lines inside a continuation are left out
            line, goes_on = self._continuation(line if parts else bare)
            parts.append(line)
        return "".join(parts).strip()

    def _continuation(self, line: str) -> tuple[str, bool]:
        bare = line.rstrip(" \t")
        if bare.endswith(self.escape) and not bare.endswith(self.escape * 2):
            return bare[:-1], True
        return line, False

    def _instruction(self, line: int, logical: str) -> Instruction:
        word, *after = _SPACES.split(logical, maxsplit=1)
        word, rest = word.upper(), after[0] if after else ""
        flags: list[tuple[str, str]] = []
        try:
            while rest.startswith("--"):
                raw, end = next(raw_words(rest, escape=self.escape))
                rest = rest[end:].lstrip()
                if raw == "--":
                    break
                name, _, value = unquote(raw[2:], escape=self.escape).partition("=")
                flags.append((name, value))
            array = _array(rest)
            plain = Instruction(line, word, rest, tuple(flags), array)
            return Instruction(line, word, rest, tuple(flags), array, self._heredocs(plain))
        except WordError as error:
            raise DockerfileUnsupported(f"Dockerfile line {line}, {logical[:200]}: {error}.") from None

    def _heredocs(self, of: Instruction) -> tuple[Heredoc, ...]:
        word, rest = of.word, of.rest
        if word == "ONBUILD":
            word, _, rest = rest.partition(" ")
        if word.upper() not in _WITH_HEREDOCS or of.array is not None or "<<" not in rest:
            return ()
        markers = [found for raw, _ in raw_words(rest, heredocs=True) if (found := marker(raw))]
        return tuple(Heredoc(found, self._body(found, of)) for found in markers)

    def _body(self, found: Marker, of: Instruction) -> str:
        body: list[str] = []
        while self.at < len(self.lines):
            line = self.lines[self.at]
            self.at += 1
            bare = line.rstrip("\r")
            if (bare.lstrip("\t") if found.chomp else bare) == found.name:
                return "".join(f"{part}\n" for part in body)
            body.append(line)
        raise of.refusal(f"the here-document <<{found.name} never ends. Close it with a line '{found.name}'.")


def _array(rest: str) -> tuple[str, ...] | None:
    """`rest` as a JSON array of strings; None where it is anything else, which Docker then reads as shell words."""
    if not rest.startswith("["):
        return None
    try:
        value = json.loads(rest)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise WordError("a JSON array may hold strings only")
    return tuple(value)
