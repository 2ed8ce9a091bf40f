"""Runs by their idempotency keys (`KeyedRuns`)."""

from sqlalchemy import select

from harbor_assets.catalog.database import Database
from harbor_assets.catalog.schema import IDEMPOTENCY
from harbor_assets.engine.benchmark_ports import Keyed


class SqlKeys:
    """Keys in a database. They are written with their runs, by `SqlRuns`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def runs_by_key(self, workspace: str, owner: str, prefix: str) -> list[Keyed]:
        """See `KeyedRuns`."""
        query = select(IDEMPOTENCY.c.key, IDEMPOTENCY.c.run_id).where(
            IDEMPOTENCY.c.workspace == workspace,
            IDEMPOTENCY.c.owner == owner,
            IDEMPOTENCY.c.key.startswith(prefix, autoescape=True),
        )
        with self._database.read() as connection:
            found = [Keyed(row.key, row.run_id) for row in connection.execute(query)]
        return sorted(each for each in found if each.key.startswith(prefix))  # LIKE of SQLite ignores case

    def key_of(self, run_id: str) -> str | None:
        """See `KeyedRuns`."""
        query = select(IDEMPOTENCY.c.key).where(IDEMPOTENCY.c.run_id == run_id).order_by(IDEMPOTENCY.c.key)
        with self._database.read() as connection:
            return connection.scalars(query).first()
