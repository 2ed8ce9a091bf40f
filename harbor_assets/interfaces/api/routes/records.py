"""Tasks and tasksets: read, list, create or replace. Statuses and shapes are the contract's; `tasks:lookup` is ours."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import Field

from harbor_assets.domain.errors import Problem, Refused
from harbor_assets.domain.tasks import Body, Record, Task, TaskInput, Taskset, TasksetInput
from harbor_assets.engine.ports import Page, TaskCatalog, TaskVerifier
from harbor_assets.engine.registration import register_task
from harbor_assets.interfaces.api.answers import (
    Listed,
    Name,
    PageNumber,
    PageSize,
    dumped,
    listed,
    model,
    without_nulls,
)
from harbor_assets.interfaces.api.strict import StrictRoute

LOOKUP_MAX = 10_000  # names or references in one look-up; a client with more asks again


class Lookup(Body):
    """Which tasks to look up: current records by name, or exact revisions by pinned reference."""

    names: Annotated[list[str], Field(max_length=LOOKUP_MAX)] = []
    refs: Annotated[list[str], Field(max_length=LOOKUP_MAX)] = []


class Found(Body):
    """The tasks looked up, nulls kept: those of `names` that exist, then those of `refs` in their order."""

    data: list[Task]


def tasks_router(catalog: TaskCatalog, verifier: TaskVerifier) -> APIRouter:
    """`/tasks`, and `/tasks:lookup`."""
    router = APIRouter(tags=["tasks"], route_class=StrictRoute)

    @router.put("/tasks/{name}", response_model=Task, responses=_CUT)
    def put_task(workspace: Name, name: Name, body: TaskInput, project: str | None = None) -> Response:
        """Create or replace a task, read from its archive: 201 if a revision was cut, 200 if its content is that of
        `latest`; 400 for an archive that does not fit."""
        _no_project(project)
        task, cut = register_task(workspace, name, body, tasks=catalog, verifier=verifier)
        return model(task, 201 if cut else 200)

    @router.post("/tasks:lookup", response_model=Found)
    def lookup(workspace: Name, body: Lookup) -> Response:
        """Many tasks in one call, so that publishing a suite again takes seconds. Not part of the contract."""
        named = catalog.get_tasks(workspace, body.names) if body.names else {}
        pinned = catalog.get_pinned_tasks(body.refs) if body.refs else ()
        return model(Found(data=[*named.values(), *pinned]))

    _reading(router, "/tasks", Task, catalog.get_task, catalog.list_tasks)
    return router


def tasksets_router(catalog: TaskCatalog) -> APIRouter:
    """`/tasksets`."""
    router = APIRouter(tags=["tasksets"], route_class=StrictRoute)

    @router.put("/tasksets/{name}", response_model=Taskset, responses=_CUT)
    def put_taskset(workspace: Name, name: Name, body: TasksetInput, project: str | None = None) -> Response:
        """Create or replace a taskset: its members are resolved and pinned. 201 if a revision was cut, else 200."""
        _no_project(project)
        taskset, cut = catalog.put_taskset(workspace, name, body)
        return model(taskset, 201 if cut else 200)

    _reading(router, "/tasksets", Taskset, catalog.get_taskset, catalog.list_tasksets)
    return router


def _reading[T: Record](
    router: APIRouter,
    path: str,
    kind: type[T],
    get: Callable[..., T],
    list_page: Callable[..., Page[T]],
) -> None:
    """The three reads that tasks and tasksets share."""

    @router.get(path, response_model=Listed[kind])
    def list_records(
        request: Request,
        workspace: Name,
        page: PageNumber = 1,
        page_size: PageSize = 100,
        sort: Literal["created_at"] = "created_at",
    ) -> Response:
        """One page, oldest first; null members are left out, as everywhere in record lists."""
        if any(
            name.startswith("filter") for name in request.query_params
        ):  # ignored, it would look as if it had matched
            raise Refused("Lists cannot be filtered yet; leave `filter` out and choose from the whole list")
        found = list_page(workspace, page=page, page_size=page_size)
        return listed(found, [without_nulls(row) for row in dumped(found.items)], sort=sort)

    @router.get(path + "/{name}", response_model=kind)
    def get_record(workspace: str, name: str) -> Response:
        """The current record."""
        return model(get(workspace, name))

    @router.get(path + "/{name}/revisions/{revision}", response_model=kind)
    def get_revision(workspace: Name, name: Name, revision: Name) -> Response:
        """The record as of a revision, by digest or tag."""
        return model(get(workspace, name, revision))


def _no_project(project: str | None) -> None:
    if project is not None:
        raise Refused("The record was not stored:", [Problem("project", f"'{project}' does not exist; leave it out")])


_CUT: dict[int | str, dict[str, Any]] = {201: {"description": "A revision was cut"}}
