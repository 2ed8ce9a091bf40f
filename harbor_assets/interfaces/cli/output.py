"""What commands print: lines for people, one JSON document for programs, and nothing a terminal would act on."""

import json
import os
import shlex
import shutil
import sys
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TextIO

from harbor_assets.domain.text import figure, visible

_KEPT = "\n\t"


def plain(text: str) -> str:
    """`text` with every character a terminal would act on written as its escape; line breaks and tabs stay."""
    return "".join(c if c.isprintable() or c in _KEPT else visible(c) for c in text)


def one_line(text: str) -> str:
    """`text` fit to stand in a table: as `plain`, with line breaks and tabs as blanks."""
    return visible(" ".join(text.split()))


class PipeClosed(Exception):
    """Whoever read our output has gone. Not an OSError: Typer turns a broken pipe into an exit code of its own."""


class Output:
    """Where a command's words go. With `json`, stdout is kept for one document and lines go to stderr."""

    def __init__(self, *, json: bool = False) -> None:
        self.json = json

    @property
    def lines(self) -> TextIO:
        """The stream of lines for people."""
        return sys.stderr if self.json else sys.stdout

    @property
    def live(self) -> bool:
        """Whether those lines go to a terminal that can be redrawn."""
        return self.lines.isatty() and os.environ.get("TERM", "dumb") != "dumb"

    def line(self, text: str = "") -> None:
        """One line, or several, for people."""
        _write(self.lines, plain(text) + "\n")

    def text(self, text: str) -> None:
        """A piece of somebody else's text as it is, without a line end of ours."""
        _write(self.lines, plain(text.replace("\r\n", "\n")))

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Columns, aligned; the last one is not padded. On a terminal what is too wide for it is cut."""
        limit = shutil.get_terminal_size().columns if self.lines.isatty() else None
        cells = [list(headers), *([one_line(cell) for cell in row] for row in rows)]
        widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
        for row in cells:
            padded = [cell + " " * (w - width(cell)) for cell, w in zip(row, widths, strict=True)]
            self.line(cut("  ".join(padded).rstrip(), limit))

    def document(self, value: Any) -> None:
        """The JSON document on stdout. ASCII only: escapes are the one form no terminal acts on."""
        _write(sys.stdout, json.dumps(value, indent=2) + "\n")


def note(text: str) -> None:
    """A remark that must not end up in a pipe: on stderr, whatever the command prints."""
    _write(sys.stderr, plain(text) + "\n")


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()  # in a pipe, too: whoever follows a run reads line by line
    except BrokenPipeError as error:
        raise PipeClosed from error


def width(text: str) -> int:
    """Columns a terminal uses for `text`."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def cut(text: str, columns: int | None) -> str:
    """`text` in at most so many columns, with a mark where something is left out; None: as it is."""
    if columns is None or width(text) <= columns:
        return text
    kept, used = [], 1
    for char in text:
        used += width(char)
        if used > columns:
            break
        kept.append(char)
    return "".join(kept) + "…"


def score(value: float | None) -> str:
    """A score, as `domain.text.figure` writes it; `-` where there is none."""
    return "-" if value is None else figure(value)


def moment(at: datetime | None) -> str:
    """A time in UTC, to the second; `-` where there is none."""
    return "-" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def duration(span: timedelta | float) -> str:
    """A span in words a person reads at once: 3.4 s, 2 min 05 s, 1 h 02 min."""
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def counted(n: int, noun: str) -> str:
    """A number with its noun: 1 task, 2 tasks."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def command(*words: str) -> str:
    """A command line that a shell reads back as these words."""
    return shlex.join(["harbor-assets", *words])
