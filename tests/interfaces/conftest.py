from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interfaces.backends import World, world


@pytest.fixture
def w(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made
