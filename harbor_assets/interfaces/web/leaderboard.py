"""The leaderboard: what is comparable ranked together, in bands, and why anything stands apart."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fastapi import APIRouter, Request, Response

from harbor_assets.domain.errors import Malformed
from harbor_assets.domain.marks import Mark, each_once
from harbor_assets.domain.standings import BY_RUN, KEYS, MIN_COVERAGE, Board, Leaderboard, Standing
from harbor_assets.domain.text import quoted
from harbor_assets.interfaces.web.plot import Plot, Point
from harbor_assets.interfaces.web.site import Links, Site

LINES_SHOWN = 200  # of one board; the command line has all
BOARDS_SHOWN = 20
MARKS_SHOWN = 50  # told under a table
RUNS_NAMED = 5  # of a line of several runs
# What lines can be made by on this page: the sets of words that people ask for.
BY: Final = ("run", "agent,model", "agent", "agent,agent_version,model", "model", "experiment", "owner")
# How a board can be sorted beside its ranks; those of which nothing is known come last.
SORTS: Final[Mapping[str, Callable[[Standing], float | None]]] = {
    "mean": lambda line: line.mean,
    "coverage": lambda line: line.coverage.trials / line.coverage.of_trials if line.coverage.of_trials else None,
    "cost": lambda line: line.cost_usd,
    "time": lambda line: line.duration_sec,
    "finished": lambda line: line.finished_at.timestamp() if line.finished_at else None,
}


@dataclass(frozen=True, slots=True)
class Shown:
    """A board as the page shows it. `lines` in the order that was asked for; `left_out`: how many are not shown.
    `marks`: what is said of the runs of these lines and of their tasks, each mark once."""

    board: Board
    taskset: str
    lines: Sequence[Standing]
    left_out: int
    plot: Plot | None
    untested: bool
    marks: Sequence[Mark]


def leaderboard_routes(site: Site) -> APIRouter:
    """`/leaderboard`."""
    router = APIRouter()

    @router.get("/leaderboard")
    def show_leaderboard(request: Request) -> Response:
        workspace = site.workspace(request)
        query = request.query_params
        by = query.get("by", "") or ",".join(BY_RUN)
        sort = query.get("sort", "")
        if sort.removeprefix("-") not in ("", *SORTS):
            raise Malformed(f"The leaderboard cannot be sorted by {quoted(sort)}; there are {', '.join(SORTS)}")
        rankings = site.backend.rankings
        found = (
            rankings.leaderboard(
                workspace,
                experiment=query.get("experiment") or None,
                taskset=query.get("taskset") or None,
                by=_words(by),
                min_coverage=_share(query.get("min_coverage", "")),
            )
            if rankings is not None
            else Leaderboard(runs=())
        )
        boards = [_answering(board, query) for board in found.boards]
        links = site.links(request, workspace)
        shown = [_shown(board, sort, links, found.marks) for board in boards if board.standings][:BOARDS_SHOWN]
        return site.page(
            request,
            "leaderboard.html.j2",
            workspace=workspace,
            boards=shown,
            boards_left_out=max(0, sum(bool(board.standings) for board in boards) - len(shown)),
            missing=found.missing,
            by=by,
            ways=[*BY, *([by] if by not in BY else [])],
            sort=sort,
            min_coverage=query.get("min_coverage") or f"{MIN_COVERAGE:g}",
            experiments=sorted({run.experiment for run in found.runs if run.experiment}),
            tasksets=sorted({run.taskset_ref.partition("#")[0] for run in found.runs}),
            agents=sorted({run.agent for run in found.runs}),
            models=sorted({run.model for run in found.runs if run.model}),
            regrade_of={run.run_id: run.regrade_of for run in found.runs if run.regrade_of},
            regrades_left_out=len(found.left_out),
            marks_shown=MARKS_SHOWN,
            runs_named=RUNS_NAMED,
        )

    return router


def name_of(line: Standing) -> str:
    """What a line is called in a plot: who made it, or its run."""
    who = " ".join(part for part in (line.agent, line.model) if part)
    return who or (line.run_ids[0] if len(line.run_ids) == 1 else f"{len(line.run_ids)} runs")


def _words(by: str) -> list[str]:
    words = [word.strip() for word in by.split(",") if word.strip()]
    if unknown := [word for word in words if word not in KEYS]:
        raise Malformed(f"Lines cannot be made by {quoted(unknown[0])}; there are {', '.join(KEYS)}")
    return words


def _share(text: str) -> float:
    try:
        value = float(text) if text else MIN_COVERAGE
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise Malformed(f"The least coverage is a share from 0 to 1, not {quoted(text)}")
    return value


def _answering(board: Board, query: Mapping[str, str]) -> Board:
    """The board with the lines that were asked for: their ranks stay those among all."""
    agent, model = query.get("agent", ""), query.get("model", "")
    lines = [line for line in board.standings if agent in ("", line.agent) and model in ("", line.model)]
    return board.model_copy(update={"standings": tuple(lines)})


def _shown(board: Board, sort: str, links: Links, marks: Mapping[str, Sequence[Mark]]) -> Shown:
    lines = sorted_lines(board.standings, sort)
    points = [
        Point(name_of(line), line.cost_usd, line.mean, links.run(line.run_ids[0]))
        for line in board.standings
        if line.cost_usd is not None and line.mean is not None and line.rank is not None and _whole(line)
    ]
    return Shown(
        board=board,
        taskset=board.conditions.taskset_ref.partition("#")[0],
        lines=lines[:LINES_SHOWN],
        left_out=max(0, len(lines) - LINES_SHOWN),
        plot=Plot(points, x="cost_usd.sum", y="mean") if len(points) > 1 else None,
        untested=bool(board.test) and any(line.rank is not None and line.best is None for line in lines),
        marks=each_once(mark for line in lines[:LINES_SHOWN] for run in line.run_ids for mark in marks.get(run, ())),
    )


def _whole(line: Standing) -> bool:
    """Whether the cost of all that was scored is known: a part of it would be no cost."""
    return line.cost_trials >= line.coverage.trials


def sorted_lines(lines: Sequence[Standing], sort: str) -> list[Standing]:
    """Lines by a figure, those without it last; as they are ranked where nothing is asked for. What stands apart from
    the ranking stays behind it."""
    if not sort:
        return list(lines)
    figure, down = SORTS[sort.removeprefix("-")], sort.startswith("-")

    def key(line: Standing) -> tuple[bool, bool, float]:
        value = figure(line)
        return line.apart is not None, value is None, 0.0 if value is None else -value if down else value

    return sorted(lines, key=key)
