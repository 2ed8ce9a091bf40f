from collections.abc import Iterator
from pathlib import Path

import pytest

from harbor_assets.interfaces.api.app import create_app
from harbor_assets.interfaces.sdk.connection import Service
from tests.interfaces.backends import World, world
from tests.interfaces.served import served


@pytest.fixture
def w(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


@pytest.fixture(params=["in process", "served"])
def service(w: World, request: pytest.FixtureRequest) -> Iterator[Service]:
    """The same world twice: in this process, and behind a real port."""
    if request.param == "in process":
        yield Service("default", backend=w.backend)
    else:
        with served(create_app(w.backend)) as url:
            yield Service("default", base_url=url)
