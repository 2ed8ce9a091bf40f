"""Which folders of the machine a sandbox shows, and how they are put together.

One overlay for `/` and one per shown top folder: a lower layer that is an ancestor of an upper one is refused. Where
something is mounted below a shown folder, an ordinary user may not use that folder as a lower layer (its mounts are
locked: what they cover must stay covered). It is split then: an overlay of our own for the folder itself, and one for
each of its subfolders, except those that are mount points.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harbor_assets.sandboxes.process.rights import privileged

SHOWN = ("usr", "etc", "var", "opt", "bin", "sbin", "lib", "lib32", "lib64", "libx32")


@dataclass(frozen=True, slots=True)
class Split:
    """`folders` are split, parents first; `bare` are those of their subfolders that are not shown. Relative to `/`."""

    folders: tuple[str, ...] = ()
    bare: frozenset[str] = frozenset()


def shown_folders() -> tuple[str, ...]:
    """Those of SHOWN that are folders here; links among them (`/bin -> usr/bin`) are links inside as well."""
    return tuple(name for name in SHOWN if not Path("/", name).is_symlink() and Path("/", name).is_dir())


def mounts_below() -> tuple[str, ...]:
    """Mount points below shown folders, relative to `/`, where they matter: for an ordinary user."""
    if privileged():
        return ()
    found = set()
    for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
        point = line.split()[4].encode().decode("unicode_escape")[1:]  # proc_pid_mountinfo(5): octal escapes
        top, _, rest = point.partition("/")
        if rest and top in SHOWN:
            found.add(point)
    return tuple(sorted(found))


def split_for(mounts: Iterable[str], hidden: Iterable[str]) -> Split:
    """How to split the shown folders around mount points; what is hidden needs no splitting."""
    hidden = frozenset(hidden)
    folders: set[str] = set()
    bare: set[str] = set(hidden)
    for point in mounts:
        parts = point.split("/")
        above = ["/".join(parts[:count]) for count in range(1, len(parts))]
        if not hidden.intersection(above):
            folders.update(above)
            bare.add(point)
    return Split(tuple(sorted(folders)), frozenset(bare))


def subfolders(name: str) -> list[str]:
    """The folders in a folder of the machine, links left out, relative to `/`."""
    try:
        with os.scandir(f"/{name}") as entries:
            return sorted(f"{name}/{entry.name}" for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def view(folder: Path, layers: Sequence[str], split: Split) -> list[tuple[str, list[str]]]:
    """(place below `/`, its lower folders, newest first), parents first; `/` itself is "".

    `layers` are newest first, end with the mask, and are relative to `folder`, as are the lower folders made of them.
    """

    def lowers(name: str) -> list[str]:
        return [f"{layer}/{name}" for layer in layers if (folder / layer / name).is_dir()]

    found = [("", lowers("ROOT"))]
    todo = list(reversed(shown_folders()))
    while todo:
        name = todo.pop()
        if name in split.folders:
            found.append((name, lowers(name)))
            todo += [child for child in reversed(subfolders(name)) if child not in split.bare]
        else:
            found.append((name, [*lowers(name), f"/{name}"]))
    return found


def merge_split(folder: Path, places: Sequence[str]) -> None:
    """Move what was written below split folders to where it belongs in `rw/upper`, so that it can become a layer."""
    for number, place in enumerate(places):
        written = folder / "rw" / "split" / str(number) / "upper"
        if "/" in place and written.is_dir() and any(written.iterdir()):
            target = folder / "rw" / "upper" / place
            for parent in reversed(target.relative_to(folder / "rw" / "upper").parents[:-1]):
                path = folder / "rw" / "upper" / parent
                if not path.exists():
                    path.mkdir()
                    path.chmod(Path("/", parent).stat().st_mode & 0o7777)
            written.rename(target)
