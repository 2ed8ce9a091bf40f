"""Suites that ship with harbor-assets, so that the first run needs nothing else."""

from importlib.resources import files
from pathlib import Path


def hello_world() -> Path:
    """The folder of the hello-world suite: one task, `harbor/hello-world`, that needs no network and no package."""
    return Path(str(files(__name__) / "hello-world-suite"))
