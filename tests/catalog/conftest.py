import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from harbor_assets.catalog.store import Catalog
from tests.fakes.catalog import MemoryCatalog

POSTGRES = os.environ.get("HARBOR_ASSETS_TEST_POSTGRES")
DATABASES = ["sqlite", *(["postgres"] if POSTGRES else [])]  # Postgres where HARBOR_ASSETS_TEST_POSTGRES names a server


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """The URL of a database of its own on the server that the environment names."""
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


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a fresh catalog may be made, on every kind of database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/catalog.db"
    return request.getfixturevalue("postgres_url")


@pytest.fixture(params=["fake", *DATABASES])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalog | MemoryCatalog]:
    """Every kind of catalog: whatever a test says of one must hold for all."""
    if request.param == "fake":
        yield MemoryCatalog()
        return
    url = f"sqlite:///{tmp_path}/c.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    with Catalog.open(url) as opened:
        yield opened
