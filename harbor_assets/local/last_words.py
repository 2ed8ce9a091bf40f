"""How a worker ended, from its exit status if we were its parent, and from the end of its log."""

import re
import signal
from pathlib import Path

TAIL_BYTES = 64 * 1024  # of a log: more than the longest traceback
SAID_MAX = 300  # characters of a line that fit into a message
_ENTRY = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ (?P<level>[A-Z]+) \S+: (?P<text>.*)$")


def last_words(log: Path, status: int | None) -> str | None:
    """`killed by SIGKILL; last in its log: execution 1 of ...`; None if nothing is known.

    `status` is the exit status as `subprocess` has it (negative: a signal), None where another process started it.
    """
    ended = _ended(status)
    lines = [line for line in _tail(log).splitlines() if line.strip()]
    entries = [match for line in lines if (match := _ENTRY.match(line))]
    if not lines or not entries:
        return ended
    last = entries[-1]
    if last["level"] not in ("ERROR", "CRITICAL"):
        return f"{ended or 'it ended without a word'}; last in its log: {last['text'][:SAID_MAX]}"
    said = (
        last["text"] if lines[-1] == last.string else f"{last['text']}: {lines[-1].strip()}"
    )  # of a traceback the end
    return f"{ended}: {said[:SAID_MAX]}" if ended else said[:SAID_MAX]


def _ended(status: int | None) -> str | None:
    if status is None:
        return None
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
