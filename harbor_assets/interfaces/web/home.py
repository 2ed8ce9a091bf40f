"""The first page, and the list of runs."""

from fastapi import APIRouter, Request, Response

from harbor_assets.domain.tasks import Sort
from harbor_assets.interfaces.api.guard import owner
from harbor_assets.interfaces.web.site import Leaf, Site, page_number

EXPERIMENTS_SHOWN = 50
RUNS_SHOWN = 10  # on the first page
RUNS_PAGE = 100


def home_routes(site: Site) -> APIRouter:
    """`/` and `/runs`."""
    router = APIRouter()

    @router.get("/")
    def home(request: Request) -> Response:
        workspace = site.workspace(request)
        experiments = site.backend.experiments.list_experiments(
            workspace, page_size=EXPERIMENTS_SHOWN, sort=Sort.UPDATED_DOWN
        )
        runs = site.backend.evaluations.list_runs(workspace, page_size=RUNS_SHOWN)
        return site.page(request, "home.html.j2", workspace=workspace, experiments=experiments, runs=runs)

    @router.get("/runs")
    def list_runs(request: Request) -> Response:
        workspace = site.workspace(request)
        query = request.query_params
        active, mine = query.get("active") == "1", query.get("mine") == "1"
        found = site.backend.evaluations.list_runs(
            workspace, active=active, mine=mine, owner=owner(), page=page_number(query), page_size=RUNS_PAGE
        )
        pages = Leaf(found.page, RUNS_PAGE, found.total)
        return site.page(
            request, "runs.html.j2", workspace=workspace, runs=found, active=active, mine=mine, pages=pages
        )

    return router
