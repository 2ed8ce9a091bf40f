"""The names by which a service without authentication may be called: those of this machine.

A page from elsewhere, open in a browser on this machine, reaches loopback too once its own name leads there (DNS
rebinding). Its requests carry that name as their Host.
"""

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from harbor_assets.interfaces.addresses import loopback

_MISDIRECTED = 421


class OwnHost:
    """ASGI middleware: 421 for a request that was sent to another name than this machine's own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not loopback(name := _name(Headers(scope=scope).get("host", ""))):
            detail = (
                "This service has no authentication and is for its own machine: it answers to localhost and 127.0.0.1, "
                f"not to {name[:80]!r}. Give it an access file (HARBOR_ASSETS_ACCESS) to be called by other names"
            )
            await JSONResponse({"detail": detail}, _MISDIRECTED)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _name(host: str) -> str:
    """A Host header without its port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()
