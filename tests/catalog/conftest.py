from collections.abc import Iterator
from pathlib import Path

import pytest

from harbor_assets.catalog.store import Catalog
from tests.databases import DATABASES, fresh
from tests.fakes.catalog import MemoryCatalog


@pytest.fixture
def postgres_url(tmp_path: Path) -> Iterator[str]:
    """The URL of a database of its own on the server that the environment names."""
    with fresh("postgres", tmp_path) as url:
        yield url


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where a fresh catalog may be made, on every kind of database."""
    with fresh(request.param, tmp_path) as url:
        yield url


@pytest.fixture(params=["fake", *DATABASES])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalog | MemoryCatalog]:
    """Every kind of catalog: whatever a test says of one must hold for all."""
    if request.param == "fake":
        yield MemoryCatalog()
        return
    with fresh(request.param, tmp_path) as url, Catalog.open(url) as opened:
        yield opened
