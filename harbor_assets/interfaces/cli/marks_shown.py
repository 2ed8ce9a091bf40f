"""How marks of tasks and runs are shown, wherever these are used."""

from collections.abc import Iterable, Iterator, Sequence

from harbor_assets.domain.errors import NotFound
from harbor_assets.domain.marks import Mark, warnings
from harbor_assets.domain.names import Ref
from harbor_assets.interfaces.cli.output import Output, counted, note, one_line
from harbor_assets.interfaces.cli.session import Session

NAMED_MAX = 20  # marks told one by one; the rest is counted


def marks_of(session: Session, subjects: Sequence[str], workspace: str) -> list[Mark]:
    """The marks of these in the session's workspace, then those in `workspace`, where that is another. A service of an
    earlier version keeps none, which is said."""
    try:
        return [
            mark
            for where in dict.fromkeys((session.workspace, workspace))
            for mark in session.evaluator.marks.lookup(subjects, workspace=where)
        ]
    except NotFound:
        session.tell("Note: this service is of a version that keeps no marks of tasks")
        return []


def told(mark: Mark) -> str:
    """What a mark says, and why: `flaky: oracle passed 2 of 3, nop passed 0 of 3 (ann, 2026-11-29)`."""
    return f"{mark.verdict}: {one_line(mark.why)} ({one_line(mark.who)}, {mark.at:%Y-%m-%d})"


def print_warnings(marks: Iterable[Mark], out: Output) -> None:
    """A line for each mark that one should know of before one believes scores."""
    for line in _warnings(marks):
        out.line(line)


def note_warnings(marks: Iterable[Mark]) -> None:
    """As `print_warnings`, on stderr whatever the command prints."""
    for line in _warnings(marks):
        note(line)


def _warnings(marks: Iterable[Mark]) -> Iterator[str]:
    found = warnings(marks)
    for mark in found[:NAMED_MAX]:
        yield f"Warning: {_name(mark.subject)} is marked {told(mark)}"
    if len(found) > NAMED_MAX:
        yield f"Warning: {counted(len(found) - NAMED_MAX, 'more mark')}; --json has all of them"


def _name(subject: str) -> str:
    """A run's id, or a task with the digest cut to what tells it apart."""
    return Ref.parse(subject, workspace="").partition_key if "#" in subject else subject
