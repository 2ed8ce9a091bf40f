"""The Dagster instance of a home: where it lies and how it is configured."""

import hashlib
import os
from importlib.resources import files

from harbor_assets.settings import Settings

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
