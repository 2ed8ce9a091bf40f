"""Tasks and tasksets: create, replace, read, list, tag, delete. Statuses and shapes are the contract's (B.1 to B.6).

A write answers with the revision, a read with the record; `tasks:lookup` is ours.
"""

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi import Body as BodyParameter
from pydantic import Field

from harbor_assets.domain.access import Role
from harbor_assets.domain.filter_syntax import parse_filter
from harbor_assets.domain.filters import TASK_FIELDS, TASKSET_FIELDS, Fields
from harbor_assets.domain.names import NAME_MAX
from harbor_assets.domain.tasks import Body, Record, Revision, Sort, Task, TaskInput, Taskset, TasksetInput
from harbor_assets.engine.ports import MetricResolver, Page, TaskCatalog, TaskVerifier
from harbor_assets.engine.registration import register_task
from harbor_assets.interfaces.api import examples, references
from harbor_assets.interfaces.api.answers import (
    NAME_PATTERN,
    Listed,
    Name,
    PageNumber,
    PageSize,
    dumped,
    listed,
    model,
    without_nulls,
)
from harbor_assets.interfaces.api.failures import failures
from harbor_assets.interfaces.api.guard import caller, need_reader
from harbor_assets.interfaces.api.strict import StrictRoute

LOOKUP_MAX = 10_000  # names or references in one look-up; a client with more asks again

_FILTER = """JSON if it begins with `{`, as `{"metadata.suite": "geography", "intent": {"$like": "capital"}}`, else
text, as `metadata["suite"]:"geography" AND intent~"capital"`. Without this parameter, `filter[field]=value` and
`filter[field][$op]=value` parameters are read and all must hold."""

Project = Annotated[str | None, Query(description="A project of the workspace to put the record under.")]
Where = Annotated[str | None, Query(alias="filter", description=_FILTER, openapi_examples=examples.FILTERS)]
RevisionQuery = Annotated[
    str, Query(pattern=NAME_PATTERN, max_length=NAME_MAX, description="A digest or a tag of the record.")
]


class Lookup(Body):
    """Which tasks to look up: current records by name, or exact revisions by pinned reference."""

    names: Annotated[list[str], Field(max_length=LOOKUP_MAX)] = []
    refs: Annotated[list[str], Field(max_length=LOOKUP_MAX)] = []


class Found(Body):
    """The tasks looked up, nulls kept: those of `names` that exist, then those of `refs` in their order."""

    data: list[Task]


TaskBody = Annotated[TaskInput, BodyParameter(openapi_examples=examples.TASKS)]
TasksetBody = Annotated[TasksetInput, BodyParameter(openapi_examples=examples.TASKSETS)]


def tasks_router(catalog: TaskCatalog, verifier: TaskVerifier, metrics: MetricResolver) -> APIRouter:
    """`/tasks`, and `/tasks:lookup`."""
    router = APIRouter(tags=["tasks"], route_class=StrictRoute)

    def register(workspace: str, name: str, body: TaskInput, project: str | None, *, create: bool) -> tuple[Task, bool]:
        need_reader(references.of_task(body, workspace))
        return register_task(
            workspace, name, body, tasks=catalog, verifier=verifier, metrics=metrics, project=project, create=create
        )

    @router.post("/tasks/{name}", response_model=Task, status_code=201, responses=failures(400, 404, 409, 422, 503))
    def create_task(workspace: Name, name: Name, body: TaskBody, project: Project = None) -> Response:
        """Create a task: 201; 409 if the name is taken, 400 for an archive that does not fit or a bad tag."""
        return model(register(workspace, name, body, project, create=True)[0], 201)

    @router.put("/tasks/{name}", response_model=Task, responses=examples.CUT | failures(400, 404, 409, 422, 503))
    def put_task(workspace: Name, name: Name, body: TaskBody, project: Project = None) -> Response:
        """Create or replace a task, a Harbor task as its archive says: 201 if a revision was cut, 200 if its content is
        that of `latest`. Tags and project are applied either way."""
        task, cut = register(workspace, name, body, project, create=False)
        return model(task, 201 if cut else 200)

    @router.post("/tasks:lookup", response_model=Found, responses=failures(404, 422))
    def lookup(workspace: Name, body: Lookup) -> Response:
        """Many tasks in one call, so that publishing a suite again takes seconds. Not part of the contract."""
        need_reader(references.of_refs(body.refs, workspace))
        named = catalog.get_tasks(workspace, body.names) if body.names else {}
        pinned = catalog.get_pinned_tasks(body.refs) if body.refs else ()
        return model(Found(data=[*named.values(), *pinned]))

    _listing(router, "/tasks", Task, TASK_FIELDS, catalog.list_tasks)
    _reading(router, "/tasks", Task, catalog.get_task, catalog.task_revisions)
    _changing(router, "/tasks", Task, catalog.tag_task, catalog.delete_task)
    return router


