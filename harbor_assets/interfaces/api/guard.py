"""Who may call what: a token for every call, a role for every path. What no rule here opens stays shut."""

import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from harbor_assets.domain.access import ANYWHERE, NOBODY_IN_PARTICULAR, Caller, Role
from harbor_assets.domain.errors import Forbidden, HarborAssetsError, NotFound, Unauthenticated
from harbor_assets.engine.access import Authenticator
from harbor_assets.interfaces.problems import to_answer

log = logging.getLogger(__name__)

# Probes come without a token and learn nothing; the description is the same for everybody.
OPEN: Final = frozenset({"/healthz", "/readyz", "/apis/evals/v1/healthz", "/openapi.json", "/apis/evals/openapi.json"})
FIGURES: Final = "/metrics"  # for monitoring: counts of every workspace together
_WORKSPACE: Final = re.compile(r"/apis/(?:evals|files|intake)/v2/workspaces/([^/]+)(/.*)")
_LOOKING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOKING_BY_POST: Final = frozenset({"/tasks:lookup", "/marks:lookup", "/marks:touching", "/leaderboard:sql"})
_SERVICE_WIDE: Final = frozenset({"/leaderboard:rebuild"})  # of every workspace, whichever the path names

_caller: ContextVar[Caller] = ContextVar("caller", default=NOBODY_IN_PARTICULAR)


def caller() -> Caller:
    """Who makes the call that is being answered."""
    return _caller.get()


@contextmanager
def speaking(who: Caller) -> Iterator[None]:
    """Answer for this caller."""
    before = _caller.set(who)
    try:
        yield
    finally:
        _caller.reset(before)


def owner() -> str | None:
    """In whose name the call is made; None where callers are not told apart."""
    who = caller()
    return None if who is NOBODY_IN_PARTICULAR else who.name


def needed(method: str, path: str) -> tuple[Role, str] | None:
    """The role that a call needs, and in which workspace (`*`: in every one). None for a path of no workspace."""
    if path == FIGURES:
        return Role.READER, ANYWHERE
    match = _WORKSPACE.fullmatch(path)
    if match is None:
        return None
    workspace, rest = match[1], match[2]
    if rest in _SERVICE_WIDE:
        return Role.ADMIN, ANYWHERE
    if method in _LOOKING or rest in _LOOKING_BY_POST:
        return Role.READER, workspace
    return Role.ADMIN if rest.startswith("/projects/") else Role.WRITER, workspace


class Guard:
    """ASGI middleware: 401 without a good token, 403 without the role. `caller()` tells the routes who it is."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator) -> None:
        self._app, self._authenticator = app, authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN:
            await self._app(scope, receive, send)
            return
        try:
            who = await run_in_threadpool(self._authenticator.authenticate, _token(Headers(scope=scope)))
            wanted = needed(scope["method"], scope["path"])
            if wanted is not None:
                who.need(*wanted)
        except HarborAssetsError as error:
            await refusal(error)(scope, receive, send)
            return
        with speaking(who):
            await self._app(scope, receive, send)


def need_reader(workspaces: Iterable[str]) -> None:
    """That the caller may read what a body refers to. Raises `Forbidden`."""
    for workspace in workspaces:
        caller().need(Role.READER, workspace)


def readable(error: HarborAssetsError) -> HarborAssetsError:
    """The error as its caller may read it: without what it tells of a workspace that is closed to them."""
    if isinstance(error, NotFound) and error.tells_of is not None and not caller().may(Role.READER, error.tells_of):
        return NotFound(error.otherwise)
    return error


async def refused(_: Request, error: Exception) -> JSONResponse:
    """An error of ours as an answer, to a caller on the same machine."""
    assert isinstance(error, HarborAssetsError)
    return refusal(error)


async def refused_elsewhere(request: Request, error: Exception) -> JSONResponse:
    """An error of ours as an answer to whoever reaches the port: where our database and folders lie is told to the
    log alone."""
    assert isinstance(error, HarborAssetsError)
    if error.elsewhere is None:
        return refusal(error)
    log.warning("%s %s: %s", request.method, request.url.path, error)
    status, body = to_answer(error)
    return JSONResponse({**body, "detail": error.elsewhere}, status)


def refusal(error: HarborAssetsError) -> JSONResponse:
    """The answer, with what RFC 6750 says that clients are to be told."""
    error = readable(error)
    status, body = to_answer(error)
    said = {Unauthenticated: 'Bearer realm="harbor-assets"', Forbidden: 'Bearer error="insufficient_scope"'}
    header = said.get(type(error))
    return JSONResponse(body, status, {"WWW-Authenticate": header} if header else None)


def _token(headers: Headers) -> str:
    """The bearer token. Raises `Unauthenticated` if there is none, or more than one header."""
    found = headers.getlist("authorization")
    scheme, _, token = found[0].partition(" ") if len(found) == 1 else ("", "", "")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated(
            "This service needs a token: send 'Authorization: Bearer <token>'. Commands take it from "
            "HARBOR_ASSETS_TOKEN, or from the file that their context names"
        )
    return token.strip()
