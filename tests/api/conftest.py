from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.databases import DATABASES, fresh
from tests.interfaces.backends import World, world


@pytest.fixture(params=DATABASES)
def w(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A backend on every kind of database."""
    with fresh(request.param, tmp_path) as url, world(tmp_path, url) as made:
        yield made
