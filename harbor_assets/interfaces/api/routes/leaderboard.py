"""The leaderboard: the ended runs of a workspace with their means and what these are over."""

from fastapi import APIRouter, Response
from pydantic import BaseModel

from harbor_assets.domain.ranking import Leaderboard
from harbor_assets.engine.ranking import Rankings
from harbor_assets.interfaces.api.answers import Name, model


class Rebuilt(BaseModel):
    """What a rebuild did. `failed`: run id -> why it is not on the leaderboard."""

    written: int
    failed: dict[str, str]


def leaderboard_router(rankings: Rankings) -> APIRouter:
    """`/leaderboard`."""
    router = APIRouter(prefix="/leaderboard", tags=["leaderboard"])

    @router.get("", response_model=Leaderboard)
    def leaderboard(workspace: Name) -> Response:
        """The runs by taskset and sandbox, the best mean first."""
        return model(rankings.leaderboard(workspace))

    @router.post(":rebuild", response_model=Rebuilt)
    def rebuild(workspace: Name) -> Response:
        """Make the leaderboard, of every workspace, afresh from the bundles."""
        done = rankings.rebuild()
        return model(Rebuilt(written=done.written, failed=dict(done.failed)))

    return router
