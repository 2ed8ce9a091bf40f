"""The task side of the catalog (`TaskCatalog`): bodies in, verified records out."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from pydantic import ValidationError
from sqlalchemy import Connection

from harbor_assets.catalog import records
from harbor_assets.catalog.database import Database
from harbor_assets.catalog.records import LATEST, Stored
from harbor_assets.catalog.schema import TASKS, TASKSETS
from harbor_assets.domain.digests import canonical_json
from harbor_assets.domain.errors import Broken, HarborAssetsError, NotFound, Problem, Refused
from harbor_assets.domain.names import Ref
from harbor_assets.domain.tasks import Task, TaskInput, Taskset, TasksetInput, taskset_digest
from harbor_assets.engine.ports import Page


class SqlTasks:
    """Tasks and tasksets in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put_task(self, workspace: str, name: str, body: TaskInput) -> tuple[Task, bool]:
        """See `TaskCatalog`. Also raises `Refused` for names, tags or values that cannot be stored, `Conflict`."""
        records.check_names("task", workspace, name, body.tags)
        text, digest = _storable("task", name, lambda: (body.model_dump(mode="json", exclude={"tags"}), body.digest()))

        def work(connection: Connection) -> tuple[Stored, bool]:
            return records.publish(connection, TASKS, workspace, name, digest=digest, body=text, tags=body.tags)

        stored, cut = self._database.write(work)
        return _task(stored, of_revision=True), cut

    def get_task(self, workspace: str, name: str, revision: str | None = None) -> Task:
        """See `TaskCatalog`."""
        with self._database.read() as connection:
            stored = records.find(connection, TASKS, workspace, name, revision)
        return _task(stored, of_revision=revision is not None)

    def get_tasks(self, workspace: str, names: Sequence[str]) -> Mapping[str, Task]:
        """See `TaskCatalog`."""
        with self._database.read() as connection:
            found = records.find_current(connection, TASKS, workspace, names)
        return {stored.name: _task(stored) for stored in found}

    def get_pinned_tasks(self, refs: Sequence[str]) -> Sequence[Task]:
        """See `TaskCatalog`."""
        pins = {text: _pin(text) for text in dict.fromkeys(refs)}
        with self._database.read() as connection:
            found = {
                (s.workspace, s.name, s.digest): s
                for s in records.find_pinned(connection, TASKS, [pin for pin in pins.values() if pin])
            }
        missing = [text for text, pin in pins.items() if pin not in found]
        if missing:
            raise NotFound(
                f"{len(missing)} of {len(pins)} task references do not resolve:",
                [
                    Problem(text[:400], "no such revision" if pins[text] else "is not pinned by a digest")
                    for text in missing
                ],
            )
        tasks = {text: _task(found[pin], of_revision=True) for text, pin in pins.items() if pin}
        return [tasks[text] for text in refs]

    def list_tasks(self, workspace: str, *, page: int = 1, page_size: int = 100) -> Page[Task]:
        """See `TaskCatalog`. Oldest first."""
        with self._database.read() as connection:
            found, total = records.list_page(connection, TASKS, workspace, page, page_size)
        return _page(found, _task, page, page_size, total)

    def published(
        self, kind: Literal["task", "taskset"], after: datetime | None = None, *, limit: int = 1000
    ) -> Sequence[tuple[datetime, str]]:
        """See `TaskCatalog`."""
        with self._database.read() as connection:
            return records.published(connection, TASKS if kind == "task" else TASKSETS, after, limit)

    def put_taskset(self, workspace: str, name: str, body: TasksetInput) -> tuple[Taskset, bool]:
        """See `TaskCatalog`. Also raises `Refused` for names, tags or values that cannot be stored, `Conflict`."""
        records.check_names("taskset", workspace, name, body.tags)

        def work(connection: Connection) -> tuple[Stored, bool]:
            pinned = _pin_members(connection, workspace, body.tasks)
            content = body.model_dump(mode="json", exclude={"tags"}) | {"tasks": pinned}
            text, digest = _storable("taskset", name, lambda: (content, _digest_of_taskset(pinned, body)))
            return records.publish(connection, TASKSETS, workspace, name, digest=digest, body=text, tags=body.tags)

        stored, cut = self._database.write(work)
        return _taskset(stored, of_revision=True), cut

    def get_taskset(self, workspace: str, name: str, revision: str | None = None) -> Taskset:
        """See `TaskCatalog`."""
        with self._database.read() as connection:
            stored = records.find(connection, TASKSETS, workspace, name, revision)
        return _taskset(stored, of_revision=revision is not None)

    def list_tasksets(self, workspace: str, *, page: int = 1, page_size: int = 100) -> Page[Taskset]:
        """See `TaskCatalog`. Oldest first."""
        with self._database.read() as connection:
            found, total = records.list_page(connection, TASKSETS, workspace, page, page_size)
        return _page(found, _taskset, page, page_size, total)


