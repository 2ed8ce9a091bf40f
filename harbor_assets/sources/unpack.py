"""Unpack a task archive that a stranger may have made: verified, within limits, never outside its folder.

The tar is read here and not with tarfile, which takes an archive's word for how much memory a header needs, follows GNU
and sparse extensions, and accepts what the contract refuses (docs/decisions.md, "Digests").
"""

import errno
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from harbor_assets.domain.archives import (
    MAX_ENTRIES,
    MAX_FILE_BYTES,
    MAX_METADATA_BYTES,
    MAX_PATH_BYTES,
    MAX_PAYLOAD_BYTES,
    Entry,
    EntryKind,
    metadata_limit,
    path_problem,
    tree_problems,
)
from harbor_assets.domain.errors import Broken
from harbor_assets.domain.text import quoted
from harbor_assets.sources.archive import no_space
from harbor_assets.sources.inflate import Inflated, broken
from harbor_assets.sources.staging import staging

_NAMES_BYTES = 64 << 20  # of all paths and link targets: names alone must not fill the memory
_PAX_BYTES = 1 << 20  # one extended header
_PAX_CHAIN = 8  # extended headers before one member
_PAX_USED = frozenset({"path", "linkpath", "size"})
_PAX_IGNORED = frozenset({"mtime", "atime", "ctime", "uid", "gid", "uname", "gname"})  # owners and times are not kept
_KINDS: dict[bytes, EntryKind] = {
    tarfile.REGTYPE: "file",
    tarfile.AREGTYPE: "file",
    tarfile.DIRTYPE: "dir",
    tarfile.SYMTYPE: "link",
}


def unpack(archive: BinaryIO, dest: Path, expected_hash: str) -> Path:
    """Unpack `archive` so that `dest` holds its one root folder; returns that folder.

    `dest` appears complete or not at all; if somebody else made it meanwhile, theirs is kept. Raises `Broken` where the
    bytes are not those of `expected_hash` or the archive is not allowed, `StorageFull` when there is no space.
    """
    try:
        with no_space(f"a task was unpacked to {dest.parent}"), staging(dest.parent) as folder:
            root = _Extraction(archive, folder).run(expected_hash)
            try:
                folder.rename(dest)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
            return dest / root
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise Broken("The task archive holds a name that is too long for this machine's files.") from error


