"""Checks of this machine: whether suites can be run on it without a cluster."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from harbor_assets.domain.errors import HarborAssetsError
from harbor_assets.interfaces.doctor.findings import Finding, fail, guarded, ok, warn
from harbor_assets.settings import Settings

FEW_BYTES = 2 << 30  # a home with a few hundred trials, and the layers of a suite's images


def look(settings: Settings) -> Iterator[Finding]:
    """Every check in turn. The home is not made if it is not there."""
    for warning in settings.warnings():
        yield warn("settings", warning)
    yield from guarded("home", lambda: _home(settings))
    yield from guarded("sandbox process", lambda: _process(settings))
    yield from _engines()


def _home(settings: Settings) -> Iterator[Finding]:
    home = settings.home
    free = shutil.disk_usage(_nearest(home)).free
    if free < FEW_BYTES:
        yield warn(
            "disk", f"{free / 2**30:.1f} GB are free for {home}", "Free some, or set HARBOR_ASSETS_HOME elsewhere"
        )
    else:
        yield ok("disk", f"{free / 2**30:.0f} GB are free for {home}")
    if not home.exists():
        yield ok("home", f"{home} is made by the first run")
        return
    if not (home / "catalog.db").exists() and settings.catalog_url.startswith("sqlite"):
        yield ok("home", f"{home} holds no run yet")
        return
    from harbor_assets.wiring import wire

    try:
        runs = wire(settings).catalog.list_runs(page_size=1).total
    except HarborAssetsError as error:
        yield fail("home", str(error))
    else:
        yield ok("home", f"{home} holds {runs} runs")


def _process(settings: Settings) -> Iterator[Finding]:
    from harbor_assets.sandboxes.process.host import check

    found = check(_nearest(settings.home))
    if not found.ok:
        yield warn("sandbox process", found.reason or "does not work here", found.next_step or "")
    elif found.notes:
        yield warn("sandbox process", " ".join(found.notes), "As root there is all of it")
    else:
        yield ok("sandbox process", "works, with networks and limits of its own")


def _engines() -> Iterator[Finding]:
    from harbor_assets.sandboxes.engines.cli import KINDS, Engine

    found = {kind: Engine(kind) for kind in KINDS}
    for kind, engine in found.items():
        if engine.installed:
            absence = engine.absence()
            yield warn(f"sandbox {kind}", absence) if absence else ok(f"sandbox {kind}", "answers")
    if not any(engine.installed for engine in found.values()):
        yield warn(
            "sandbox docker, podman",
            "neither is installed: suites run in the sandbox process, which is for checking them",
            "Install docker or podman to run suites from their own images",
        )


def _nearest(folder: Path) -> Path:
    """The folder, or the one above it in which it would be made."""
    return next(each for each in (folder, *folder.parents) if each.exists())
