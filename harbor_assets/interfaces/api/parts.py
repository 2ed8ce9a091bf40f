"""The API in parts: which routes belong together, which part answers a path. Routes are made when asked for."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harbor_assets.interfaces.backend import Backend

if TYPE_CHECKING:
    from fastapi import APIRouter

BASE = "/apis/evals/v2/workspaces/{workspace}"
INTAKE = "/apis/intake/v2/workspaces/{workspace}"
FILES = "/apis/files/v2/workspaces/{workspace}"


@dataclass(frozen=True, slots=True)
class Part:
    """Routers below `prefix`. `roots` are what their paths begin with there: whole segments, up to a colon at most."""

    name: str
    prefix: str
    roots: tuple[str, ...]
    routers: Callable[[Backend], "Iterable[APIRouter]"]

    def answers(self, path: str) -> bool:
        """True if a path is one of this part's, or would be if there were such a route."""
        prefix = re.escape(self.prefix).replace(r"\{workspace\}", "[^/]*")
        return re.match(rf"{prefix}(?:{'|'.join(map(re.escape, self.roots))})(?![^/:])", path) is not None


def part_of(path: str) -> Part | None:
    """The part that answers a path; None if no part does."""
    return next((part for part in PARTS if part.answers(path)), None)


def _tasks(backend: Backend) -> "Iterable[APIRouter]":
    from harbor_assets.interfaces.api.routes.records import tasks_router

    yield tasks_router(backend.tasks, backend.verifier, backend.metrics)


def _tasksets(backend: Backend) -> "Iterable[APIRouter]":
    from harbor_assets.interfaces.api.routes.images import images_router
    from harbor_assets.interfaces.api.routes.records import tasksets_router

    yield tasksets_router(backend.tasks)
    yield images_router(backend.images)


def _runs(backend: Backend) -> "Iterable[APIRouter]":
    from harbor_assets.interfaces.api.routes.runs import check_router, compare_router, going_on_router, runs_router

    yield check_router(backend.evaluations)
    yield runs_router(backend.evaluations)
    yield going_on_router(backend.evaluations)
    yield compare_router(backend.evaluations)


def _marks(backend: Backend) -> "Iterable[APIRouter]":
    from harbor_assets.interfaces.api.routes.marks import marks_router, verifications_router

    yield marks_router(backend.marks, backend.marking, backend.staleness)
    yield verifications_router(backend.verifications)


def _metrics(backend: Backend) -> "Iterable[APIRouter]":
    from harbor_assets.interfaces.api.routes.metrics import metrics_router

    yield metrics_router(backend.metrics)


def _agent_evals(backend: Backend) -> "Iterable[APIRouter]":
    from harbor_assets.interfaces.api.routes.agent_evals import agent_evals_router

    yield agent_evals_router(backend.agent_evals())


def _leaderboard(backend: Backend) -> "Iterable[APIRouter]":
    from harbor_assets.interfaces.api.routes.leaderboard import leaderboard_router

    if backend.rankings is not None:
        yield leaderboard_router(backend.rankings)


def _lineage(backend: Backend) -> "Iterable[APIRouter]":
    from harbor_assets.interfaces.api.routes.lineage import lineage_router

    yield lineage_router(backend.lineages)


def _projects(backend: Backend) -> "Iterable[APIRouter]":
    from harbor_assets.interfaces.api.routes.projects import projects_router

    if backend.projects is not None:
        yield projects_router(backend.projects)


def _experiments(backend: Backend) -> "Iterable[APIRouter]":
    from harbor_assets.interfaces.api.routes.experiments import (
        evaluations_router,
        experiments_router,
        sessions_router,
    )
    from harbor_assets.interfaces.api.routes.ingest import ingest_router

    yield experiments_router(backend.experiments)
    yield evaluations_router(backend.experiments)
    yield sessions_router(backend.experiments)
    yield ingest_router(backend.experiments)


def _files(backend: Backend) -> "Iterable[APIRouter]":
    from harbor_assets.interfaces.api.routes.files import files_router

    yield files_router(backend.artifacts, backend.scratch)


# In the order of the API's description, which is the whole application's.
PARTS = (
    Part("tasks", BASE, ("/tasks",), _tasks),
    Part("tasksets", BASE, ("/tasksets", "/images"), _tasksets),
    Part("runs", BASE, ("/agent-evaluate/runs",), _runs),
    Part("marks", BASE, ("/marks", "/agent-evaluate/verifications"), _marks),
    Part("metrics", BASE, ("/metrics",), _metrics),
    Part("agent_evals", BASE, ("/agent-evaluate/jobs", "/agent-eval-results", "/eval-results"), _agent_evals),
    Part("leaderboard", BASE, ("/leaderboard",), _leaderboard),
    Part("lineage", BASE, ("/lineage",), _lineage),
    Part("projects", BASE, ("/projects",), _projects),
    Part(
        "experiments",
        INTAKE,
        ("/experiments", "/evaluations", "/sessions", "/evaluator-results", "/ingest"),
        _experiments,
    ),
    Part("files", FILES, ("/filesets",), _files),
)
