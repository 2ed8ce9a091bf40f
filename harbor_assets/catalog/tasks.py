"""The task side of the catalog (`TaskCatalog`): bodies in, verified records out."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Literal

from pydantic import ValidationError
from sqlalchemy import Connection

from harbor_assets.catalog import records
from harbor_assets.catalog.database import Database
from harbor_assets.catalog.members import pin_members, pin_of
from harbor_assets.catalog.projects import check_project
from harbor_assets.catalog.records import LATEST, Stored
from harbor_assets.catalog.schema import TASKS, TASKSETS, RecordTables
from harbor_assets.catalog.search import condition as search_condition
from harbor_assets.catalog.search import led, write_facts
from harbor_assets.domain.access import anywhere
from harbor_assets.domain.digests import canonical_json, digest_of
from harbor_assets.domain.errors import Broken, HarborAssetsError, NotFound, Problem, Refused
from harbor_assets.domain.facts import passing_facts, task_facts, taskset_facts
from harbor_assets.domain.filters import Fact, Filter, apart, holds
from harbor_assets.domain.names import tag_problem
from harbor_assets.domain.tasks import Record, Revision, Sort, Task, TaskInput, Taskset, TasksetInput, taskset_digest
from harbor_assets.engine.ports import Page


class SqlTasks:
    """Tasks and tasksets in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put_task(
        self, workspace: str, name: str, body: TaskInput, *, project: str | None = None, create: bool = False
    ) -> tuple[Task, bool]:
        """See `TaskCatalog`. Also raises `Refused` for values that cannot be stored."""
        records.check_names("task", workspace, name, body.tags)
        body = body.qualified(workspace)
        text, digest = _storable("task", name, lambda: (body.model_dump(mode="json", exclude={"tags"}), body.digest()))

        def work(connection: Connection) -> tuple[Task, bool]:
            check_project(connection, workspace, project)
            stored, cut = records.publish(
                connection,
                TASKS,
                workspace,
                name,
                digest=digest,
                body=text,
                tags=body.tags,
                project=project,
                create=create,
            )
            task = _task(stored, of_revision=True)
            if cut or project is not None:
                write_facts(connection, TASKS, task.id, task_facts(task))
            return task, cut

        return self._database.write(work)

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
        pins = {text: pin_of(text) for text in dict.fromkeys(refs)}
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

    def list_tasks(
        self,
        workspace: str,
        *,
        page: int = 1,
        page_size: int = 100,
        sort: Sort = Sort.CREATED,
        where: Filter | None = None,
    ) -> Page[Task]:
        """See `TaskCatalog`."""
        return self._list(TASKS, _task, task_facts, workspace, page, page_size, sort, where)

    def task_revisions(self, workspace: str, name: str, *, page: int = 1, page_size: int = 100) -> Page[Revision]:
        """See `TaskCatalog`."""
        with self._database.read() as connection:
            return records.revisions_page(connection, TASKS, workspace, name, page, page_size)

    def tag_task(self, workspace: str, name: str, tag: str, revision: str) -> Task:
        """See `TaskCatalog`."""
        return _task(self._tag(TASKS, workspace, name, tag, revision))

    def delete_task(self, workspace: str, name: str) -> None:
        """See `TaskCatalog`."""
        self._database.write(lambda connection: records.remove(connection, TASKS, workspace, name))

    def published(
        self, kind: Literal["task", "taskset"], after: datetime | None = None, *, limit: int = 1000
    ) -> Sequence[tuple[datetime, str]]:
        """See `TaskCatalog`."""
        with self._database.read() as connection:
            return records.published(connection, TASKS if kind == "task" else TASKSETS, after, limit)

    def put_taskset(
        self,
        workspace: str,
        name: str,
        body: TasksetInput,
        *,
        project: str | None = None,
        create: bool = False,
        readable: Callable[[str], bool] = anywhere,
    ) -> tuple[Taskset, bool]:
        """See `TaskCatalog`. Also raises `Refused` for values that cannot be stored."""
        records.check_names("taskset", workspace, name, body.tags)

        def work(connection: Connection) -> tuple[Taskset, bool]:
            check_project(connection, workspace, project)
            pinned = pin_members(connection, workspace, body, readable)
            content = body.model_dump(mode="json", exclude={"tags", "task_ids"}) | {"tasks": pinned}
            text, digest = _storable("taskset", name, lambda: (content, _digest_of_taskset(pinned, body)))
            stored, cut = records.publish(
                connection,
                TASKSETS,
                workspace,
                name,
                digest=digest,
                body=text,
                tags=body.tags,
                project=project,
                create=create,
            )
            taskset = _taskset(stored, of_revision=True)
            if cut or project is not None:
                write_facts(connection, TASKSETS, taskset.id, taskset_facts(taskset))
            return taskset, cut

        return self._database.write(work)

    def get_taskset(self, workspace: str, name: str, revision: str | None = None) -> Taskset:
        """See `TaskCatalog`."""
        with self._database.read() as connection:
            stored = records.find(connection, TASKSETS, workspace, name, revision)
        return _taskset(stored, of_revision=revision is not None)

    def list_tasksets(
        self,
        workspace: str,
        *,
        page: int = 1,
        page_size: int = 100,
        sort: Sort = Sort.CREATED,
        where: Filter | None = None,
    ) -> Page[Taskset]:
        """See `TaskCatalog`."""
        return self._list(TASKSETS, _taskset, taskset_facts, workspace, page, page_size, sort, where)

    def taskset_revisions(self, workspace: str, name: str, *, page: int = 1, page_size: int = 100) -> Page[Revision]:
        """See `TaskCatalog`."""
        with self._database.read() as connection:
            return records.revisions_page(connection, TASKSETS, workspace, name, page, page_size)

    def tag_taskset(self, workspace: str, name: str, tag: str, revision: str) -> Taskset:
        """See `TaskCatalog`."""
        return _taskset(self._tag(TASKSETS, workspace, name, tag, revision))

    def delete_taskset(self, workspace: str, name: str) -> None:
        """See `TaskCatalog`."""
        self._database.write(lambda connection: records.remove(connection, TASKSETS, workspace, name))

    def _tag(self, tables: RecordTables, workspace: str, name: str, tag: str, revision: str) -> Stored:
        problem = "always means the newest revision" if tag == LATEST else tag_problem(tag)
        if problem:
            raise Refused("The revision was not tagged:", [Problem(f"tag {tag[:80]!r}", problem)])
        return self._database.write(lambda connection: records.tag(connection, tables, workspace, name, tag, revision))

    def _list[R: Record](
        self,
        tables: RecordTables,
        convert: Callable[[Stored], R],
        facts: Callable[[R], list[Fact]],
        workspace: str,
        page: int,
        page_size: int,
        sort: Sort,
        where: Filter | None,
    ) -> Page[R]:
        records.check_page(page, page_size)
        asked, rest = (None, None) if where is None else apart(where)
        with self._database.read() as connection:
            condition = None if asked is None else search_condition(asked, tables, connection.dialect.name)
            if rest is None:
                begin = asked is not None and led(asked)
                found, total = records.list_page(connection, tables, workspace, page, page_size, sort, condition, begin)
                return _page(found, convert, page, page_size, total)
            matching: list[R] = []
            unreadable: list[str] = []
            first, total = (page - 1) * page_size, 0
            for stored in records.everything(connection, tables, workspace, sort, condition):
                try:
                    record = convert(stored)
                except HarborAssetsError:
                    unreadable.append(f"{stored.workspace}/{stored.name}")
                    continue
                if holds(rest, [*facts(record), *passing_facts(record)], json.loads(stored.body)):
                    if first <= total < first + page_size:
                        matching.append(record)
                    total += 1
        return Page(matching, page, page_size, total, tuple(unreadable))


