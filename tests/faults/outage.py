"""A part of the cluster that is away for a while, by shell commands of whoever runs these tests.

    TEST_<PART>_DOWN=CMD TEST_<PART>_UP=CMD pytest tests/faults

CMD ends it without a word, and brings it back. The whole cluster is without it meanwhile: nothing else may be tested
there.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


def needs(part: str) -> pytest.MarkDecorator:
    """The mark of a test that takes this part away."""
    names = [f"TEST_{part.upper()}_{way}" for way in ("DOWN", "UP")]
    missing = [name for name in names if not os.environ.get(name)]
    return pytest.mark.skipif(bool(missing), reason=f"needs {' and '.join(names)}; see tests/faults/outage.py")


@contextmanager
def away(part: str) -> Iterator[None]:
    """It comes back whatever happens meanwhile."""
    down, up = (os.environ[f"TEST_{part.upper()}_{way}"] for way in ("DOWN", "UP"))
    subprocess.run(down, shell=True, check=True)
    try:
        yield
    finally:
        subprocess.run(up, shell=True, check=True)
