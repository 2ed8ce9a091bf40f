"""Files into a sandbox and out of it, as tar. What comes out was written by a task, the archive itself included: the
`tar` that made it is the task's.
"""

import contextlib
import os
import tarfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import BinaryIO

MAX_MEMBERS = 200_000  # of one archive: a node_modules has some 50,000
CHUNK = 1 << 20  # bytes written at once
_BITS = 0o777  # set-user-id and the like stay inside


@dataclass(slots=True)
class Unpacked:
    """What came out of an archive: how many files and bytes, and the members that were left out, with the reason."""

    files: int = 0
    size: int = 0
    refused: list[str] = field(default_factory=list)


class Unsafe(Exception):
    """The archive as a whole is not what a folder of that size makes; the message says why."""


def pack_folder(source: Path, tar: BinaryIO) -> None:
    """Write what is in a folder, links as links. The folder's own mode is not in it, so the target keeps its own."""
    with tarfile.open(fileobj=tar, mode="w|", bufsize=CHUNK) as archive:
        for child in sorted(source.iterdir()):
            archive.add(child, arcname=child.name)


def pack_file(source: Path, name: str, tar: BinaryIO) -> None:
    """Write one file, which may be a link to it, under another name."""
    with tarfile.open(fileobj=tar, mode="w|", bufsize=CHUNK, dereference=True) as archive:
        archive.add(source, arcname=name, recursive=False)


def unpack(tar: BinaryIO, target: Path, *, limit: int) -> Unpacked:
    """Unpack into a folder of ours, overwriting files that are there. `limit` bounds the bytes of all files.

    Only files, folders and links that stay inside come out; others are named in the result. No member is written
    through a link. Raises Unsafe; tarfile.TarError if the archive is damaged or cut.
    """
    done = Unpacked()
    with tarfile.open(fileobj=tar, mode="r|") as archive:
        target.mkdir(parents=True, exist_ok=True)
        for number, member in enumerate(archive):
            if number >= MAX_MEMBERS:
                raise Unsafe(f"more than {MAX_MEMBERS} files")
            done.size += member.size if member.isreg() else 0
            if done.size > limit:
                raise Unsafe(f"more than {limit >> 20} MB of files")
            reason = _reason_against(member, target)
            if reason is None:
                try:
                    _write(archive, member, target)
                except (FileExistsError, NotADirectoryError, IsADirectoryError) as e:
                    raise Unsafe(f"{member.name[:200]} is a folder and a file") from e
                done.files += 1
            elif reason:
                done.refused.append(f"{member.name[:200]}: {reason}")
    return done


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part for part in PurePosixPath(name).parts if part != ".")


def _reason_against(member: tarfile.TarInfo, target: Path) -> str | None:
    """Why a member must not be written; "" for what needs no word (the folder itself); None if it may be."""
    parts = _parts(member.name)
    if not parts:
        return ""
    if member.name.startswith("/") or ".." in parts or "\0" in member.name:
        return "its name leads outside"
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        return "neither a file nor a folder nor a link"
    if _through_a_link(target, parts[:-1]):
        return "its folder is a link"
    if member.issym() and not _stays(parts, member.linkname):
        return "a link that may lead outside"
    if member.islnk():
        goal = _parts(member.linkname)
        if not goal or ".." in goal or member.linkname.startswith("/") or _through_a_link(target, goal):
            return "a hard link that may lead outside"
    return None


def _stays(parts: tuple[str, ...], link: str) -> bool:
    """Whether a symbolic link stays inside whatever other links there are: up first, by no more than its depth, then
    down. Every link it may meet on the way down stays inside too."""
    steps = _parts(link)
    up = 0
    while up < len(steps) and steps[up] == "..":
        up += 1
    return bool(link) and not link.startswith("/") and up < len(parts) and ".." not in steps[up:] and "\0" not in link


def _through_a_link(target: Path, parts: tuple[str, ...]) -> bool:
    path = target
    for part in parts:
        path = path / part
        if path.is_symlink():
            return True
    return False


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    path = target.joinpath(*_parts(member.name))
    path.parent.mkdir(parents=True, exist_ok=True)
    if member.isdir():
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            path.unlink()
        path.mkdir(exist_ok=True)
        path.chmod(member.mode & _BITS | 0o700)  # the worker must be able to read and to remove it
        return
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    if member.issym():
        path.symlink_to(member.linkname)
    elif member.islnk():
        goal = target.joinpath(*_parts(member.linkname))
        if goal.is_file():
            os.link(goal, path)
    else:
        content = archive.extractfile(member)
        with path.open("xb") as out:
            while content is not None and (chunk := content.read(CHUNK)):
                out.write(chunk)
        path.chmod(member.mode & _BITS | 0o600)
        with contextlib.suppress(OSError, OverflowError, ValueError):
            os.utime(path, (member.mtime, member.mtime))