def write_all_facts(connection: Connection) -> None:
    """Write the facts of every current record anew. What cannot be read has none; lists without a filter name it."""
    for stored in records.everything(connection, TASKS):
        with suppress(HarborAssetsError):
            write_facts(connection, TASKS, stored.id, task_facts(_task(stored)))
    for stored in records.everything(connection, TASKSETS):
        with suppress(HarborAssetsError):
            write_facts(connection, TASKSETS, stored.id, taskset_facts(_taskset(stored)))


def _storable(noun: str, name: str, make: Callable[[], tuple[Any, str]]) -> tuple[str, str]:
    """(text to store, digest). Raises `Refused` for what JSON cannot say: NaN, infinities."""
    try:
        content, digest = make()
        return canonical_json(content).decode(), digest
    except ValueError as error:
        raise Refused(f"The {noun} {name!r} holds a value that JSON cannot hold: {error}") from error


def _digest_of_taskset(pinned: Sequence[str], body: TasksetInput) -> str:
    return taskset_digest(pinned, description=body.description, files_ref=body.files_ref, metadata=body.metadata)


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
        tasks=body.tasks or [],
        description=body.description,
        files_ref=body.files_ref,
    )


def _read[B: (TaskInput, TasksetInput)](kind: type[B], stored: Stored) -> B:
    try:
        content = json.loads(stored.body)
        body = kind.model_validate(content)
        digest = _digest_of_stored(stored.body, content)
    except (ValidationError, ValueError) as error:
        raise Broken(f"{stored} cannot be read: {str(error).splitlines()[0]}") from error
    if digest != stored.digest:
        raise Broken(f"{stored} is not what its digest says: stored {stored.digest}, its content has {digest}")
    return body


def _digest_of_stored(text: str, content: dict[str, Any]) -> str:
    """The digest of a stored body. The text is what was digested, but for the `config` of a Harbor task; making it from
    the model again would take as long as all the rest of a list."""
    spec = content.get("spec")
    if isinstance(spec, dict) and "config" in spec:
        return digest_of({**content, "spec": {name: value for name, value in spec.items() if name != "config"}})
    return hashlib.sha256(text.encode()).hexdigest()


def _common(stored: Stored, *, of_revision: bool) -> dict[str, Any]:
    return {
        "id": stored.id,
        "name": stored.name,
        "workspace": stored.workspace,
        "project": stored.project,
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
