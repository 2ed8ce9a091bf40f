from collections.abc import Iterator

import pytest

from tests.cluster.harness.deployment import Deployment, deployment


@pytest.fixture(scope="session")
def deployed() -> Iterator[Deployment]:
    """One installation for the whole session: it takes a minute or two."""
    with deployment() as it:
        yield it
