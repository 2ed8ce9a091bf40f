"""Faults that take minutes, or that everything else on the cluster feels."""

from collections.abc import Iterator

import pytest

from tests.cluster.harness.deployment import Deployment, deployment


@pytest.fixture(scope="session")
def deployed() -> Iterator[Deployment]:
    with deployment() as it:
        yield it