def tasksets_router(catalog: TaskCatalog) -> APIRouter:
    """`/tasksets`."""
    router = APIRouter(tags=["tasksets"], route_class=StrictRoute)

    def store(
        workspace: str, name: str, body: TasksetInput, project: str | None, *, create: bool
    ) -> tuple[Taskset, bool]:
        need_reader(references.of_taskset(body, workspace))
        who = caller()
        return catalog.put_taskset(
            workspace, name, body, project=project, create=create, readable=lambda at: who.may(Role.READER, at)
        )

    @router.post("/tasksets/{name}", response_model=Taskset, status_code=201, responses=failures(400, 409, 422))
    def create_taskset(workspace: Name, name: Name, body: TasksetBody, project: Project = None) -> Response:
        """Create a taskset, its members resolved and pinned: 201; 409 if the name is taken, 422 for unknown members."""
        return model(store(workspace, name, body, project, create=True)[0], 201)

    @router.put("/tasksets/{name}", response_model=Taskset, responses=examples.CUT | failures(400, 409, 422))
    def put_taskset(workspace: Name, name: Name, body: TasksetBody, project: Project = None) -> Response:
        """Create or replace a taskset: its members are resolved and pinned. 201 if a revision was cut, else 200."""
        taskset, cut = store(workspace, name, body, project, create=False)
        return model(taskset, 201 if cut else 200)

    _listing(router, "/tasksets", Taskset, TASKSET_FIELDS, catalog.list_tasksets)
    _reading(router, "/tasksets", Taskset, catalog.get_taskset, catalog.taskset_revisions)
    _changing(router, "/tasksets", Taskset, catalog.tag_taskset, catalog.delete_taskset)
    return router


def _listing[T: Record](
    router: APIRouter, path: str, kind: type[T], fields: Fields, list_page: Callable[..., Page[T]]
) -> None:
    @router.get(path, response_model=Listed[kind], responses=failures(400, 422))
    def list_records(
        request: Request,
        workspace: Name,
        page: PageNumber = 1,
        page_size: PageSize = 100,
        sort: Sort = Sort.CREATED,
        where: Where = None,
        nulls: Annotated[bool, Query(description="Keep null members, so that digests can be computed.")] = False,
    ) -> Response:
        """One page of the current records; null members are left out, as everywhere in record lists."""
        asked = parse_filter(request.query_params.multi_items(), fields=fields, workspace=workspace)
        found = list_page(workspace, page=page, page_size=page_size, sort=sort, where=asked)
        rows = dumped(found.items)
        return listed(found, rows if nulls else map(without_nulls, rows), sort=sort)


def _reading[T: Record](
    router: APIRouter, path: str, kind: type[T], get: Callable[..., T], revisions: Callable[..., Page[Revision]]
) -> None:
    @router.get(path + "/{name}", response_model=kind, responses=failures(404))
    def get_record(workspace: str, name: str) -> Response:
        """The current record."""
        return model(get(workspace, name))

    @router.get(path + "/{name}/revisions", response_model=Listed[Revision], responses=failures(404, 422))
    def list_revisions(workspace: Name, name: Name, page: PageNumber = 1, page_size: PageSize = 100) -> Response:
        """Every revision, newest first. `content_hash` is what pins a reference."""
        found = revisions(workspace, name, page=page, page_size=page_size)
        return listed(found, dumped(found.items), sort=None, filter=None)

    @router.get(path + "/{name}/revisions/{revision}", response_model=kind, responses=failures(404, 422))
    def get_revision(workspace: Name, name: Name, revision: Name) -> Response:
        """The record as of a revision, by digest or tag."""
        return model(get(workspace, name, revision))


def _changing[T: Record](
    router: APIRouter, path: str, kind: type[T], tag_record: Callable[..., T], delete: Callable[[str, str], None]
) -> None:
    @router.put(path + "/{name}/tags/{tag}", response_model=kind, responses=failures(404, 409, 422))
    def put_tag(workspace: Name, name: Name, tag: Name, revision: RevisionQuery) -> Response:
        """Point a tag at a revision, by digest or tag; answers the current record with all its tags."""
        return model(tag_record(workspace, name, tag, revision))

    @router.delete(path + "/{name}", status_code=204, response_class=Response, responses=failures(404, 409))
    def delete_record(workspace: str, name: str) -> Response:
        """Delete a record with its revisions. What refers to it stays, and can no longer be resolved."""
        delete(workspace, name)
        return Response(status_code=204)