def _storable(noun: str, name: str, make: Callable[[], tuple[Any, str]]) -> tuple[str, str]:
    """(text to store, digest). Raises `Refused` for what JSON cannot say: NaN, infinities."""
    try:
        content, digest = make()
        return canonical_json(content).decode(), digest
    except ValueError as error:
        raise Refused(f"The {noun} {name!r} holds a value that JSON cannot hold: {error}") from error


def _digest_of_taskset(pinned: Sequence[str], body: TasksetInput) -> str:
    return taskset_digest(pinned, description=body.description, files_ref=body.files_ref, metadata=body.metadata)


def _pin(text: str) -> tuple[str, str, str] | None:
    """(workspace, name, digest) of a pinned reference, None if it is not one."""
    try:
        ref = Ref.parse(text, workspace="")
    except Refused:
        return None
    return (ref.workspace, ref.name, ref.digest) if ref.workspace and ref.digest else None


def _pin_members(connection: Connection, workspace: str, members: Sequence[str]) -> list[str]:
    """The members as pinned references, sorted. Raises `Refused` naming all that are unknown or there twice."""
    problems: list[Problem] = []
    refs: list[tuple[str, Ref]] = []
    for text in members:
        try:
            refs.append((text, Ref.parse(text, workspace=workspace)))
        except Refused as refused:
            problems.append(Problem(text[:80], refused.message[:400]))
    resolved = _resolve(connection, [ref for _, ref in refs])
    pinned: dict[str, str] = {}
    for text, ref in refs:
        if (digest := resolved.get(ref)) is None:
            problems.append(Problem(text, f"no such task in workspace '{ref.workspace}'; publish it first"))
        elif ref.bare in pinned:
            problems.append(Problem(text, f"resolves to '{ref.bare}', which is already in this taskset"))
        else:
            pinned[ref.bare] = f"{ref.bare}#{digest}"
    if problems:
        raise Refused("The taskset has members that cannot be taken:", problems)
    return sorted(pinned.values())


def _resolve(connection: Connection, refs: Sequence[Ref]) -> dict[Ref, str]:
    """The digest each reference means now; those that resolve to nothing are left out."""
    by_workspace: dict[str, set[str]] = {}
    for ref in refs:
        by_workspace.setdefault(ref.workspace, set()).add(ref.name)
    current = {
        (stored.workspace, stored.name): stored
        for workspace, names in by_workspace.items()
        for stored in records.find_current(connection, TASKS, workspace, sorted(names))
    }
    pins = [(ref.workspace, ref.name, ref.digest) for ref in refs if ref.digest]
    there = {(s.workspace, s.name, s.digest) for s in records.find_pinned(connection, TASKS, pins)}
    resolved: dict[Ref, str] = {}
    for ref in refs:
        record = current.get((ref.workspace, ref.name))
        if record is None:
            continue
        if ref.fragment is None or ref.fragment == LATEST:
            resolved[ref] = record.digest
        elif ref.digest:
            if (ref.workspace, ref.name, ref.digest) in there:
                resolved[ref] = ref.digest
        elif ref.fragment in record.tags:
            resolved[ref] = records.find(connection, TASKS, ref.workspace, ref.name, ref.fragment).digest
    return resolved


def _task(stored: Stored, *, of_revision: bool = False) -> Task:
    """The record, its digest verified. Raises `Broken`."""
    body = _read(TaskInput, stored)
    return Task(**_common(stored, of_revision=of_revision), metadata=body.metadata, spec=body.spec)


def _taskset(stored: Stored, *, of_revision: bool = False) -> Taskset:
    """The record, its digest verified. Raises `Broken`."""
    body = _read(TasksetInput, stored)
    return Taskset(
        **_common(stored, of_revision=of_revision),
        metadata=body.metadata,
        tasks=body.tasks,
        description=body.description,
        files_ref=body.files_ref,
    )


def _read[B: (TaskInput, TasksetInput)](kind: type[B], stored: Stored) -> B:
    try:
        body = kind.model_validate(json.loads(stored.body))
        digest = body.digest() if isinstance(body, TaskInput) else _digest_of_taskset(body.tasks, body)
    except (ValidationError, ValueError) as error:
        raise Broken(f"{stored} cannot be read: {str(error).splitlines()[0]}") from error
    if digest != stored.digest:
        raise Broken(f"{stored} is not what its digest says: stored {stored.digest}, its content has {digest}")
    return body


def _common(stored: Stored, *, of_revision: bool) -> dict[str, Any]:
    return {
        "id": stored.id,
        "name": stored.name,
        "workspace": stored.workspace,
        "revision": stored.ordinal,
        "tags": stored.tags_here if of_revision else stored.tags,
        "created_at": stored.revision_created_at if of_revision else stored.created_at,
        "updated_at": stored.updated_at,
        "digest": stored.digest,
    }


def _page[R](found: Sequence[Stored], convert: Callable[[Stored], R], page: int, page_size: int, total: int) -> Page[R]:
    items: list[R] = []
    unreadable: list[str] = []
    for stored in found:
        try:
            items.append(convert(stored))
        except HarborAssetsError:
            unreadable.append(f"{stored.workspace}/{stored.name}")
    return Page(items, page, page_size, total, tuple(unreadable))
