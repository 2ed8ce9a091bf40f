"""The REST API as one FastAPI application, which `serve` serves, and in parts, which the SDK calls in process."""

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from harbor_assets.domain.errors import HarborAssetsError
from harbor_assets.engine.access import Authenticator
from harbor_assets.interfaces.api.description import described
from harbor_assets.interfaces.api.guard import Guard, refused, refused_elsewhere
from harbor_assets.interfaces.api.limits import BodyLimit
from harbor_assets.interfaces.api.parts import PARTS, Part, part_of
from harbor_assets.interfaces.api.strict import validation_answer
from harbor_assets.interfaces.backend import Backend
from harbor_assets.interfaces.version import version


def create_app(
    backend: Backend,
    parts: Sequence[Part] = PARTS,
    *,
    authenticator: Authenticator | None = None,
    in_process: bool = False,
    dagster: Callable[[], str | None] = lambda: None,
) -> FastAPI:
    """The application over a ready backend. Routes are plain functions: they run in threads and may block.

    With an `authenticator` every call but those of `guard.OPEN` needs a token; without, nobody is asked who they are.
    Where callers are `in_process`, errors name the folders and addresses they are about, and there are no pages.
    `dagster` tells where the Dagster UI is, as far as anybody knows, for links on the pages.
    """
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
    if authenticator is not None:
        app.add_middleware(Guard, authenticator)  # it answers before a body is read
    if not in_process:
        from harbor_assets.interfaces.web.app import WithPages

        app.add_middleware(WithPages, backend, authenticator, dagster)
    app.add_exception_handler(HarborAssetsError, refused if in_process else refused_elsewhere)
    app.add_exception_handler(RequestValidationError, validation_answer)
    app.add_exception_handler(Exception, _our_fault)
    app.openapi = lambda: described(app, guarded=authenticator is not None)
    for part in parts:
        for router in part.routers(backend):
            app.include_router(router, prefix=part.prefix)

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


class PartedApp:
    """The same application for calls in process: the routes of a part are made when it is first asked.

    All of them take a third of a command's time, and a command asks one part or two.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._made: dict[str, FastAPI] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, as ASGI has it."""
        part = part_of(scope["path"])
        name = part.name if part else ""
        if name not in self._made:
            self._made[name] = create_app(self._backend, [part] if part else PARTS, in_process=True)
        await self._made[name](scope, receive, send)


async def _our_fault(_: Request, error: Exception) -> JSONResponse:
    """What it was stays in the service's log: an unexpected error's text may hold anything."""
    return JSONResponse({"detail": f"An internal error ({type(error).__name__}); the service's log has it"}, 500)
