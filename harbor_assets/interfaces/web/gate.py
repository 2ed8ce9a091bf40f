"""Who looks at the pages: a token in a cookie that only these pages take, and the form that puts it there.

The cookie is `HttpOnly` and `SameSite=Strict`, and the API takes no cookies: another site can neither read it nor act
by it. Forms are taken from our own origin alone.
"""

from collections.abc import Mapping
from http.cookies import SimpleCookie
from typing import Final
from urllib.parse import parse_qs, urlsplit

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from harbor_assets.domain.errors import Forbidden, HarborAssetsError, Unauthenticated
from harbor_assets.engine.access import Authenticator
from harbor_assets.interfaces.api.guard import speaking
from harbor_assets.interfaces.problems import to_answer
from harbor_assets.interfaces.web.site import HEADERS, Site

COOKIE: Final = "harbor_assets_token"
COOKIE_MAX: Final = 3800  # bytes of a token: browsers keep 4,096 of a cookie with its name and attributes
FORM_MAX: Final = 32 * 1024
STATIC: Final = "/static/"
_SEE_OTHER: Final = 303


class Gate:
    """ASGI middleware before the pages: who asks is told by the cookie; whoever has none gets the form, in place."""

    def __init__(self, app: ASGIApp, site: Site, authenticator: Authenticator) -> None:
        self._app, self._site, self._authenticator = app, site, authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(STATIC):
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        if scope["path"] == "/sign-in" and scope["method"] == "POST":
            await (await self._sign_in(request))(scope, receive, send)
            return
        if scope["path"] == "/sign-out" and scope["method"] == "POST":
            await self._sign_out(request)(scope, receive, send)
            return
        token = _token(request)
        try:
            if not token:
                raise Unauthenticated("")
            who = await run_in_threadpool(self._authenticator.authenticate, token)
        except HarborAssetsError as error:
            answer = await run_in_threadpool(self._form, request, error if token else None)
            await answer(scope, receive, send)
            return
        with speaking(who):
            await self._app(scope, receive, send)

    def _form(self, request: Request, error: HarborAssetsError | None, back: str | None = None) -> Response:
        """The form for a token, with what was wrong with the last one. A link from elsewhere comes without the cookie
        of somebody who has one, and the page then asks for itself once more, which comes with it."""
        status = to_answer(error)[0] if error else 401
        elsewhere = request.headers.get("sec-fetch-site") == "cross-site" and request.method == "GET"
        return self._site.page(
            request,
            "sign_in.html.j2",
            status=status,
            error=str(error) if error else "",
            back=back or _local(_address(request)),
            again=elsewhere and not back and not error,
        )

    async def _sign_in(self, request: Request) -> Response:
        form: Mapping[str, str] = {}
        try:
            _same_origin(request)
            form = await _fields(request)
            token = form.get("token", "").strip()
            if len(token) > COOKIE_MAX:
                raise Unauthenticated(
                    f"This token has {len(token)} characters, and a browser keeps {COOKIE_MAX} at most; ask for one "
                    "with fewer claims, or for one of the service's own (`harbor-assets access new`)"
                )
            await run_in_threadpool(self._authenticator.authenticate, token)
        except HarborAssetsError as error:
            return await run_in_threadpool(self._form, request, error, _local(form.get("back", "/")))
        answer = RedirectResponse(_local(form.get("back", "/")), _SEE_OTHER, HEADERS)
        answer.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=_tls(request), path="/")
        return answer

    def _sign_out(self, request: Request) -> Response:
        try:
            _same_origin(request)
        except Forbidden as error:
            return self._form(request, error, "/")
        answer = RedirectResponse(f"{request.scope.get('root_path', '')}/", _SEE_OTHER, HEADERS)
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict", secure=_tls(request), path="/")
        return answer


def _token(request: Request) -> str:
    """The token of a request, from its cookie; several of that name are none."""
    found = [jar[COOKIE].value for jar in map(_jar, request.headers.getlist("cookie")) if COOKIE in jar]
    return found[0] if len(found) == 1 and found[0].isascii() else ""


def _jar(header: str) -> SimpleCookie:
    jar: SimpleCookie = SimpleCookie()
    for part in header.split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            jar[COOKIE] = value.strip('"')
    return jar


def _same_origin(request: Request) -> None:
    """Raises `Forbidden` for a form that another site sent."""
    origin = request.headers.get("origin", "")
    if not origin or urlsplit(origin).netloc != request.headers.get("host"):
        raise Forbidden("The form was not sent by a page of this service; open the page here and send it again")


async def _fields(request: Request) -> Mapping[str, str]:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > FORM_MAX:
            raise Unauthenticated(f"The form has more than {FORM_MAX} bytes, which is no token")
    fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=10)
    return {name: values[-1] for name, values in fields.items()}


def _address(request: Request) -> str:
    query = request.url.query
    return request.url.path + (f"?{query}" if query else "")


def _local(address: str) -> str:
    """An address of this site; its first page in place of anything that could lead elsewhere."""
    plain = address.isascii() and address.isprintable() and "\\" not in address
    return address if plain and address.startswith("/") and not address.startswith("//") else "/"


def _tls(request: Request) -> bool:
    """Whether the browser came by TLS, also where a proxy ends that. A false claim only keeps the cookie from http."""
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", ""))
