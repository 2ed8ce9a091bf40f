import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from harbor_assets.domain.access import Caller, Role
from harbor_assets.domain.errors import ServiceUnavailable, Unauthenticated
from harbor_assets.engine.access import Authenticator
from harbor_assets.interfaces.api.app import create_app
from tests.interfaces.backends import World, world
from tests.web.browser import Document, check

CALLERS = {
    "reader": Caller("ann", {"default": Role.READER}),
    "elsewhere": Caller("dan", {"other": Role.ADMIN}),
    "nothing": Caller("nat", {}),
    "root": Caller("eve", {"*": Role.ADMIN}),
}


class Known:
    """Takes the name of a caller as their token."""

    away = False

    def authenticate(self, token: str) -> Caller:
        if self.away:
            raise ServiceUnavailable("The keys cannot be had now")
        if token not in CALLERS:
            raise Unauthenticated("This token is not known here")
        return CALLERS[token]


class Visitor:
    """Somebody with a browser. `who` is the token in their cookie."""

    def __init__(self, made: World, authenticator: Authenticator | None = None, who: str | None = None) -> None:
        self.world, self.authenticator, self.who = made, authenticator, who
        self.dagster: str | None = None
        self.app = create_app(made.backend, authenticator=authenticator, dagster=lambda: self.dagster)

    def ask(self, path: str, method: str = "GET", **options: Any) -> httpx.Response:
        headers = {**({"Cookie": f"harbor_assets_token={self.who}"} if self.who else {}), **options.pop("headers", {})}

        async def answer() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.request(method, path, headers=headers, **options)

        return asyncio.run(answer())

    def see(self, path: str, status: int = 200) -> Document:
        """A page, which keeps to the rules."""
        answer = self.ask(path)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
        page = Document(answer.text)
        check(page)
        return page


@pytest.fixture
def w(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


@pytest.fixture
def visitor(w: World) -> Visitor:
    return Visitor(w)
