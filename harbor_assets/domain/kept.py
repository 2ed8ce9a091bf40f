"""What of a trial's artifacts a store of plain objects would lose: modes, empty folders, links. Written beside them, so
that they can be given to a verifier again exactly as they were.
"""

from collections.abc import Iterable
from typing import Annotated, Final, Literal

from pydantic import Field

from harbor_assets.domain.outcomes import Frozen

KEPT: Final = "kept.json"  # in the trial's folder
ENTRIES_MAX: Final = 100_000
_MANIFEST: Final = "artifacts/manifest.json"  # Harbor's, in the folder of a trial or of a step

Mode = Annotated[int, Field(ge=0, le=0o7777)]


class KeptFile(Frozen):
    """A plain file: its permission bits, and its size in bytes."""

    mode: Mode
    size: int = Field(ge=0)


class Kept(Frozen):
    """What stands below the artifact folders of a trial; paths are relative to the trial's folder. `left_out`: what is
    there and cannot be kept, the first of it."""

    version: Literal[1] = 1
    files: dict[str, KeptFile] = {}
    folders: dict[str, Mode] = {}
    links: dict[str, str] = {}
    left_out: tuple[str, ...] = ()


def is_artifact(path: str) -> bool:
    """Whether a path of a trial's folder belongs to what was collected for a verifier."""
    return path.startswith("artifacts/") or _of_step(path) is not None


def _of_step(path: str) -> str | None:
    parts = path.split("/", 3)
    return parts[3] if len(parts) == 4 and parts[0] == "steps" and parts[2] == "artifacts" else None


def is_manifest(path: str) -> bool:
    """Whether it is Harbor's own list of the artifacts of a trial or step."""
    return path == _MANIFEST or _of_step(path) == "manifest.json"


def nothing_collected(paths: Iterable[str]) -> Kept:
    """What stands below the artifact folders where there is nothing but Harbor's lists, of which `paths` are some: the
    folder that each trial and step has for artifacts without a name."""
    places = [path.removesuffix("manifest.json") for path in paths if is_manifest(path)]
    return Kept(folders={f"{place}{name}": 0o755 for place in places for name in ("logs", "logs/artifacts")})


def lost(kept: Kept | None, stored: Iterable[tuple[str, int]]) -> str | None:
    """Why the artifacts in the store are not what the trial left, or None. `stored`: (path, bytes) of its folder."""
    there = {path: size for path, size in stored if is_artifact(path)}
    if kept is None:
        if all(is_manifest(path) for path in there):
            return None
        return "its artifacts were stored by a version that did not keep their modes and links"
    for first in kept.left_out:
        more = f" (and {len(kept.left_out) - 1} more)" if len(kept.left_out) > 1 else ""
        return f"what it left cannot be kept as it was: {first}{more}; leave it out with `exclude`"
    if strange := sorted(there.keys() - kept.files.keys()):
        return f"the store holds artifacts that it did not leave: {strange[0]}"
    gone: list[str] = [path for path, file in kept.files.items() if there.get(path) != file.size]
    if gone:
        return f"{len(gone)} of {len(kept.files)} files of its artifacts are not in the store as they were: {gone[0]}"
    return None
