"""Runs by what their plans name (`MentionCatalog`)."""

from sqlalchemy import func, select

from harbor_assets.catalog.database import Database
from harbor_assets.catalog.runs import read_run, with_plan
from harbor_assets.catalog.schema import PLANS, RUNS
from harbor_assets.domain.errors import Broken
from harbor_assets.domain.runs import Run
from harbor_assets.engine.ports import Page


class SqlMentions:
    """Plans in a database, read as text."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def runs_mentioning(self, workspace: str, text: str, *, limit: int) -> Page[Run]:
        """See `MentionCatalog`."""
        runs: list[Run] = []
        unreadable: list[str] = []
        with self._database.read() as connection:
            position = func.instr if connection.dialect.name == "sqlite" else func.strpos  # LIKE of SQLite ignores case
            conditions = [RUNS.c.workspace == workspace, position(PLANS.c.plan, text) > 0]
            query = with_plan().where(*conditions).order_by(RUNS.c.created_at.desc(), RUNS.c.id).limit(limit)
            rows = connection.execute(query).all()
            total = len(rows)
            if total == limit:
                counted = select(func.count()).select_from(RUNS.join(PLANS, PLANS.c.run_id == RUNS.c.id))
                total = connection.scalar(counted.where(*conditions)) or 0
        for row in rows:
            try:
                runs.append(read_run(row))
            except Broken:
                unreadable.append(row.id)
        return Page(runs, 1, limit, total, tuple(unreadable))
