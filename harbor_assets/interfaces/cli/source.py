"""Which tasks a command is about: read from a suite's folder or from a stored taskset, checked, chosen, listed."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from harbor_assets.domain.errors import Refused
from harbor_assets.domain.plans import SkippedTask
from harbor_assets.domain.suites import ListedTask, SourceTask, Suite, select
from harbor_assets.domain.tasks import Task, Taskset
from harbor_assets.interfaces.cli.output import Output, note, one_line
from harbor_assets.interfaces.cli.session import Session
from harbor_assets.sources.directory import read_suite

if TYPE_CHECKING:
    from harbor_assets.sources.cache import StatusCache

STALE_SHOWN = 10
WARNINGS_SHOWN = 20  # more would bury the lines that matter; the rest is counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The source flags and the filters as they were given."""

    harbor_dir: str | None = None
    taskset: str | None = None
    tasks: str | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    limit: int | None = None
    skip_invalid: bool = False
    strict: bool = False
    rehash: bool = False

    @property
    def narrows(self) -> bool:
        """Whether it may leave tasks out."""
        return self.tasks is not None or bool(self.include or self.exclude) or self.limit is not None

    def flags(self) -> list[str]:
        """The flags that were given, as they are written."""
        given = (f.name for f in fields(self) if getattr(self, f.name) not in (None, (), False))
        return [f"--{name.replace('_', '-')}" for name in given]


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the flags came to. `suite` is the whole source; `taskset` is set if it was a stored one."""

    suite: Suite
    tasks: tuple[SourceTask, ...]
    skipped: tuple[SkippedTask, ...] = ()
    taskset: Taskset | None = None

    @property
    def all_taken(self) -> bool:
        return len(self.tasks) == len(self.suite.tasks)


def check_flags(choice: Choice) -> None:
    """Raise `Refused` unless there is exactly one source, and only flags that mean something with it."""
    for flag, value in (("--harbor-dir", choice.harbor_dir), ("--taskset", choice.taskset)):
        if value is not None and not value.strip():
            raise Refused(f"{flag} is empty; is the variable set that was meant to hold it?")
    if choice.harbor_dir is not None and choice.taskset is not None:
        raise Refused("--harbor-dir and --taskset are two sources; give one of them")
    if choice.harbor_dir is None and choice.taskset is None:
        raise Refused(
            "No tasks were named. Write --harbor-dir DIR for a suite on this machine, or --taskset REF for a stored one"
        )
    suite_only = {"--skip-invalid": choice.skip_invalid, "--strict": choice.strict, "--rehash": choice.rehash}
    if choice.taskset is not None and (given := [flag for flag, is_set in suite_only.items() if is_set]):
        raise Refused(f"{', '.join(given)}: only for --harbor-dir; the tasks of a stored taskset were checked already")


def read(session: Session, choice: Choice) -> Chosen:
    """The whole source, nothing chosen and nothing refused yet: what `--list-tasks` shows."""
    check_flags(choice)
    if choice.taskset is not None:
        taskset = session.evaluator.tasksets.retrieve(choice.taskset)
        suite = _as_suite(taskset, session.evaluator.tasks.pinned(taskset.tasks))
        return Chosen(suite, suite.tasks, taskset=taskset)
    assert choice.harbor_dir is not None
    with session.known_files(rehash=choice.rehash) as known:
        suite = read_suite(Path(choice.harbor_dir), cache=known, strict=choice.strict)
    return Chosen(suite, suite.tasks)


def choose(session: Session, choice: Choice, *, stale: bool = True) -> Chosen:
    """Read, check and filter the source, and tell of what is skipped and of warnings (`stale`: of old images, too).

    Raises `Refused` for broken tasks without `--skip-invalid`, and for every name, index or glob that fits nothing.
    """
    found = read(session, choice)
    skipped = found.suite.skip_invalid(choice.skip_invalid)
    tell_warnings(found.suite)
    if stale and choice.harbor_dir is not None:
        with session.known_files(rehash=choice.rehash) as known:
            tell_stale(found.suite.tasks, known)
    for task in skipped:
        note(f"Skipped {one_line(task.name)}: {task.file}: {one_line(task.reason)}")
    return Chosen(found.suite, _filtered(found.suite, choice), skipped, found.taskset)


def tell_stale(tasks: Sequence[SourceTask], known: "StatusCache") -> None:
    """Warn of images in task.toml files that were built from other content than the task has now: they run all the
    same, as Harbor has it."""
    from harbor_assets.interfaces.cli.updating import stale_images

    if stale := list(stale_images(tasks, known)):
        more = f", … ({len(stale)} tasks)" if len(stale) > STALE_SHOWN else ""
        note(
            f"Warning: {', '.join(map(one_line, stale[:STALE_SHOWN]))}{more}: changed since the docker_image in "
            "task.toml was built, and that image is what runs; build anew with: tasksets build-images --harbor-dir "
            "DIR --update-config"
        )


def _filtered(suite: Suite, choice: Choice) -> tuple[SourceTask, ...]:
    wanted = None if choice.tasks is None else [entry.strip() for entry in choice.tasks.split(",")]
    return select(suite, wanted, include=choice.include, exclude=choice.exclude, limit=choice.limit)


def tell_warnings(suite: Suite) -> None:
    """The suite's warnings and those of its tasks, the first of them one by one."""
    warnings = [*suite.warnings, *(f"{task.stored_name}: {text}" for task in suite.tasks for text in task.warnings)]
    for text in warnings[:WARNINGS_SHOWN]:
        note(f"Warning: {one_line(text)}")
    if len(warnings) > WARNINGS_SHOWN:
        note(f"Warning: … and {len(warnings) - WARNINGS_SHOWN} more; --list-tasks --json holds them all")


def list_tasks(session: Session, choice: Choice, out: Output) -> bool:
    """Print the tasks that can be chosen; False if there is none. Nothing is stored. Broken ones are named beside."""
    found = read(session, choice)
    tell_warnings(found.suite)
    for fault in found.suite.invalid:
        note(f"Invalid {one_line(fault.name)}: {fault.file}: {one_line(fault.reason)}")
    listing = _chosen_listing(found.suite, choice)
    if out.json:
        from harbor_assets.interfaces.cli.report import envelope

        rows: list[object] = [task.model_dump(mode="json") for task in listing]
        invalid = [fault.model_dump(mode="json") for fault in found.suite.invalid]
        out.document({**envelope(rows), "invalid": invalid, "warnings": list(found.suite.warnings)})
    else:
        out.table(("INDEX", "NAME", "NATIVE ID"), [(str(t.index), t.name, t.native_task_id) for t in listing])
    return bool(listing)


def _chosen_listing(suite: Suite, choice: Choice) -> Sequence[ListedTask]:
    if not choice.narrows:
        return suite.listing()
    kept = {task.index for task in _filtered(suite, choice)}
    return [task for task in suite.listing() if task.index in kept]


def _as_suite(taskset: Taskset, tasks: Sequence[Task]) -> Suite:
    """A stored taskset in the shape of a source, so that the same rules choose from both. Index = place by name."""
    by_name = sorted(tasks, key=lambda task: task.name)
    return Suite(
        name=taskset.name,
        tasks=tuple(
            SourceTask(
                index=index,
                stored_name=task.name,
                native_task_id=task.harbor.native_task_id,
                folder="",
                status="",
                instruction=task.harbor.instruction or "",
                config=task.harbor.config,
            )
            for index, task in enumerate(by_name)
        ),
    )
