"""Tasks and tasksets: what a revision is, which there are, what is known of them, and what rests on them."""

from collections.abc import Callable, Mapping, Sequence

from fastapi import APIRouter, Request, Response

from harbor_assets.domain.filters import TASK_FIELDS, TASKSET_FIELDS, Fields, Filter, Operator, condition
from harbor_assets.domain.marks import Mark
from harbor_assets.domain.tasks import HarborTask, Record, Sort
from harbor_assets.engine.ports import Page
from harbor_assets.interfaces.web.lineage import scores_of
from harbor_assets.interfaces.web.site import Leaf, Site, page_number

RECORDS_PAGE = 100
REVISIONS_PAGE = 50
MEMBERS_PAGE = 200
INSTRUCTION_MAX = 20_000  # characters of an instruction on a page


def record_routes(site: Site) -> APIRouter:
    """`/tasks`, `/tasksets` and one page for each record of them."""
    router = APIRouter()
    catalog = site.backend.tasks
    _add_list(router, site, "tasks", TASK_FIELDS, catalog.list_tasks)
    _add_list(router, site, "tasksets", TASKSET_FIELDS, catalog.list_tasksets)

    @router.get("/tasks/{workspace}/{name}")
    def show_task(request: Request, workspace: str, name: str) -> Response:
        site.need(workspace)
        query = request.query_params
        task = catalog.get_task(workspace, name, query.get("revision") or None)
        number = page_number(query)
        revisions = catalog.task_revisions(workspace, name, page=number, page_size=REVISIONS_PAGE)
        bare = f"{workspace}/{name}"
        refs = [task.ref, *(f"{bare}#{revision.content_hash}" for revision in revisions.items)]
        looked_at = site.workspace(request) if query.get("workspace") else workspace
        harbor = task.spec if isinstance(task.spec, HarborTask) else None
        said = (harbor.instruction if harbor else task.spec.inputs.instruction) or ""  # type: ignore[union-attr]
        return site.page(
            request,
            "task.html.j2",
            workspace=workspace,
            task=task,
            harbor=harbor,
            instruction=said[:INSTRUCTION_MAX],
            instruction_left_out=max(0, len(said) - INSTRUCTION_MAX),
            revisions=revisions.items,
            pages=Leaf(revisions.page, REVISIONS_PAGE, revisions.total),
            marks=marks_of(site, workspace, refs),
            looked_at=looked_at,
            scores=scores_of(site, looked_at, bare),
        )

    @router.get("/tasksets/{workspace}/{name}")
    def show_taskset(request: Request, workspace: str, name: str) -> Response:
        site.need(workspace)
        query = request.query_params
        taskset = catalog.get_taskset(workspace, name, query.get("revision") or None)
        revisions = catalog.taskset_revisions(workspace, name, page_size=REVISIONS_PAGE)
        number = page_number(query)
        members = taskset.tasks[(number - 1) * MEMBERS_PAGE : number * MEMBERS_PAGE]
        return site.page(
            request,
            "taskset.html.j2",
            workspace=workspace,
            taskset=taskset,
            members=members,
            pages=Leaf(number, MEMBERS_PAGE, len(taskset.tasks)),
            revisions=revisions.items,
            revision_count=revisions.total,
            marks=marks_of(site, workspace, members),
        )

    return router


def marks_of(site: Site, workspace: str, subjects: Sequence[str]) -> Mapping[str, Sequence[Mark]]:
    """What is known of these in a workspace, by subject."""
    return site.backend.marks.marks_of(workspace, list(dict.fromkeys(subjects)))


def named(text: str, fields: Fields, workspace: str) -> Filter | None:
    """The records whose name holds a text; None: all."""
    return condition("name", "", Operator.LIKE, text, fields=fields, workspace=workspace) if text else None


def _add_list[R: Record](
    router: APIRouter, site: Site, kind: str, fields: Fields, list_page: Callable[..., Page[R]]
) -> None:
    @router.get(f"/{kind}")
    def list_records(request: Request) -> Response:
        workspace = site.workspace(request)
        query = request.query_params
        wanted = query.get("q", "").strip()[:200]
        found = list_page(
            workspace,
            page=page_number(query),
            page_size=RECORDS_PAGE,
            sort=Sort.UPDATED_DOWN,
            where=named(wanted, fields, workspace),
        )
        return site.page(
            request,
            "records.html.j2",
            workspace=workspace,
            kind=kind,
            records=found.items,
            unreadable=found.unreadable,
            pages=Leaf(found.page, RECORDS_PAGE, found.total),
        )