class _Extraction:
    """One archive on its way into an empty private folder. No link is made before everything else is in place."""

    def __init__(self, archive: BinaryIO, staging: Path) -> None:
        self._tar = Inflated(archive)
        self._staging = staging
        self._root = ""
        self._entries: dict[str, Entry] = {}
        self._seen: set[str] = set()
        self._payload = self._metadata = self._names = 0

    def run(self, expected_hash: str) -> str:
        for name, entry in self._members():
            self._place(name, entry)
        self._tar.finish()
        if self._tar.sha256.hexdigest() != expected_hash:
            raise broken(f"is not the one of hash {expected_hash}: it has {self._tar.sha256.hexdigest()}")
        if not self._root:
            raise broken("is empty")
        for path, reason in tree_problems(self._root, list(self._entries.values())):
            raise broken(f"holds {quoted(path)}, which {reason}")
        for entry in self._entries.values():
            if entry.kind == "link":
                self._path(entry).symlink_to(entry.target)
        for entry in reversed(self._entries.values()):  # children first: a folder may forbid what its children need
            if entry.kind == "dir":
                self._path(entry).chmod(entry.mode)
        return self._root

    def _path(self, entry: Entry) -> Path:
        return self._staging / self._root / entry.path

    def _members(self) -> Iterator[tuple[str, Entry]]:
        """(name, entry without its path) of each member. Its bytes, if any, are to be read before the next."""
        while (block := self._tar.read(tarfile.BLOCKSIZE)).strip(b"\0"):
            pax: dict[str, str] = {}
            info = _header(block)
            for _ in range(_PAX_CHAIN):
                if info.type != tarfile.XHDTYPE:
                    break
                if not 0 <= info.size <= _PAX_BYTES:
                    raise broken(f"has an extended header of {info.size:,} bytes, at most {_PAX_BYTES:,} are allowed")
                pax |= _pax_records(self._tar.read(info.size + -info.size % tarfile.BLOCKSIZE)[: info.size])
                info = _header(self._tar.read(tarfile.BLOCKSIZE))
            kind = _KINDS.get(info.type)
            name = pax.get("path", info.name)
            if kind is None:
                raise broken(f"holds {quoted(name)}, a kind of entry ({info.type!r}) that is not allowed")
            size = int(pax["size"]) if "size" in pax else info.size
            if size < 0 or (kind != "file" and size):
                raise broken(f"holds {quoted(name)} with an impossible size ({size})")
            target = pax.get("linkpath", info.linkname) if kind == "link" else ""
            yield name.removesuffix("/") if kind == "dir" else name, Entry("", kind, info.mode & 0o7777, size, target)
        if self._tar.read(tarfile.BLOCKSIZE).strip(b"\0"):
            raise broken("has no proper end")

    def _place(self, name: str, entry: Entry) -> None:
        if reason := path_problem(name):
            raise broken(f"holds {quoted(name)}, which {reason}")
        root, _, path = name.partition("/")
        if not self._root:
            if path or entry.kind != "dir":
                raise broken(f"does not begin with its one root folder, but with {quoted(name)}")
            self._root = root
        elif root != self._root or not path:
            raise broken(f"holds {quoted(name)} outside of its root folder {quoted(self._root)}")
        else:
            parent = self._entries.get(path.rpartition("/")[0])
            if parent is None:
                raise broken(f"holds {quoted(name)} before its folder")
            if parent.kind != "dir":
                raise broken(f"holds {quoted(name)} inside of something that is no folder")
        if name.casefold() in self._seen:
            raise broken(f"holds {quoted(name)} twice (case does not count)")
        self._seen.add(name.casefold())
        entry = Entry(path, entry.kind, entry.mode, entry.size, entry.target)
        self._count(entry)
        self._entries[path] = entry
        if entry.kind == "dir":
            self._path(entry).mkdir(mode=0o700)
        elif entry.kind == "file":
            self._write(entry)

    def _count(self, entry: Entry) -> None:
        limit = metadata_limit(entry.path)
        self._payload += entry.size
        self._metadata += entry.size if limit else 0
        self._names += len(entry.path) + len(entry.target)
        if len(entry.target) > MAX_PATH_BYTES or self._names > _NAMES_BYTES:
            raise broken(f"holds {quoted(entry.path)}, where its names get too long")
        if len(self._entries) >= MAX_ENTRIES:
            raise broken(f"holds more than {MAX_ENTRIES:,} entries")
        if entry.size > (limit or MAX_FILE_BYTES):
            raise broken(f"holds {quoted(entry.path)} of {entry.size:,} bytes, at most {limit or MAX_FILE_BYTES:,} go")
        if self._payload > MAX_PAYLOAD_BYTES or self._metadata > MAX_METADATA_BYTES:
            raise broken("holds more bytes than a task may have")

    def _write(self, entry: Entry) -> None:
        descriptor = os.open(self._path(entry), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            for piece in self._tar.pieces(entry.size):
                view = memoryview(piece)
                while view:
                    view = view[file.write(view) :]
            os.fchmod(file.fileno(), entry.mode)
        if self._tar.read(-entry.size % tarfile.BLOCKSIZE).strip(b"\0"):
            raise broken(f"has something in the padding of {quoted(entry.path)}")


def _header(block: bytes) -> tarfile.TarInfo:
    try:
        return tarfile.TarInfo.frombuf(block, "utf-8", "strict")
    except (tarfile.HeaderError, ValueError) as error:
        raise broken(f"has a header that cannot be read ({error})") from error


def _pax_records(data: bytes) -> dict[str, str]:
    """The `length key=value` lines of an extended header. Unknown keys are refused: they may change the meaning."""
    records: dict[str, str] = {}
    at = 0
    while at < len(data):
        blank = data.find(b" ", at, at + 8)
        length = data[at:blank] if blank > at else b""
        end = at + int(length) if length.isdigit() else 0
        key, equals, value = data[blank + 1 : end - 1].partition(b"=")
        if not equals or end > len(data) or data[end - 1 : end] != b"\n":
            raise broken("has an extended header that cannot be read")
        try:
            name, text = key.decode("ascii"), value.decode()
        except UnicodeDecodeError as error:
            raise broken("has an extended header that is not UTF-8") from error
        if name not in _PAX_USED | _PAX_IGNORED:
            raise broken(f"has an extended header with the unknown key {quoted(name, 60)}")
        if name == "size" and not (text.isascii() and text.isdigit() and len(text) < 20):
            raise broken("has an extended header with an impossible size")
        records[name] = text
        at = end
    return records
