"""Ids of runs, as far as a client looks at them."""

import re

from harbor_assets.domain.errors import NotFound

_SEGMENT = re.compile(r"(?!\.+$)[\w\-.]+")  # what the service's routes take for a name


def check_run_id(run_id: str) -> str:
    """`run_id` if it can be asked for. Raises `NotFound`: a path would lead elsewhere with another."""
    if not _SEGMENT.fullmatch(run_id):
        shown = run_id[:80]
        raise NotFound(f"'{shown}' is no run's id (run- and 16 hex digits); `harbor-assets runs list` shows all")
    return run_id
