"""A suite as read from a source: its tasks by stored name, what is wrong with the others, and how some are chosen.

A suite's name is its folder's name; a task's stored name and index follow from the whole source, never from a filter.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Self

from pydantic import Field, JsonValue, model_validator

from harbor_assets.domain.errors import Problem, Refused
from harbor_assets.domain.names import NAME_MAX, name_problem, nearest, short_name, stored_names
from harbor_assets.domain.outcomes import Frozen
from harbor_assets.domain.plans import SkippedTask
from harbor_assets.domain.selection import select_members

TASKSET_SUFFIX = 8  # hexadecimal characters of the digest in a taskset's name
_SUITE_NAME_MAX = NAME_MAX - TASKSET_SUFFIX - 1
_BLANKS = re.compile(r"\s*")


class FileProblem(Frozen):
    """One thing wrong with a task folder: the file (relative to the folder, `.` for itself) and why."""

    file: str
    reason: str


class CheckedFolder(Frozen):
    """One child of a suite, checked by itself. `config` is task.toml as JSON; `native_task_id` None: not readable.

    `status` changes when any file of the folder does: by it the publisher sees that a task moved under its hands.
    """

    name: str
    folder: str
    status: str
    native_task_id: str | None = None
    instruction: str = ""
    config: dict[str, JsonValue] = {}
    warnings: tuple[str, ...] = ()
    problems: tuple[FileProblem, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.native_task_id and not self.problems:
            raise ValueError("a folder without a native id needs the reason among its problems")
        return self


class SourceTask(Frozen):
    """A valid task. `index` is its position, by stored name, in the whole source; `folder` an absolute path."""

    index: int = Field(ge=0)
    stored_name: str
    native_task_id: str
    folder: str
    status: str
    instruction: str
    config: dict[str, JsonValue]
    warnings: tuple[str, ...] = ()


class InvalidTask(Frozen):
    """One reason why a child of the suite cannot be used. A child with three faults is here three times."""

    name: str
    file: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.file}: {self.reason}"


class ListedTask(Frozen):
    """One line of `--list-tasks`."""

    index: int
    name: str
    native_task_id: str
    warnings: tuple[str, ...]


class Suite(Frozen):
    """A source as read: `tasks` by stored name (the index is the position), the faults of the others, and warnings."""

    name: str
    tasks: tuple[SourceTask, ...]
    invalid: tuple[InvalidTask, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def invalid_names(self) -> list[str]:
        """The children that cannot be used, each once, in order."""
        return list(dict.fromkeys(task.name for task in self.invalid))

    @property
    def total(self) -> int:
        """All children, valid or not: the m of "n of m tasks"."""
        return len(self.tasks) + len(self.invalid_names)

    def listing(self) -> list[ListedTask]:
        """What `--list-tasks` prints."""
        return [
            ListedTask(index=t.index, name=t.stored_name, native_task_id=t.native_task_id, warnings=t.warnings)
            for t in self.tasks
        ]

    def skip_invalid(self, allowed: bool) -> tuple[SkippedTask, ...]:
        """What is left out of the run because it is invalid. Raises `Refused` with every fault unless `allowed`.

        Also raises `Refused` where no valid task is left.
        """
        if self.invalid and not (allowed and self.tasks):
            count = len(self.invalid_names)
            next_step = (
                "correct them, or leave them out with --skip-invalid"
                if self.tasks
                else "no valid task is left; correct"
            )
            raise Refused(
                f"{count} of {self.total} tasks in suite '{self.name}' cannot be used; {next_step}:",
                [Problem(task.name, f"{task.file}: {task.reason}") for task in self.invalid],
            )
        return tuple(SkippedTask(name=task.name, file=task.file, reason=task.reason) for task in self.invalid)


def suite_name(folder: str) -> str:
    """A suite's name from its folder's name: runs of characters that a name cannot hold become one `-`.

    Case is kept. A name too long for its tasksets (`<suite>-<8 hex>`, 255 characters) is cut.
    """
    plain = re.sub(r"[^\w\-.]+", "-", unicodedata.normalize("NFC", folder)).strip("-.")
    return plain[:_SUITE_NAME_MAX].rstrip("-.") or "suite"


def normalised_instruction(text: str) -> str:
    """An instruction as tasks store it: leading SPDX comments and surrounding blanks removed.

    Empty where there is nothing to be done: only comments and blanks.
    """
    if not text[_after_comments(text, "") :].strip():
        return ""
    return text[_after_comments(text, "SPDX-") :].strip()


def _after_comments(text: str, holding: str) -> int:
    """Where the text goes on after its leading HTML comments that hold `holding`. One pass: it is a stranger's text."""
    position = 0
    while True:
        match = _BLANKS.match(text, position)
        start = match.end() if match else position
        if not text.startswith("<!--", start):
            return position
        end = text.find("-->", start + len("<!--"))
        if end < 0 or holding not in text[start:end]:
            return position
        position = end + len("-->")


