"""Two runs held against each other, task by task."""

from typing import Final

from fastapi import APIRouter, Request, Response

from harbor_assets.domain.marks import each_once
from harbor_assets.interfaces.web.leaderboard import MARKS_SHOWN
from harbor_assets.interfaces.web.site import Leaf, Site, page_number

TASKS_PAGE = 200
VERDICTS: Final = {
    "loss": "worse",
    "win": "better",
    "tie": "equal",
    "only_first": "only in the first",
    "only_second": "only in the second",
    "neither": "in neither",
}


def compare_routes(site: Site) -> APIRouter:
    """`/compare?first=&second=`."""
    router = APIRouter()

    @router.get("/compare")
    def compare(request: Request) -> Response:
        query = request.query_params
        ids = [query.get(name, "").strip()[:100] for name in ("first", "second")]
        if not all(ids):
            return site.page(request, "compare.html.j2", workspace=site.workspace(request), found=None, ids=ids)
        first, second = map(site.run, ids)
        found = site.backend.evaluations.compare(first.plan.workspace, first.id, second.id)
        wanted = query.get("verdict", "")
        order = list(VERDICTS)
        tasks = [task for task in found.tasks if wanted in ("", task.verdict)]
        tasks.sort(key=lambda task: (not task.regression, order.index(task.verdict), task.task))
        number = page_number(query)
        return site.page(
            request,
            "compare.html.j2",
            workspace=first.plan.workspace,
            ids=ids,
            found=found,
            told=each_once((*found.first.marks, *found.second.marks)),
            marks_shown=MARKS_SHOWN,
            tasks=tasks[(number - 1) * TASKS_PAGE : number * TASKS_PAGE],
            pages=Leaf(number, TASKS_PAGE, len(tasks)),
            verdicts=VERDICTS,
            places=[{task.ref: task.index for task in run.plan.tasks} for run in (first, second)],
        )

    return router
