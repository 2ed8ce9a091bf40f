"""The leaderboard: the ended runs of a workspace with their means and what these are over."""

from contextlib import ExitStack

from fastapi import APIRouter, Response
from pydantic import BaseModel

from harbor_assets.domain.asking import SqlAnswer, SqlQuestion
from harbor_assets.domain.ranking import Leaderboard
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
    def leaderboard(workspace: Name) -> Response:
        """The runs by taskset and sandbox, the best mean first."""
        return model(rankings.leaderboard(workspace))

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
