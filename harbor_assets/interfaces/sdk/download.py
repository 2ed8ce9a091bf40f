"""Writing a bundle to a folder: all of it or nothing, and nothing outside the folder whatever the paths say."""

import errno
import os
import secrets
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from harbor_assets.domain.errors import Broken, Problem, Refused, StorageFull
from harbor_assets.domain.views import BundleFile
from harbor_assets.interfaces.sdk.http import Http

type Progress = Callable[[int, int], None]
"""Told (bytes written so far, bytes in all) after each piece."""

DIFFERENCES_SHOWN = 5


async def download_bundle(
    http: Http, url: Callable[[str], str], files: Sequence[BundleFile], target: Path, progress: Progress | None
) -> Path:
    """Fetch `files` into a folder beside `target`, then rename it to `target`, whose parent is made.

    Raises `Broken` for a path that leaves the bundle or a file that is not as long as promised, `Refused` if `target`
    holds something else already or cannot be written, `StorageFull`.
    """
    for file in files:
        if not safe_path(file.path):
            raise Broken(f"The bundle names a file outside itself: {file.path!r}; nothing was written")
    if os.path.lexists(target):
        if differing := differences(target, files):
            raise Refused(
                f"{target} exists and is not this bundle; move it away, or choose another folder with --output:",
                [Problem(path, why) for path, why in differing[:DIFFERENCES_SHOWN]],
            )
        return target
    beside: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.parent / f".{target.name}-{secrets.token_hex(4)}"
        beside.mkdir()
        await _fetch(http, url, files, beside, progress)
        beside.rename(target)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(f"There is no space left below {target.parent}; free some, then repeat") from error
        where = error.filename or target.parent
        raise Refused(f"{where} cannot be written: {error.strerror}; choose another folder with --output") from error
    finally:
        if beside is not None:
            shutil.rmtree(beside, ignore_errors=True)
        with suppress(OSError):
            target.parent.rmdir()  # made for nothing; refuses if there is anything in it
    return target


async def _fetch(
    http: Http, url: Callable[[str], str], files: Sequence[BundleFile], folder: Path, progress: Progress | None
) -> None:
    total, done = sum(file.size for file in files), 0

    async def fetch(path: str) -> int:
        size = 0
        async with http.stream(url(path)) as pieces:
            with (folder / path).open("wb") as out:
                async for piece in pieces:
                    out.write(piece)
                    size += len(piece)
                    if progress:
                        progress(done + size, total)
        return size

    for file in files:
        place = folder / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch(exist_ok=False)  # two files of one name would be one file less
        size = await http.repeated(partial(fetch, file.path))  # from its begin, if the connection broke off
        if size != file.size:
            raise Broken(f"{file.path} of the bundle has {size} bytes, {file.size} were promised; nothing was kept")
        done += size


def safe_path(path: str) -> bool:
    """Whether a bundle's path stays inside it: relative, POSIX, no empty, `.` or `..` segment, no NUL."""
    return "\0" not in path and all(part not in ("", ".", "..") for part in path.split("/"))


def differences(folder: Path, files: Sequence[BundleFile]) -> list[tuple[str, str]]:
    """(path, why) for each way in which `folder` is not a copy of `files`, by path and size. A link differs."""
    if folder.is_symlink() or not folder.is_dir():
        return [(".", "is not a folder")]
    found = {
        path.relative_to(folder).as_posix(): path.lstat().st_size if path.is_file() and not path.is_symlink() else None
        for path in folder.rglob("*")
        if path.is_symlink() or not path.is_dir()
    }
    wanted = {file.path: file.size for file in files}
    return [
        *((path, "is not there") for path in sorted(wanted.keys() - found.keys())),
        *((path, "is not part of the bundle") for path in sorted(found.keys() - wanted.keys())),
        *((path, "has another size") for path in sorted(wanted.keys() & found.keys()) if wanted[path] != found[path]),
    ]
