"""The home folder: made if it is missing, and refused where it is somebody else's."""

import os
from collections.abc import Iterable
from pathlib import Path

from harbor_assets.domain.errors import NO_SPACE, HomeUnusable, StorageFull
from harbor_assets.settings.variables import PREFIX

LAYOUT = 1  # the arrangement of the home folder; raised when an older program could not read it any more
_LAYOUT_FILE = "layout-version"
# What may lie in a home before its first command: what a service stored there, and what a new disk holds.
_OWN = frozenset({"artifacts", "locks", "logs", "cache", "work", "sandboxes", "dagster", "benchmarks", "lost+found"})
_OWN_PREFIXES = ("catalog.db", "leaderboard.duckdb", f".{_LAYOUT_FILE}-")
_RULE = f"choose another with {PREFIX}HOME"
_NAMED = 3  # of the foreign files in a message: enough to recognise the folder by


def prepare(home: Path, rooms: Iterable[Path]) -> None:
    """Make the home folder and its rooms if they are missing.

    Raises `HomeUnusable` if it is no folder, cannot be read or written, holds somebody else's files, or belongs to a
    newer version; `StorageFull` if there is no space to make it.
    """
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)  # trial folders may hold what agents read
        if not os.access(home, os.R_OK | os.W_OK | os.X_OK):
            raise HomeUnusable(f"The home folder {home} cannot be read and written by this user; {_RULE}.")
        _check_layout(home)
        for room in rooms:
            room.mkdir(exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise HomeUnusable(f"The home {home} needs {error.filename} to be a folder, it is not; {_RULE}.") from error
    except OSError as error:
        if error.errno in NO_SPACE:
            raise StorageFull(f"There is no space left for the home folder {home}; free some, or {_RULE}.") from error
        raise HomeUnusable(f"The home folder {home} cannot be used: {error.strerror}; {_RULE}.") from error


def _check_layout(home: Path) -> None:
    path = home / _LAYOUT_FILE
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        _refuse_foreign(home)
        # Beside, then renamed: a second command at the same moment reads all of it or nothing.
        beside = home / f".{_LAYOUT_FILE}-{os.getpid()}"
        beside.write_text(f"{LAYOUT}\n", encoding="ascii")
        beside.replace(path)
        return
    if text != str(LAYOUT):
        raise HomeUnusable(
            f"The home folder {home} has layout {text[:20]!r}, this version of harbor-assets reads {LAYOUT}; "
            f"upgrade harbor-assets, or {_RULE}."
        )


def _refuse_foreign(home: Path) -> None:
    """A folder in use for something else is not made into a home: nobody would find out which files are whose."""
    present = sorted(entry.name for entry in home.iterdir())
    if _LAYOUT_FILE in present:  # another command was faster
        return
    foreign = [name for name in present if name not in _OWN and not name.startswith(_OWN_PREFIXES)]
    if foreign:
        more = ", …" if len(foreign) > _NAMED else ""
        raise HomeUnusable(
            f"The folder {home} holds other files ({', '.join(foreign[:_NAMED])}{more}) and was never a home of "
            f"harbor-assets; give it an empty folder, or one that does not exist yet: {_RULE}."
        )
