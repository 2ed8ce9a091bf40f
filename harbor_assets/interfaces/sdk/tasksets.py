"""Tasksets of the catalog."""

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from harbor_assets.domain.tasks import Annotation, Taskset, TasksetInput, taskset_digest
from harbor_assets.interfaces.sdk.blocking import Blocking, blocking, blocking_page
from harbor_assets.interfaces.sdk.http import query
from harbor_assets.interfaces.sdk.pages import AsyncPage
from harbor_assets.interfaces.sdk.records import AsyncRecords
from harbor_assets.interfaces.sdk.resource import Order, Where, conditions


def read_taskset(record: dict[str, Any]) -> Taskset:
    """A taskset from its JSON; its digest follows from the content."""
    digest = taskset_digest(
        record["tasks"],
        description=record["description"],
        files_ref=record["files_ref"],
        metadata=[Annotation.model_validate(item) for item in record["metadata"]],
    )
    return Taskset.model_validate({**record, "digest": digest})


class AsyncTasksets(AsyncRecords[Taskset]):
    """Tasksets: named groups of tasks, each member pinned to a revision."""

    collection = "tasksets"
    _parse = staticmethod(read_taskset)

    async def create(
        self, name: str, *, taskset: TasksetInput, project: str | None = None, workspace: str | None = None
    ) -> Taskset:
        """Store a new taskset; its members are pinned to the revisions they name now. Raises `Conflict` if the name is
        taken, `Refused` naming every member that does not exist or stands twice."""
        return (await self._write("POST", name, taskset, project, workspace))[0]

    async def replace(
        self, name: str, *, taskset: TasksetInput, project: str | None = None, workspace: str | None = None
    ) -> Taskset:
        """Publish new members, pinned anew, as a new taskset if there is none. Content equal to `latest` cuts no
        revision."""
        return (await self._write("PUT", name, taskset, project, workspace))[0]

    async def put(
        self, name: str, *, taskset: TasksetInput, project: str | None = None, workspace: str | None = None
    ) -> tuple[Taskset, bool]:
        """As `replace`, and whether a revision was cut."""
        return await self._write("PUT", name, taskset, project, workspace)

    async def list(
        self,
        *,
        page: int = 1,
        page_size: int = 100,
        sort: Order = "created_at",
        task: str | None = None,
        description_contains: str | None = None,
        tag: str | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
        filter: Where = None,
        workspace: str | None = None,
    ) -> AsyncPage[Taskset]:
        """A page of the tasksets as they are now; iterate over it for all that follow. Every argument must hold.

        `task`: those that hold it, at any revision, or at the one of a `#digest`; a bare name is one of the request's
        workspace. `metadata`: each key has the value. `description_contains`: in any case. Raises `Malformed` for a
        filter that cannot be read, as a task with a `#tag`.
        """
        asked = conditions(
            filter,
            tasks=task,
            description=None if description_contains is None else {"$like": description_contains},
            tags=tag,
            metadata=dict(metadata or {}),
        )
        parameters = [*query(page_size=page_size, sort=sort, nulls=True).items(), *asked]
        return await self._list(read_taskset, self._at(workspace, self.collection), parameters, page)


class Tasksets(Blocking):
    """Tasksets: named groups of tasks, each member pinned to a revision."""

    create = blocking(AsyncTasksets.create)
    retrieve = blocking(AsyncTasksets.retrieve)
    replace = blocking(AsyncTasksets.replace)
    put = blocking(AsyncTasksets.put)
    list = blocking_page(AsyncTasksets.list)
    list_revisions = blocking_page(AsyncTasksets.list_revisions)
    tag = blocking(AsyncTasksets.tag)
    delete = blocking(AsyncTasksets.delete)
