"""Lineage as a tree of links, and which scores rest on a revision of a task."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fastapi import APIRouter, Request, Response
from pydantic import JsonValue

from harbor_assets.domain.asking import SqlQuestion
from harbor_assets.domain.errors import HarborAssetsError, Malformed, Refused
from harbor_assets.domain.lineage import Node, asked
from harbor_assets.domain.text import quoted
from harbor_assets.interfaces.api.references import of_refs
from harbor_assets.interfaces.web.site import Links, Site

NODES_MAX = 2000  # of one page
SCORES_SHOWN = 200
_TRIAL = re.compile(r".*__(\d{5})-(\d{1,4})")
_LONG = 12  # children from which on they are folded


def lineage_routes(site: Site) -> APIRouter:
    """`/lineage?of=`."""
    router = APIRouter()

    @router.get("/lineage")
    def show_lineage(request: Request) -> Response:
        workspace = site.workspace(request)
        of = request.query_params.get("of", "").strip()[:1000]
        if not of:
            raise Malformed("Lineage is asked for of something: /lineage?of= with a run, a task or an image")
        try:
            ref = asked(of).ref
        except Refused as refused:
            raise Malformed(str(refused)) from None
        for other in of_refs([ref], workspace) if ref is not None else ():
            site.need(other)
        found = site.backend.lineages.of(workspace, of)
        drawing = Drawing(site.links(request, workspace), site.dagster())
        root = drawing.branch(found.root, None)
        return site.page(
            request,
            "lineage.html.j2",
            workspace=workspace,
            of=of,
            direction=found.direction,
            root=root,
            left_out=found.left_out,
            not_drawn=drawing.not_drawn,
            long=_LONG,
        )

    return router


@dataclass(slots=True)
class Branch:
    """A node with its address, what is told of it in a line, and what is below."""

    node: Node
    href: str | None
    told: str
    children: "list[Branch]" = field(default_factory=list)


class Drawing:
    """Draws a tree, up to a number of nodes; what is beyond is counted."""

    def __init__(self, links: Links, dagster: str | None) -> None:
        self._links, self._dagster = links, dagster
        self._drawn = self.not_drawn = 0

    def branch(self, node: Node, run: str | None) -> Branch:
        """A node and what is below. `run`: the one it is part of."""
        self._drawn += 1
        run = node.name if node.kind == "run" else run
        made = Branch(node, self._href(node, run), _told(node.facts))
        for child in node.children:
            if self._drawn < NODES_MAX:
                made.children.append(self.branch(child, run))
            else:
                self.not_drawn += 1
        return made

    def _href(self, node: Node, run: str | None) -> str | None:
        links = self._links
        match node.kind:
            case "run":
                return links.run(node.name)
            case "task":
                return links.record("tasks", node.name)
            case "taskset":
                return links.record("tasksets", node.name)
            case "image":
                return links.here("/lineage", of=node.name)
            case "evaluation":
                return links.record("evaluations", f"{links.workspace}/{node.name}")
            case "file" if run:
                return links.file(run, node.name)
            case "trial" if run and (match := _TRIAL.fullmatch(node.name)):
                return links.trial(run, int(match[1]), int(match[2]))
            case "asset" if self._dagster and isinstance(page := node.facts.get("page"), str):
                return f"{self._dagster.rstrip('/')}{page}"
            case _:
                return None


def _told(facts: Mapping[str, JsonValue]) -> str:
    """The facts of a node in a line; addresses of pages are links already."""
    return ", ".join(f"{name.replace('_', ' ')} {_value(value)}" for name, value in facts.items() if name != "page")


def _value(value: JsonValue) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


# --- scores of a task's revision --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Score:
    """What one ended run says of a task's revision: the store's own figures."""

    run_id: str
    digest: str
    agent: str
    model: str | None
    experiment: str | None
    planned: int
    scored: int
    mean: float | None
    finished_at: str | None


@dataclass(frozen=True, slots=True)
class Scores:
    """The runs that a task touches, the newest first. `why`: what keeps them from being known."""

    rows: Sequence[Score] = ()
    more: bool = False
    why: str = ""


def scores_of(site: Site, workspace: str, bare: str) -> Scores:
    """The scores of every revision of a task (`workspace/name`) in a workspace's store of results."""
    rankings = site.backend.rankings
    if rankings is None:
        return Scores(why="this service keeps no store of results")
    begin = bare.replace("'", "''")  # names hold letters, digits and '_-.' only; this is the second wall
    query = f"""
        SELECT t.run_id, split_part(t.task_ref, '#', 2), t.agent, t.model, t.experiment, t.planned, t.scored, t.mean,
            r.finished_at
        FROM tasks t JOIN runs r USING (run_id)
        WHERE split_part(t.task_ref, '#', 1) = '{begin}'
        ORDER BY r.finished_at DESC, t.run_id LIMIT {SCORES_SHOWN + 1}
    """  # noqa: S608
    try:
        rows = rankings.sql(workspace, SqlQuestion(query=query)).rows
    except HarborAssetsError as error:
        return Scores(why=quoted(error.elsewhere or str(error), 400)[1:-1])
    found = [Score(*row) for row in rows[:SCORES_SHOWN]]  # type: ignore[arg-type]
    return Scores(found, more=len(rows) > SCORES_SHOWN)
