"""Marks: what is known of a task's revision, or of a run, beside its scores. They never change a score.

`tasksets verify` finds out of a task's revision whether its own oracle solves it and doing nothing does not; a person
says of a task or a run that it is bad, and why. One subject has at most one mark of each kind in a workspace: a newer
one takes the place of the older.
"""

import re
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final, Literal, Self

from pydantic import AwareDatetime, Field, field_validator, model_validator

from harbor_assets.domain.errors import Refused
from harbor_assets.domain.names import Ref
from harbor_assets.domain.outcomes import Frozen

WHY_MAX: Final = 2000  # characters
RUNS_MAX: Final = 100
EARLIER_MAX: Final = 20  # words of persons that a newer one took the place of; the newest are kept
LOOKUP_MAX: Final = 10_000  # subjects in one look-up; a client with more asks again
SUBJECT_MAX: Final = 600  # characters: two names of 255 and a digest
_RUN: Final = re.compile(r"run-[0-9a-f]{16}")

MarkKind = Literal["verified", "judged"]


class Verdict(StrEnum):
    """What a mark says: the closed list."""

    GOOD = "good"  # the oracle always passes, and nop never does
    FLAKY = "flaky"  # the oracle passes sometimes
    ORACLE_FAILS = "oracle_fails"  # the oracle never passes
    NOP_PASSES = "nop_passes"  # doing nothing passes, at least once
    BAD = "bad"  # a person said so

    @property
    def kind(self) -> MarkKind:
        """`verified`: found by running the task; `judged`: said by a person."""
        return "judged" if self is Verdict.BAD else "verified"

    @property
    def warns(self) -> bool:
        """Whether whoever uses the subject should be told before they believe its scores."""
        return self is not Verdict.GOOD

    @property
    def told(self) -> str:
        """In words."""
        return _TOLD[self]


_TOLD: Final = {
    Verdict.GOOD: "verified: its oracle always passes, doing nothing never does",
    Verdict.FLAKY: "flaky: its oracle passes only sometimes",
    Verdict.ORACLE_FAILS: "its own oracle does not pass",
    Verdict.NOP_PASSES: "doing nothing passes it",
    Verdict.BAD: "marked bad",
}


def subject_problem(subject: str) -> str | None:
    """Why nothing with this name can be marked, or None: a run id, or a task pinned by digest, can."""
    if _RUN.fullmatch(subject):
        return None
    try:
        ref = Ref.parse(subject, workspace="")
    except Refused:
        ref = None
    if ref is None or ref.digest is None or not ref.workspace:
        return f"'{subject[:200]}' is neither a run (run-...) nor a task pinned by digest (workspace/name#digest)"
    return None


class Said(Frozen):
    """What a person said before somebody said something newer."""

    who: str = Field(min_length=1, max_length=255)
    why: str = Field(min_length=1, max_length=WHY_MAX)
    at: AwareDatetime


class Mark(Frozen):
    """What is said in a workspace of `subject`: a task by its pinned reference (`ws/name#digest`), or a run by its id.

    `workspace` is where it was said, and where it is seen: a task may be another workspace's. `runs` show it.
    `earlier`: what persons said of it before this, the newest first.
    """

    workspace: str
    subject: str
    verdict: Verdict
    who: str = Field(min_length=1, max_length=255)
    why: str = Field(min_length=1, max_length=WHY_MAX)
    at: AwareDatetime
    runs: tuple[str, ...] = Field(default=(), max_length=RUNS_MAX)
    # Left out where there is none: plans hold marks, and programs of before this know no such member.
    earlier: tuple[Said, ...] = Field(default=(), max_length=EARLIER_MAX, exclude_if=lambda earlier: not earlier)

    @field_validator("subject")
    @classmethod
    def _can_be_marked(cls, subject: str) -> str:
        if problem := subject_problem(subject):
            raise ValueError(problem)
        return subject

    @model_validator(mode="after")
    def _verified_by_running(self) -> Self:
        if self.verdict.kind == "verified" and (not self.runs or _RUN.fullmatch(self.subject)):
            raise ValueError(f"'{self.verdict}' is said of a task, by the runs that show it")
        return self

    @property
    def kind(self) -> MarkKind:
        return self.verdict.kind

    def replacing(self, older: "Mark | None") -> "Mark":
        """As it is kept in the place of `older`: what a person said there is not forgotten."""
        if older is None or self.kind != "judged":
            return self
        said = Said(who=older.who, why=older.why, at=older.at)
        return self.model_copy(update={"earlier": (said, *older.earlier)[:EARLIER_MAX]})


class MarkLookup(Frozen):
    """Whose marks: tasks pinned by digest (`workspace/name#digest`), and runs by id."""

    subjects: Annotated[list[Annotated[str, Field(max_length=SUBJECT_MAX)]], Field(max_length=LOOKUP_MAX)]


def order(mark: Mark) -> tuple[datetime, str, str]:
    """Of a list: oldest first; equal moments by subject."""
    return mark.at, mark.subject, mark.kind


def warnings(marks: Iterable[Mark]) -> list[Mark]:
    """Those that one should be told of, what a person said first."""
    return sorted(
        (mark for mark in marks if mark.verdict.warns), key=lambda mark: (mark.kind == "verified", order(mark))
    )


def stale(marks: Iterable[Mark]) -> bool:
    """Whether a number that these marks touch is not to be believed any more: a person said so."""
    return any(mark.verdict is Verdict.BAD for mark in marks)


def each_once(marks: Iterable[Mark]) -> list[Mark]:
    """Of the marks of several runs, which one task may touch: each once, what a person said first."""
    return warnings({(mark.workspace, mark.subject, mark.kind): mark for mark in marks}.values())


class Touched(Frozen):
    """A run whose numbers rest on something marked: on itself, or on a task of it."""

    run_id: str
    stale: bool
    marks: tuple[Mark, ...]


class Judgement(Frozen):
    """What a person says: that a run, or a task's revision (the newest where none is named), is bad, and why. Judged by
    `engine/marking.py`."""

    subject: str = Field(examples=["run-0123456789abcdef"])
    why: str = Field(examples=["its verifier accepts an empty file"])
