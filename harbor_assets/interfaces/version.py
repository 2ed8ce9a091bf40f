"""The installed version, read from the distribution's own metadata: it stands in pyproject.toml and nowhere else."""

from functools import cache


@cache
def version(distribution: str = "harbor-assets") -> str:
    """The installed version of a distribution; "unknown" if it is not installed."""
    from importlib import metadata  # a tenth of the start-up time of `--help`, which needs none

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"
