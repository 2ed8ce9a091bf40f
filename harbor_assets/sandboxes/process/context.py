"""The build context of a Dockerfile: what .dockerignore leaves of a folder, and what a COPY takes from it.

Nothing outside the folder is ever read: sources are resolved inside it, files are opened without following links, and
links found in copied folders travel as links.
"""

import hashlib
import os
import posixpath
import re
import stat
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import IO

from harbor_assets.sandboxes.process.dockerfile import MAX_BYTES as READ
from harbor_assets.sandboxes.process.dockerfile import DockerfileUnsupported, LayerBuildError
from harbor_assets.sandboxes.process.dockerignore import Ignore, compile_pattern
from harbor_assets.sandboxes.process.recipe import Copy

MAX_BYTES = 16 << 30  # the largest public suite has 1.2 GB in 36 tasks; this only stops a COPY of a whole disk
MAX_FILES = 500_000
TIME = 315_619_200  # 1980-01-02: content alone decides a layer, and zip files cannot hold anything older in any zone


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing to copy: `rel` is its path below the target (empty: the target itself). `digest` is the SHA-256 of a
    file's bytes, or a link's target. `path` is where the bytes are, or `data` are they."""

    rel: str
    kind: str  # file, folder or link
    mode: int
    digest: str
    size: int = 0
    path: Path | None = None
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Source:
    """One matched source. A folder's entries go below the target; a single file takes the target's name, or `name`
    where the target is a folder. `archive` is tar's flag for it if ADD unpacks it."""

    name: str
    folder: bool
    entries: tuple[Entry, ...]
    archive: str | None = None


@dataclass
class Context:
    """A folder as a build context. `root` must exist."""

    root: Path
    ignore: Ignore = field(default_factory=Ignore)

    @classmethod
    def open(cls, root: Path) -> "Context":
        """Take `Dockerfile.dockerignore` or else `.dockerignore` into account. Raises `DockerfileUnsupported`."""
        context = cls(root.resolve())
        for name in ("Dockerfile.dockerignore", ".dockerignore"):
            if (text := context.read(name)) is not None:
                context.ignore = Ignore.parse(text.decode("utf-8", errors="replace"))
                break
        return context

    def read(self, name: str) -> bytes | None:
        """The first `READ` + 1 bytes of a file of the context, or None if there is none.

        Raises `DockerfileUnsupported` if it is a link that leaves the context: its text would be quoted in errors.
        """
        if not (self.root / name).is_file():
            return None
        try:
            path = _inside(self.root, name)
        except ValueError as error:
            raise DockerfileUnsupported(f"{error} Put the file itself there.") from None
        with _open(path) as file:
            return file.read(READ + 1)

    def select(self, copy: Copy) -> tuple[Source, ...]:
        """What a COPY takes, in the order of its sources; nothing for a pattern that matches nothing.

        Raises `LayerBuildError` for a source that is missing or ignored, `DockerfileUnsupported` for one that leaves
        the context or is neither file, folder nor link.
        """
        found: list[Source] = []
        for source in copy.sources:
            names = self._matches(source) if re.search(r"[*?\[]", source) else [source]
            found += [self._source(copy, name) for name in names]
        for name, text in copy.contents:
            data = text.encode()
            mode = 0o644 if copy.mode is None else copy.mode
            entry = Entry("", "file", mode, hashlib.sha256(data).hexdigest(), len(data), data=data)
            found.append(Source(name, folder=False, entries=(entry,)))
        entries = [entry for source in found for entry in source.entries]
        if len(entries) > MAX_FILES or sum(entry.size for entry in entries) > MAX_BYTES:
            raise copy.at.refusal(f"it copies more than {MAX_FILES} files or {MAX_BYTES >> 30} GiB. Copy less.")
        return tuple(found)

    def _matches(self, pattern: str) -> list[str]:
        found = [""]
        for part in pattern.split("/"):
            test = compile_pattern(part.replace("**", "*"), pattern)
            found = [
                posixpath.join(folder, child.name)
                for folder in found
                if (self.root / folder).is_dir() and _real(self.root, folder)
                for child in sorted((self.root / folder).iterdir())
                if test.fullmatch(child.name)
            ]
        return [name for name in found if not self.ignore(name)]

    def _source(self, copy: Copy, name: str) -> Source:
        try:
            path = _inside(self.root, name)
        except FileNotFoundError:
            raise _missing(copy, name, "is not in the environment folder. Check its name.") from None
        except ValueError as error:
            raise copy.at.refusal(f"{error} Put the file itself there.") from None
        if name != "." and self.ignore(name) and not (path.is_dir() and self.ignore.has_exceptions):
            raise _missing(copy, name, "is left out by .dockerignore. Take it out of there.")
        if path.is_dir():
            return Source(posixpath.basename(name), folder=True, entries=tuple(self._walk(copy, path, name)))
        entry = _entry(copy, path, "")
        return Source(posixpath.basename(name), False, (entry,), archive_flag(path) if copy.unpack else None)

    def _walk(self, copy: Copy, top: Path, name: str) -> Iterator[Entry]:
        """What is below a folder, parents first. Folders kept only for an exception inside them come with it."""
        base = "" if name == "." else name
        pending: list[Entry] = []  # ignored folders above the current place, until something inside is wanted

        def walk(folder: Path, rel: str) -> Iterator[Entry]:
            with os.scandir(folder) as listing:
                children = sorted(listing, key=lambda child: child.name)
            for child in children:
                below = posixpath.join(rel, child.name)
                ignored = self.ignore(posixpath.join(base, below))
                is_folder = child.is_dir(follow_symlinks=False)
                if ignored and not (is_folder and self.ignore.has_exceptions):
                    continue
                entry = _entry(copy, Path(child.path), below)
                if not ignored:
                    yield from pending
                    pending.clear()
                    yield entry
                    if is_folder:
                        yield from walk(Path(child.path), below)
                else:
                    pending.append(entry)
                    yield from walk(Path(child.path), below)
                    if pending and pending[-1] is entry:
                        pending.pop()

        return walk(top, "")


