"""Tasks, tasksets, runs and their outcomes in SQL: SQLite on a laptop, Postgres on a deployment.

This room alone imports SQLAlchemy, and Alembic only when an older catalog must be brought up to date.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harbor_assets.catalog.store import Catalog


def open_catalog(url: str) -> "Catalog":
    """The catalog at `url` (`sqlite:///<path>`, the rest is the path as it stands, or `postgresql+psycopg://...`).

    Connects at first use. Raises `Refused` for another kind of URL; first use raises `HomeUnusable` if there is no
    catalog of a version known here and none can be made, `ServiceUnavailable` if the database does not answer.
    """
    from harbor_assets.catalog.store import Catalog  # SQLAlchemy costs 0.25 s: only for commands that need it

    return Catalog.open(url)