def assemble(
    name: str, folders: Sequence[CheckedFolder], *, warnings: Sequence[str] = (), strict: bool = False
) -> Suite:
    """Give the checked children of a source their stored names and indexes, and find what is wrong between them.

    Children with equal native ids (case does not count) are all invalid. Invalid children whose native id is known take
    part in the naming, so that correcting one renames no other. `strict`: warnings about a task make it invalid.
    """
    faults = {folder.name: list(folder.problems) for folder in folders}
    if strict:
        for folder in folders:
            faults[folder.name] += [FileProblem(file="task.toml", reason=text) for text in folder.warnings]
    known = [(folder, folder.native_task_id) for folder in folders if folder.native_task_id]
    named = dict(zip((f.name for f, _ in known), stored_names(name, [native for _, native in known]), strict=True))
    doubles = dict(_doubles([(folder.name, native) for folder, native in known], "task name"))
    meeting = _doubles([(child, stored) for child, stored in named.items() if child not in doubles], "stored name")
    unfit = ((child, reason) for child, stored in named.items() if (reason := _unfit(stored)))
    for child, reason in [*doubles.items(), *meeting, *unfit]:
        faults[child].append(FileProblem(file="task.toml", reason=reason))
    valid = sorted((f for f in folders if f.native_task_id and not faults[f.name]), key=lambda f: named[f.name])
    return Suite(
        name=name,
        tasks=tuple(
            SourceTask(
                index=index,
                stored_name=named[folder.name],
                native_task_id=folder.native_task_id or "",
                folder=folder.folder,
                status=folder.status,
                instruction=folder.instruction,
                config=folder.config,
                warnings=folder.warnings,
            )
            for index, folder in enumerate(valid)
        ),
        invalid=tuple(
            InvalidTask(name=child, file=fault.file, reason=fault.reason)
            for child, found in sorted(faults.items())
            for fault in found
        ),
        warnings=tuple(warnings),
    )


def _doubles(names: Sequence[tuple[str, str]], what: str) -> Iterator[tuple[str, str]]:
    """(child, reason) of every child whose name, ignoring case, is another's as well."""
    by_name: dict[str, list[tuple[str, str]]] = {}
    for child, name in names:
        by_name.setdefault(name.casefold(), []).append((child, name))
    for group in by_name.values():
        for child, name in group if len(group) > 1 else ():
            others = ", ".join(f"'{other}'" for other, _ in group if other != child)
            yield child, f"the {what} '{name}' is also that of {others} (case does not count); each needs its own"


def _unfit(stored: str) -> str:
    problem = name_problem(stored)
    return f"the name '{stored}', made of the suite's and the task's, {problem}; rename the task" if problem else ""


def select(
    suite: Suite,
    tasks: Sequence[str] | None = None,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    limit: int | None = None,
) -> tuple[SourceTask, ...]:
    """The chosen tasks, by index: first `tasks` (names or indexes), then the globs `include`, `exclude`, then `limit`.

    A glob matches a stored name, a native id or a short name, with case. Names, indexes and globs count over the whole
    source. Raises `Refused` with every problem at once: unknown or ambiguous entries, invalid tasks that were named,
    globs that match nothing, and a choice that leaves nothing.
    """
    problems: list[Problem] = []
    chosen = list(range(len(suite.tasks)))
    if tasks is not None:
        wanted, named_invalid = _without_invalid(suite, tasks)
        problems += named_invalid
        try:
            if wanted or not named_invalid:
                members = [(task.stored_name, task.native_task_id) for task in suite.tasks]
                chosen = select_members(members, wanted)
        except Refused as refused:
            problems += refused.problems
    for flag, globs in (("-i", include), ("-x", exclude)):
        problems += [problem for glob in globs if (problem := _idle_glob(suite, flag, glob))]
    if limit is not None and limit < 1:
        problems.append(Problem("-l", f"{limit} is not a number of tasks; write 1 or more"))
    if problems:
        raise Refused("Cannot select tasks:", problems)
    found = [suite.tasks[index] for index in chosen]
    if include:
        found = [task for task in found if any(_matches(task, glob) for glob in include)]
    found = [task for task in found if not any(_matches(task, glob) for glob in exclude)]
    if not found:
        raise Refused(f"The selection leaves none of the {len(suite.tasks)} tasks of '{suite.name}'; widen it.")
    return tuple(found[:limit])


def _without_invalid(suite: Suite, wanted: Sequence[str]) -> tuple[list[str], list[Problem]]:
    taken = {name for task in suite.tasks for name in (task.stored_name, task.native_task_id)}
    reasons = {task.name: task for task in reversed(suite.invalid)}
    problems = [
        Problem(f"task '{entry}'", f"is invalid: {reasons[entry].file}: {reasons[entry].reason}")
        for entry in (text.strip() for text in wanted)
        if entry in reasons and entry not in taken
    ]
    return [text for text in wanted if text.strip() not in reasons or text.strip() in taken], problems


def _matches(task: SourceTask, glob: str) -> bool:
    names = (task.stored_name, task.native_task_id, short_name(task.native_task_id))
    return any(fnmatchcase(name, glob) for name in names)


def _idle_glob(suite: Suite, flag: str, glob: str) -> Problem | None:
    if any(_matches(task, glob) for task in suite.tasks):
        return None
    names = [name for task in suite.tasks for name in (short_name(task.native_task_id), task.stored_name)]
    hint = nearest(re.sub(r"[*?\[\]!]", "", glob), names)
    advice = f"did you mean {', '.join(hint)}?" if hint else "--list-tasks prints all names"
    return Problem(f"{flag} '{glob}'", f"matches no task; {advice}")