def _real(root: Path, name: str) -> bool:
    try:
        _inside(root, name)
    except (ValueError, FileNotFoundError):
        return False
    return True


def _inside(root: Path, name: str) -> Path:
    """The file that `name` leads to, links followed. Raises `ValueError` if that is outside `root`."""
    path = (root / name).resolve(strict=True)
    if not path.is_relative_to(root):
        raise ValueError(f"'{name}' is a link that leaves the environment folder.")
    return path


def _missing(copy: Copy, name: str, why: str) -> LayerBuildError:
    return LayerBuildError(f"Dockerfile line {copy.at.line}, {copy.at.text}: '{name}' {why}")


def _entry(copy: Copy, path: Path, rel: str) -> Entry:
    if "\n" in rel:
        raise copy.at.refusal(f"{rel!r} has a line break in its name. Rename it.")
    status = path.lstat()
    mode = stat.S_IMODE(status.st_mode) if copy.mode is None else copy.mode
    if stat.S_ISLNK(status.st_mode):
        return Entry(rel, "link", 0o777, os.readlink(path))  # noqa: PTH115  its exact text
    if stat.S_ISDIR(status.st_mode):
        return Entry(rel, "folder", mode, "")
    if not stat.S_ISREG(status.st_mode):
        raise copy.at.refusal(f"'{rel or path.name}' is neither a file, a folder nor a link. Take it out.")
    with _open(path) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Entry(rel, "file", mode, digest, status.st_size, path)


def _open(path: Path) -> BufferedReader:
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")


def archive_flag(path: Path) -> str | None:
    """Tar's flag for a file that ADD unpacks (told by its first bytes, as Docker does), or None if it is none."""
    with _open(path) as file:
        head = file.read(512)
    for magic, flag in ((b"\x1f\x8b", "z"), (b"BZh", "j"), (b"\xfd7zXZ\0", "J"), (b"\x28\xb5\x2f\xfd", "-zstd")):
        if head.startswith(magic):
            return flag
    return "" if head[257:262] == b"ustar" else None


def write_tar(
    out: IO[bytes], folders: Iterable[tuple[str, int]], files: Iterable[tuple[str, Entry]], owner: tuple[int, int]
) -> None:
    """A tar for `tar -x -C /`: `folders` are (absolute path, mode), `files` (absolute path, entry). `owner` in numbers.

    Raises `OSError` if a file changed since it was selected.
    """
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path, mode in folders:
            tar.addfile(_info(path, tarfile.DIRTYPE, mode, owner))
        for path, entry in files:
            if entry.kind == "link":
                link = _info(path, tarfile.SYMTYPE, 0o777, owner)
                link.linkname = entry.digest
                tar.addfile(link)
                continue
            info = _info(path, tarfile.REGTYPE, entry.mode, owner)
            info.size = entry.size
            with _open(entry.path) if entry.path else BytesIO(entry.data) as file:
                tar.addfile(info, file)


def _info(path: str, kind: bytes, mode: int, owner: tuple[int, int]) -> tarfile.TarInfo:
    info = tarfile.TarInfo(path.lstrip("/"))
    info.type, info.mode, info.mtime = kind, mode, TIME
    info.uid, info.gid = owner
    return info


def owner_ids(spec: str, passwd: str, group: str) -> tuple[int, int]:
    """(uid, gid) of `user[:group]`, by name or number; `passwd` and `group` are the texts of those files.

    A user by name brings the group of its line, a user by number the group of the same number (Docker's rule for
    COPY --chown). Raises `LookupError` naming what is unknown.
    """
    user, _, wanted = spec.partition(":")
    users = _rows(passwd, 7)
    groups = _rows(group, 4)
    if _is_number(user):
        uid = gid = int(user)
    elif user in users:
        uid, gid = int(users[user][2]), int(users[user][3])
    else:
        raise LookupError(f"there is no user '{user}'")
    if _is_number(wanted):
        gid = int(wanted)
    elif wanted:
        if wanted not in groups:
            raise LookupError(f"there is no group '{wanted}'")
        gid = int(groups[wanted][2])
    return uid, gid


def _rows(text: str, fields: int) -> dict[str, Sequence[str]]:
    rows = (line.split(":") for line in text.splitlines())
    return {row[0]: row for row in rows if len(row) == fields and _is_number(row[2])}


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
