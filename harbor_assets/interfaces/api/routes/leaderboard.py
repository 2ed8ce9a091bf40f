"""The leaderboard: the ended runs of a workspace with their means and what these are over."""

from contextlib import ExitStack
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel

from harbor_assets.domain.asking import SqlAnswer, SqlQuestion
from harbor_assets.domain.standings import MIN_COVERAGE, Leaderboard
from harbor_assets.engine.ranking import Rankings
from harbor_assets.interfaces.api import examples
from harbor_assets.interfaces.api.answers import Name, model
from harbor_assets.interfaces.api.streams import OWN, streamed
from harbor_assets.interfaces.api.strict import StrictRoute


class Rebuilt(BaseModel):
    """What a rebuild did. `failed`: run id -> why it is not on the leaderboard."""

    written: int
    failed: dict[str, str]


def leaderboard_router(rankings: Rankings) -> APIRouter:
    """`/leaderboard`."""
    router = APIRouter(prefix="/leaderboard", tags=["leaderboard"], route_class=StrictRoute)

    @router.get("", response_model=Leaderboard)
    def leaderboard(
        workspace: Name,
        experiment: Annotated[str | None, Query(min_length=1, max_length=255)] = None,
        taskset: Annotated[str | None, Query(min_length=1, max_length=600)] = None,
        by: Annotated[str, Query(max_length=200, description="What a line of a board is made by")] = "run",
        min_coverage: Annotated[float, Query(ge=0, le=1)] = MIN_COVERAGE,
    ) -> Response:
        """The runs by taskset and sandbox, the best mean first; on `boards` those that are comparable, ranked.

        `by`: words separated by commas, of run, agent, agent_version, model, experiment, owner. `min_coverage`: the
        share of its trials that a line must have scored to be ranked.
        """
        keys = [word.strip() for word in by.split(",") if word.strip()]
        found = rankings.leaderboard(
            workspace, experiment=experiment, taskset=taskset, by=keys, min_coverage=min_coverage
        )
        return model(found)

    @router.post(":rebuild", response_model=Rebuilt)
    def rebuild(workspace: Name) -> Response:
        """Make the leaderboard, of every workspace, afresh from the bundles."""
        done = rankings.rebuild()
        return model(Rebuilt(written=done.written, failed=dict(done.failed)))

    @router.post(":sql", response_model=SqlAnswer)
    def sql(workspace: Name, body: SqlQuestion) -> Response:
        """What one SELECT gives over the results of the workspace (docs/store.md). It changes nothing."""
        return model(rankings.sql(workspace, body))

    @router.get("/tables/{table}", response_class=Response, responses=examples.PARQUET)
    def table(workspace: Name, table: Name) -> Response:
        """The workspace's rows of one table as a Parquet file."""
        with ExitStack() as opened:
            file = opened.enter_context(rankings.exported(workspace, table))
            return streamed(file, opened, media_type="application/vnd.apache.parquet", headers=OWN)

    return router
