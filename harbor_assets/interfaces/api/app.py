"""The REST API as one FastAPI application. The SDK calls it in process; `serve` serves the same object."""

from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from harbor_assets.domain.errors import HarborAssetsError
from harbor_assets.interfaces.api.limits import BodyLimit
from harbor_assets.interfaces.api.routes.agent_evals import agent_evals_router
from harbor_assets.interfaces.api.routes.files import files_router
from harbor_assets.interfaces.api.routes.images import images_router
from harbor_assets.interfaces.api.routes.leaderboard import leaderboard_router
from harbor_assets.interfaces.api.routes.metrics import metrics_router
from harbor_assets.interfaces.api.routes.projects import projects_router
from harbor_assets.interfaces.api.routes.records import tasks_router, tasksets_router
from harbor_assets.interfaces.api.routes.runs import check_router, runs_router
from harbor_assets.interfaces.api.strict import validation_answer
from harbor_assets.interfaces.backend import Backend
from harbor_assets.interfaces.problems import to_answer
from harbor_assets.interfaces.version import version

BASE = "/apis/evals/v2/workspaces/{workspace}"


def create_app(backend: Backend) -> FastAPI:
    """The application over a ready backend. Routes are plain functions: they run in threads and may block."""
    app = FastAPI(
        title="harbor-assets",
        version=version(),
        description="Suites of Harbor tasks, runs of them, and their results.",
        openapi_url="/apis/evals/openapi.json",
        docs_url=None,  # the pages load scripts from a foreign host
        redoc_url=None,
        redirect_slashes=False,
    )
    app.add_middleware(BodyLimit)
    app.add_exception_handler(HarborAssetsError, _answer)
    app.add_exception_handler(RequestValidationError, validation_answer)
    app.add_exception_handler(Exception, _our_fault)
    workspaces = APIRouter(prefix=BASE)
    for router in (
        tasks_router(backend.tasks, backend.verifier, backend.metrics),
        tasksets_router(backend.tasks),
        images_router(backend.images),
        check_router(backend.evaluations),
        runs_router(backend.evaluations),
        metrics_router(backend.metrics),
        agent_evals_router(backend.agent_evals),
    ):
        workspaces.include_router(router)
    if backend.rankings is not None:
        workspaces.include_router(leaderboard_router(backend.rankings))
    if backend.projects is not None:
        workspaces.include_router(projects_router(backend.projects))
    app.include_router(workspaces)
    app.include_router(files_router(backend.artifacts, backend.scratch))

    @app.get("/openapi.json", include_in_schema=False)
    def description() -> dict[str, Any]:
        """The API's description, where most tools look for it."""
        return app.openapi()

    @app.get("/healthz", tags=["service"], include_in_schema=False)
    @app.get("/apis/evals/v1/healthz", tags=["service"])
    def healthz() -> dict[str, Any]:
        """That the service answers, and which version it is."""
        return {"plugin": "evals", "status": "ok", "version": version()}

    @app.get("/readyz", tags=["service"])
    def readyz() -> dict[str, Any]:
        """That the catalog answers too: 503 if it does not."""
        backend.tasks.list_tasks("default", page_size=1)
        return {"status": "ok"}

    return app


async def _answer(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HarborAssetsError)
    status, body = to_answer(error)
    return JSONResponse(body, status)


async def _our_fault(_: Request, error: Exception) -> JSONResponse:
    """What it was stays in the service's log: an unexpected error's text may hold anything."""
    return JSONResponse({"detail": f"An internal error ({type(error).__name__}); the service's log has it"}, 500)
