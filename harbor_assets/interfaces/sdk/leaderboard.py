"""The leaderboard of a workspace."""

import json

from harbor_assets.domain.ranking import Leaderboard
from harbor_assets.interfaces.sdk.blocking import Blocking, blocking
from harbor_assets.interfaces.sdk.resource import AsyncResource


class AsyncBoard(AsyncResource):
    """Ended runs by taskset and sandbox, the best mean first."""

    async def retrieve(self, *, workspace: str | None = None) -> Leaderboard:
        """The leaderboard as it is now."""
        return await self._read(Leaderboard, self._at(workspace, "leaderboard"))

    async def rebuild(self, *, workspace: str | None = None) -> tuple[int, dict[str, str]]:
        """Make it afresh from the bundles: how many runs were written, and run id -> why of those that were not."""
        answer = await self._http.call("POST", self._at(workspace, "leaderboard:rebuild"))
        done = json.loads(answer.content)
        return done["written"], done["failed"]


class Board(Blocking):
    """Ended runs by taskset and sandbox, the best mean first."""

    retrieve = blocking(AsyncBoard.retrieve)
    rebuild = blocking(AsyncBoard.rebuild)
