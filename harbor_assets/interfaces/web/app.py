"""The pages as one application, and how it stands beside the API under one address."""

import logging
from collections.abc import Callable
from urllib.parse import urlencode

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from harbor_assets.domain.errors import HarborAssetsError
from harbor_assets.engine.access import Authenticator
from harbor_assets.interfaces.api.guard import FIGURES, OPEN, readable
from harbor_assets.interfaces.api.limits import BodyLimit
from harbor_assets.interfaces.backend import Backend
from harbor_assets.interfaces.problems import to_answer
from harbor_assets.interfaces.web.comparing import compare_routes
from harbor_assets.interfaces.web.experiments import experiment_routes
from harbor_assets.interfaces.web.gate import Gate
from harbor_assets.interfaces.web.home import home_routes
from harbor_assets.interfaces.web.leaderboard import leaderboard_routes
from harbor_assets.interfaces.web.lineage import lineage_routes
from harbor_assets.interfaces.web.records import record_routes
from harbor_assets.interfaces.web.runs import run_routes
from harbor_assets.interfaces.web.site import Site, icon, script, style, version_of
from harbor_assets.interfaces.web.trials import trial_routes

log = logging.getLogger(__name__)

_KEPT = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}


def of_the_api(path: str) -> bool:
    """True if a path is the API's, which answers programs in JSON; all others are pages."""
    return path == "/apis" or path.startswith("/apis/") or path == FIGURES or path in OPEN


class WithPages:
    """ASGI middleware: the API answers its own paths, the pages all others."""

    def __init__(
        self,
        app: ASGIApp,
        backend: Backend,
        authenticator: Authenticator | None,
        dagster: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._app = app
        self._pages = BodyLimit(create_pages(backend, authenticator, dagster))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pages = scope["type"] == "http" and not of_the_api(scope["path"])
        await (self._pages if pages else self._app)(scope, receive, send)


def create_pages(
    backend: Backend, authenticator: Authenticator | None, dagster: Callable[[], str | None] = lambda: None
) -> FastAPI:
    """The pages over a ready backend. Routes are plain functions: they run in threads and may block."""
    site = Site(backend, guarded=authenticator is not None, dagster=dagster)
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    for routes in (
        home_routes, experiment_routes, leaderboard_routes, run_routes, trial_routes, compare_routes, record_routes,
        lineage_routes,
    ):  # fmt: skip
        app.include_router(routes(site))
    _add_files(app)
    _add_failures(app, site)
    if authenticator is not None:
        app.add_middleware(Gate, site, authenticator)
    return app


def _add_files(app: FastAPI) -> None:
    files = ((style, "css", "text/css"), (script, "js", "text/javascript"), (icon, "svg", "image/svg+xml"))
    for content, kind, media_type in files:

        @app.get(f"/static/{version_of(content)}.{kind}")
        def file(content: Callable[[], str] = content, media_type: str = media_type) -> Response:
            return Response(content(), media_type=f"{media_type}; charset=utf-8", headers=_KEPT)


def _add_failures(app: FastAPI, site: Site) -> None:
    """Errors as pages: of ours with their words, those of the framework (no such page), and the unexpected."""

    def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, HarborAssetsError)
        if error.elsewhere is not None:
            log.warning("%s %s: %s", request.method, request.url.path, error)
        said = readable(error)
        status = to_answer(said)[0]
        return failed(request, status, said.elsewhere or str(said), _without_query(request, status))

    def unknown(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        said = "There is no such page here." if status in (404, 422) else str(getattr(error, "detail", ""))
        return failed(request, status, said)

    def unexpected(request: Request, error: Exception) -> Response:
        return failed(
            request, 500, f"This page could not be made ({type(error).__name__}); the service's log says why."
        )

    def failed(request: Request, status: int, said: str, plain: str | None = None) -> Response:
        return site.page(request, "failed.html.j2", status=status, said=said, code=status, plain=plain)

    app.add_exception_handler(HarborAssetsError, ours)
    app.add_exception_handler(HTTPException, unknown)
    app.add_exception_handler(RequestValidationError, lambda request, _: failed(request, 404, "There is no such page."))
    app.add_exception_handler(Exception, unexpected)


def _without_query(request: Request, status: int) -> str | None:
    """The page that was asked for, of the same workspace, without what else was asked of it: where that was wrong."""
    asked = dict(request.query_params)
    workspace = asked.pop("workspace", "")
    board = status == 404 and request.url.path.endswith("/leaderboard")  # an unknown name among its filters
    if request.url.path.endswith("/lineage"):  # there is none of nothing
        return None
    if not asked or not (status in (400, 422) or board):
        return None
    return request.url.path + (f"?{urlencode({'workspace': workspace})}" if workspace else "")
