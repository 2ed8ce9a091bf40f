"""Tasks of the catalog."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import JsonValue

from harbor_assets.domain.tasks import Task, TaskInput
from harbor_assets.interfaces.sdk.blocking import Blocking, blocking, blocking_page
from harbor_assets.interfaces.sdk.http import query
from harbor_assets.interfaces.sdk.pages import AsyncPage
from harbor_assets.interfaces.sdk.records import AsyncRecords
from harbor_assets.interfaces.sdk.resource import Order, Where, conditions

LOOKUP_SIZE = 500  # names in one look-up: one query of the catalog each


def read_task(record: dict[str, Any]) -> Task:
    """A task from its JSON. The digest is no member of it: it follows from the content, as everywhere."""
    body = TaskInput(spec=record["spec"], metadata=record["metadata"])
    return Task.model_validate({**record, "spec": body.spec, "metadata": body.metadata, "digest": body.digest()})


class AsyncTasks(AsyncRecords[Task]):
    """Tasks: definitions of units of evaluation, with immutable revisions."""

    collection = "tasks"
    _parse = staticmethod(read_task)

    async def create(
        self, name: str, *, task: TaskInput, project: str | None = None, workspace: str | None = None
    ) -> Task:
        """Store a new task. Raises `Conflict` if the name is taken, `Refused` for what the catalog does not take."""
        return (await self._write("POST", name, task, project, workspace))[0]

    async def replace(
        self, name: str, *, task: TaskInput, project: str | None = None, workspace: str | None = None
    ) -> Task:
        """Publish new content, as a new task if there is none. Content equal to `latest` cuts no revision; the body's
        tags are applied all the same."""
        return (await self._write("PUT", name, task, project, workspace))[0]

    async def put(
        self, name: str, *, task: TaskInput, project: str | None = None, workspace: str | None = None
    ) -> tuple[Task, bool]:
        """As `replace`, and whether a revision was cut."""
        return await self._write("PUT", name, task, project, workspace)

    async def list(
        self,
        *,
        page: int = 1,
        page_size: int = 100,
        sort: Order = "created_at",
        kind: Literal["evaluator", "harbor"] | None = None,
        native_task_id: str | None = None,
        intent_contains: str | None = None,
        metric: str | None = None,
        tag: str | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
        filter: Where = None,
        workspace: str | None = None,
    ) -> AsyncPage[Task]:
        """A page of the tasks as they are now; iterate over it for all that follow. Every argument must hold.

        `metric`: tasks that use it; a bare name is one of the request's workspace. `metadata`: each key has the value.
        `intent_contains`: in any case. `filter`: the API's own, as text or as an object. Raises `Malformed` for a
        filter that cannot be read.
        """
        asked = conditions(
            filter,
            kind=kind,
            native_task_id=native_task_id,
            intent=None if intent_contains is None else {"$like": intent_contains},
            metrics=metric,
            tags=tag,
            metadata=dict(metadata or {}),
        )
        parameters = [*query(page_size=page_size, sort=sort, nulls=True).items(), *asked]
        return await self._list(read_task, self._at(workspace, self.collection), parameters, page)

    async def named(self, names: Sequence[str], *, workspace: str | None = None) -> Mapping[str, Task]:
        """The tasks of these names as they are now, by name; those that do not exist are left out."""
        return {task.name: task for task in await self._look_up(workspace, "names", names)}

    async def pinned(self, refs: Sequence[str]) -> Sequence[Task]:
        """The tasks of pinned references, in their order. Raises `NotFound` naming those that do not resolve."""
        return await self._look_up(None, "refs", refs)

    async def _look_up(self, workspace: str | None, by: str, wanted: Sequence[str]) -> Sequence[Task]:
        found: list[Task] = []
        for start in range(0, len(wanted), LOOKUP_SIZE):
            body = {by: [*wanted[start : start + LOOKUP_SIZE]]}
            answer = await self._http.call("POST", self._at(workspace, "tasks:lookup"), json=body)
            found += map(read_task, json.loads(answer.content)["data"])
        return found


class Tasks(Blocking):
    """Tasks: definitions of units of evaluation, with immutable revisions."""

    create = blocking(AsyncTasks.create)
    retrieve = blocking(AsyncTasks.retrieve)
    replace = blocking(AsyncTasks.replace)
    put = blocking(AsyncTasks.put)
    list = blocking_page(AsyncTasks.list)
    list_revisions = blocking_page(AsyncTasks.list_revisions)
    tag = blocking(AsyncTasks.tag)
    delete = blocking(AsyncTasks.delete)
    named = blocking(AsyncTasks.named)
    pinned = blocking(AsyncTasks.pinned)
