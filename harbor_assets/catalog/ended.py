"""Ended runs by time (`EndedRuns`)."""

from datetime import datetime

from sqlalchemy import select

from harbor_assets.catalog.database import Database
from harbor_assets.catalog.runs import ACTIVE
from harbor_assets.catalog.schema import RUNS
from harbor_assets.engine.notice_ports import EndedRun


class SqlEnded:
    """Ended runs in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def ended_since(self, at: datetime, *, limit: int) -> list[EndedRun]:
        """See `EndedRuns`."""
        query = (
            select(RUNS.c.ended_at, RUNS.c.id)
            .where(RUNS.c.ended_at >= at, RUNS.c.phase.not_in(ACTIVE))
            .order_by(RUNS.c.ended_at, RUNS.c.id)
            .limit(limit)
        )
        with self._database.read() as connection:
            return [EndedRun(row.ended_at, row.id) for row in connection.execute(query)]
