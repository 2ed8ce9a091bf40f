"""Listing a trial's artifacts as they are on disk, before they go to a store of plain objects."""

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from harbor_assets.domain.kept import ENTRIES_MAX, KEPT, Kept, KeptFile, is_manifest, nothing_collected
from harbor_assets.domain.text import visible

log = logging.getLogger(__name__)

LEFT_OUT_MAX = 20  # named; more say no more


def write_kept(folder: Path) -> None:
    """Write `kept.json` into a trial's folder if artifacts were collected."""
    try:
        kept = survey(folder)
        if kept is not None:
            (folder / KEPT).write_text(kept.model_dump_json(), encoding="utf-8")
    except OSError as error:  # then they cannot be verified again, which is said when somebody wants to
        log.warning("the artifacts of %s could not be listed: %s", folder.name, error)


def survey(folder: Path) -> Kept | None:
    """What is below the artifact folders; None if that is nothing but Harbor's own lists. Links are not followed.
    Raises `OSError`."""
    files: dict[str, KeptFile] = {}
    folders: dict[str, int] = {}
    links: dict[str, str] = {}
    left_out: list[str] = []
    for number, path in enumerate(_below(folder)):
        name = path.relative_to(folder).as_posix()
        if number >= ENTRIES_MAX:
            left_out.append(f"more than {ENTRIES_MAX} files and folders")
            break
        mode = path.lstat().st_mode
        if not _is_text(name):
            left_out.append(f"{visible(name)}: its name is not UTF-8")
        elif stat.S_ISREG(mode):
            files[name] = KeptFile(mode=stat.S_IMODE(mode), size=path.lstat().st_size)
        elif stat.S_ISDIR(mode):
            folders[name] = stat.S_IMODE(mode)
        elif stat.S_ISLNK(mode) and _is_text(target := str(path.readlink())):
            links[name] = target
        else:
            left_out.append(f"{visible(name)}: neither a file nor a folder nor a link")
    plain = nothing_collected(files).folders
    if not links and not left_out and all(map(is_manifest, files)) and folders.keys() <= plain.keys():
        return None
    return Kept(files=files, folders=folders, links=links, left_out=tuple(left_out[:LEFT_OUT_MAX]))


def _below(folder: Path) -> Iterator[Path]:
    steps = folder / "steps"
    places = [folder, *(sorted(steps.iterdir()) if steps.is_dir() and not steps.is_symlink() else ())]
    for place in places:
        for parent, names, files in os.walk(place / "artifacts"):
            yield from (Path(parent, name) for name in sorted([*names, *files]))


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
