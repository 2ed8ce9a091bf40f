"""What every page has in common: its frame, the links of the site, and who may see it."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from fastapi import Request, Response
from starlette.responses import HTMLResponse

from harbor_assets.domain.access import ANYWHERE, NOBODY_IN_PARTICULAR, Role
from harbor_assets.domain.errors import NotFound
from harbor_assets.domain.names import name_problem
from harbor_assets.domain.runs import Run
from harbor_assets.domain.text import quoted
from harbor_assets.interfaces.api.guard import caller
from harbor_assets.interfaces.backend import Backend
from harbor_assets.interfaces.version import version
from harbor_assets.interfaces.web import words
from harbor_assets.report.formats import OUTCOME_WORDS, asset, environment

if TYPE_CHECKING:
    from jinja2 import Environment

PAGE_MAX: Final = 10_000_000  # above it nobody leafs, and a database's offset has an end
# Everything of a page is ours and comes from here; nobody may put it into a frame. Forms go back to us.
POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # `no-referrer` would make browsers send forms with the origin `null`
    "Cache-Control": "no-store",
    "Vary": "Cookie",
}


@cache
def style() -> str:
    """The one style sheet: the report's colours and shapes, and what only the pages have."""
    return asset("house.css") + files("harbor_assets.interfaces.web").joinpath("web.css").read_text(encoding="utf-8")


@cache
def script() -> str:
    """The one script. Pages are whole without it."""
    return files("harbor_assets.interfaces.web").joinpath("web.js").read_text(encoding="utf-8")


@cache
def icon() -> str:
    """What stands in a browser's tab."""
    return files("harbor_assets.interfaces.web").joinpath("icon.svg").read_text(encoding="utf-8")


@cache
def version_of(content: Callable[[], str]) -> str:
    """What tells one content of a file from another in its address, so that browsers may keep it."""
    return hashlib.sha256(content().encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Links:
    """Addresses of pages, percent-encoded. `root` is where the service is mounted, usually nowhere ("")."""

    root: str
    workspace: str
    default: str

    def to(self, path: str, **query: object) -> str:
        """A page of the site that begins with a slash, with those of `query` that are not None or empty."""
        held = {name: str(value) for name, value in query.items() if value not in (None, "", False)}
        return f"{self.root}{path}" + (f"?{urlencode(held)}" if held else "")

    def here(self, path: str, **query: object) -> str:
        """A page of the workspace that is looked at."""
        return self.to(path, workspace=self.workspace if self.workspace != self.default else None, **query)

    def run(self, run_id: str, **query: object) -> str:
        return self.to(f"/runs/{_part(run_id)}", **query)

    def trial(self, run_id: str, index: int, k: int, **query: object) -> str:
        return self.to(f"/runs/{_part(run_id)}/tasks/{index}/trials/{k}", **query)

    def file(self, run_id: str, path: str) -> str:
        """A file of a run's bundle, or with a slash at the end one of its folders."""
        return self.to(f"/runs/{_part(run_id)}/files/{quote(path, safe='/', errors='surrogateescape')}")

    def log(self, run_id: str, task: int | None = None, **query: object) -> str:
        return self.to(f"/runs/{_part(run_id)}/log", task=None if task is None else str(task), **query)

    def record(self, kind: str, ref: str) -> str:
        """The page of `tasks` or `tasksets`, of a reference `ws/name` or `ws/name#digest`."""
        name, _, digest = ref.partition("#")
        workspace, _, own = name.partition("/")
        return self.to(f"/{kind}/{_part(workspace)}/{_part(own)}", revision=digest)


def _part(text: str) -> str:
    return quote(text, safe="", errors="surrogateescape")


class Site:
    """Draws pages over a backend. `guarded`: callers are told apart. `dagster`: where the Dagster UI is, if known."""

    def __init__(
        self, backend: Backend, *, guarded: bool = False, workspace: str = "default", dagster: Callable[[], str | None]
    ) -> None:
        self.backend, self.guarded, self._default, self.dagster = backend, guarded, workspace, dagster

    # --- who, and where -------------------------------------------------------------------------------------------

    def workspace(self, request: Request) -> str:
        """The workspace that a request asks for, which its caller may read. Raises `Forbidden`, `NotFound`."""
        asked = request.query_params.get("workspace", "").strip()
        if asked and name_problem(asked):
            raise NotFound(f"{quoted(asked)} is not the name of a workspace")
        workspace = asked or self.home()
        self.need(workspace)
        return workspace

    def home(self) -> str:
        """The workspace where a caller begins: the service's own, else the first of theirs."""
        who = caller()
        own = sorted(name for name in who.grants if name != ANYWHERE)
        return self._default if who.may(Role.READER, self._default) or not own else own[0]

    def need(self, workspace: str) -> None:
        """Raises `Forbidden` unless the caller may read that workspace."""
        caller().need(Role.READER, workspace)

    def may(self, workspace: str) -> bool:
        """Whether the caller may read that workspace."""
        return caller().may(Role.READER, workspace)

    def run(self, run_id: str) -> Run:
        """The run of that id. One of a workspace that the caller may not read is as if it were not there, and so are
        the ids that are like it."""
        try:
            found = self.backend.evaluations.find(run_id)
            if self.may(found.plan.workspace):
                return found
        except NotFound:
            if self.may(ANYWHERE):
                raise
        raise NotFound(f"There is no run {quoted(run_id)} here, or none that you may read")

    def links(self, request: Request, workspace: str | None = None) -> Links:
        """The addresses of pages for this request."""
        home = self.home()
        return Links(request.scope.get("root_path", ""), workspace or home, home)

    # --- pages ----------------------------------------------------------------------------------------------------

    def page(
        self, request: Request, template: str, *, workspace: str | None = None, status: int = 200, **shown: Any
    ) -> Response:
        """A page of the site. `workspace`: the one that it is about; None: where the caller begins."""
        who = caller()
        links = self.links(request, workspace)
        text = self._environment.get_template(template).render(
            links=links,
            here=request.url.path,
            query=dict(request.query_params),
            workspace=links.workspace,
            workspaces=sorted(name for name in who.grants if name != ANYWHERE),
            who=None if who is NOBODY_IN_PARTICULAR else who.name,
            guarded=self.guarded,
            dagster=self.dagster(),
            **shown,
        )
        return HTMLResponse(text.encode("utf-8", "replace"), status, HEADERS)

    @cached_property
    def _environment(self) -> "Environment":
        from jinja2 import PackageLoader

        made = environment(PackageLoader("harbor_assets.interfaces.web", "templates"))
        made.filters |= words.FILTERS
        made.globals |= {
            "words": OUTCOME_WORDS,
            "version": version(),
            "style_address": f"/static/{version_of(style)}.css",
            "script_address": f"/static/{version_of(script)}.js",
            "icon_address": f"/static/{version_of(icon)}.svg",
        }
        return made


@dataclass(frozen=True, slots=True)
class Leaf:
    """Where a page stands in a list of `total` rows."""

    number: int
    size: int
    total: int

    @property
    def last(self) -> int:
        return max(1, -(-self.total // self.size))

    @property
    def first_row(self) -> int:
        return min(self.total, (self.number - 1) * self.size + 1)

    @property
    def last_row(self) -> int:
        return min(self.total, self.number * self.size)


def page_number(query: Mapping[str, str]) -> int:
    """Which page of a list is asked for; the first where that is no number of one."""
    text = query.get("page", "")
    return min(max(int(text), 1), PAGE_MAX) if text.isascii() and text.isdigit() and len(text) < 10 else 1
