"""The leaderboard of a workspace."""

import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from harbor_assets.domain.asking import ROWS, SqlAnswer, SqlQuestion
from harbor_assets.domain.errors import NO_SPACE, Problem, Refused, StorageFull
from harbor_assets.domain.standings import BY_RUN, MIN_COVERAGE, Leaderboard
from harbor_assets.interfaces.sdk.blocking import Blocking, blocking
from harbor_assets.interfaces.sdk.http import segment
from harbor_assets.interfaces.sdk.resource import AsyncResource


def _question(query: str, limit: int) -> SqlQuestion:
    """Raises `Refused` for what cannot be asked."""
    if not query.strip():
        raise Refused("The query is empty; write one SELECT, as 'SELECT * FROM trials'")
    try:
        return SqlQuestion(query=query, limit=limit)
    except ValidationError as error:
        problems = [Problem(str(one["loc"][0]), one["msg"]) for one in error.errors(include_url=False)]
        raise Refused("The question cannot be asked", problems) from None


class AsyncBoard(AsyncResource):
    """Ended runs by taskset and sandbox, the best mean first."""

    async def retrieve(
        self,
        *,
        experiment: str | None = None,
        taskset: str | None = None,
        by: Sequence[str] = BY_RUN,
        min_coverage: float = MIN_COVERAGE,
        workspace: str | None = None,
    ) -> Leaderboard:
        """The leaderboard as it is now, `boards` with what is ranked together.

        `by`: what a line of a board is made by, of run, agent, agent_version, model, experiment, owner. `min_coverage`:
        the share of its trials that a line must have scored to be ranked.
        """
        asked: dict[str, object] = {"experiment": experiment, "taskset": taskset}
        if tuple(by) != BY_RUN:
            asked["by"] = ",".join(by)
        if min_coverage != MIN_COVERAGE:
            asked["min_coverage"] = min_coverage
        return await self._read(Leaderboard, self._at(workspace, "leaderboard"), **asked)

    async def rebuild(self, *, workspace: str | None = None) -> tuple[int, dict[str, str]]:
        """Make it afresh from the bundles: how many runs were written, and run id -> why of those that were not."""
        answer = await self._http.call("POST", self._at(workspace, "leaderboard:rebuild"))
        done = json.loads(answer.content)
        return done["written"], done["failed"]

    async def sql(self, query: str, *, limit: int = ROWS, workspace: str | None = None) -> SqlAnswer:
        """What one SELECT gives over the results of the workspace, in DuckDB's SQL (docs/store.md); at most `limit`
        rows. Raises `Refused` for anything else, with the place of an error."""
        return await self._send(SqlAnswer, "POST", self._at(workspace, "leaderboard:sql"), _question(query, limit))

    async def export(self, table: str, target: Path, *, workspace: str | None = None) -> int:
        """Write the workspace's rows of a table to a new Parquet file; returns its bytes. Raises `NotFound`, `Refused`
        if the file cannot be written or is there."""
        part = target.with_name(f".{target.name}-{secrets.token_hex(4)}")
        if os.path.lexists(target):
            raise Refused(f"{target} exists; move it away, or choose another folder")
        try:
            async with self._http.stream(self._at(workspace, "leaderboard", "tables", segment(table))) as pieces:
                with part.open("xb") as file:
                    async for piece in pieces:
                        file.write(piece)
            part.rename(target)
        except OSError as error:
            if error.errno in NO_SPACE:
                raise StorageFull(f"There is no space left for {target}; free some, then repeat") from error
            raise Refused(f"{target} cannot be written: {error.strerror}; choose another folder") from error
        finally:
            part.unlink(missing_ok=True)
        return target.stat().st_size


class Board(Blocking):
    """Ended runs by taskset and sandbox, the best mean first."""

    retrieve = blocking(AsyncBoard.retrieve)
    rebuild = blocking(AsyncBoard.rebuild)
    sql = blocking(AsyncBoard.sql)
    export = blocking(AsyncBoard.export)
