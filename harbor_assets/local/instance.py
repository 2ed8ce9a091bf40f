"""The Dagster instance of a home: where it lies and how it is configured."""

import hashlib
import os
from importlib.resources import files
from typing import TYPE_CHECKING

from harbor_assets.local import locks
from harbor_assets.settings import Settings

if TYPE_CHECKING:
    from dagster import DagsterInstance

CONFIGURATION = "dagster.yaml"
_MARK = ".written"  # the hash of what we wrote: a file that somebody edited is left alone


def configuration() -> bytes:
    """The `dagster.yaml` that ships with this version."""
    return files("harbor_assets.local").joinpath(CONFIGURATION).read_bytes()


def prepare_instance(settings: Settings) -> None:
    """Write the configuration where it is absent or as an earlier version wrote it, and point Dagster there."""
    folder = settings.dagster
    folder.mkdir(parents=True, exist_ok=True)
    ours, path, mark = configuration(), folder / CONFIGURATION, folder / f".{CONFIGURATION}{_MARK}"
    there = path.read_bytes() if path.exists() else None
    written = mark.read_text(encoding="ascii").strip() if mark.exists() else None
    if there is None or (there != ours and hashlib.sha256(there).hexdigest() == written):
        for target, data in ((path, ours), (mark, hashlib.sha256(ours).hexdigest().encode())):
            beside = target.with_name(f"{target.name}.{os.getpid()}")
            beside.write_bytes(data)
            beside.replace(target)
    os.environ["DAGSTER_HOME"] = str(folder)
    os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "1")


def open_instance(settings: Settings) -> "DagsterInstance":
    """The home's instance, its databases made. Before several programs of Dagster start, one opens it so.

    Making the databases is no transaction: two programs that did it at the same moment broke a home for good.
    """
    prepare_instance(settings)
    from dagster import DagsterInstance

    with locks.lock(settings.locks, "instance"):
        opened = DagsterInstance.get()
        opened.get_runs(limit=1)
        opened.all_asset_keys()
        opened.all_instigator_state()
    return opened
