"""The kinds of database that tests of the catalog run on: SQLite, and Postgres where `HARBOR_ASSETS_TEST_POSTGRES`
names a server (`.ci/postgres COMMAND` starts one)."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

POSTGRES = os.environ.get("HARBOR_ASSETS_TEST_POSTGRES")
DATABASES = ["sqlite", *(["postgres"] if POSTGRES else [])]


@contextmanager
def fresh(kind: str, folder: Path) -> Iterator[str]:
    """The URL of a database of that kind that holds nothing yet; gone afterwards."""
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'catalog.db'}"
        return
    from sqlalchemy import create_engine, make_url

    assert POSTGRES is not None
    server, name = make_url(POSTGRES).set(drivername="postgresql+psycopg"), f"harbor_test_{secrets.token_hex(6)}"
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    yield server.set(database=name).render_as_string(hide_password=False)
    with engine.connect() as connection:
        connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")
    engine.dispose()
