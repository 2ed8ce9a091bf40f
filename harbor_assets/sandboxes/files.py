"""Files into a sandbox and out of it, by a `tar` that runs inside: the machine follows no path of a task's.

What a kind of sandbox gives for it is a `Channel`: a program run inside as root, with an archive on one of its ends.
"""

import os
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Protocol

from harbor_assets.sandboxes import archives
from harbor_assets.sandboxes.archives import Unpacked
from harbor_assets.sandboxes.errors import TransferFailed

DOWNLOAD_MB = 1024  # of one folder: what an agent leaves beyond is a fault, and must not fill the machine's disk
LISTING_MB = 64  # of file names: some 600,000
_A_FOLDER, _NO_FILE = 91, 92  # exit codes of our own scripts
_UPLOAD_FOLDER = 'mkdir -p "$1" && exec tar -xf - -o -C "$1"'
_UPLOAD_FILE = '[ -d "$2" ] && exit 91; mkdir -p "$1" && exec tar -xf - -o -C "$1"'
_DOWNLOAD_FILE = '[ -f "$1" ] || exit 92; exec tar -chf - -C "$2" -- "./$3"'
_LIST = """cd "$1" || exit 93; find . -type f -print0; c=$?; printf '\\0'; exit $c"""  # ends with an empty name


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program inside ended: its exit code, and what it said on stderr."""

    code: int
    said: str

    @property
    def why(self) -> str:
        """The end of what it said, for a message."""
        return self.said[-500:].strip() or f"exit code {self.code}"


class Channel(Protocol):
    """Runs a program inside as root, with bytes of any number on one end of it. Raises SandboxLost and its kin."""

    async def send(self, command: Sequence[str], write: Callable[[BinaryIO], None]) -> Ended:
        """What `write` writes is the program's stdin. Raises what `write` raises."""
        ...

    async def receive[T](
        self, command: Sequence[str], read: Callable[[BinaryIO], T], *, limit: int, stdin: bytes = b""
    ) -> tuple[Ended, T]:
        """What the program writes to stdout is read by `read`, perhaps more than once, each time from the start.

        `read` has to see the end in what it reads: a program may be kept from ending until then, since the last
        bytes of one that has ended can be lost. Raises what `read` raises; TransferFailed beyond `limit` bytes.
        """
        ...


async def upload_file(channel: Channel, source: Path, target: str) -> None:
    """Put one file in place, as `cp` does: into the target if that is a folder. Raises TransferFailed, OSError."""
    path = PurePosixPath(target)
    ended = await channel.send(
        ["sh", "-c", _UPLOAD_FILE, "sh", str(path.parent), str(path)],
        lambda tar: archives.pack_file(source, path.name, tar),
    )
    if ended.code == _A_FOLDER:
        ended = await channel.send(
            ["sh", "-c", _UPLOAD_FOLDER, "sh", str(path)], lambda tar: archives.pack_file(source, source.name, tar)
        )
    _check(ended, f"upload to {target}")


async def upload_folder(channel: Channel, source: Path, target: str) -> None:
    """Put what is in a folder into another, which keeps its own mode and owner. Raises TransferFailed, OSError."""
    ended = await channel.send(
        ["sh", "-c", _UPLOAD_FOLDER, "sh", target], lambda tar: archives.pack_folder(source, tar)
    )
    _check(ended, f"upload to {target}")


async def download_file(channel: Channel, source: str, target: Path, *, limit_mb: int = DOWNLOAD_MB) -> None:
    """Get one file; of a link, what it points to inside. Raises TransferFailed, FileNotFoundError, OSError."""
    path = PurePosixPath(source)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".download-") as folder:
        command = ["sh", "-c", _DOWNLOAD_FILE, "sh", str(path), str(path.parent), path.name]
        found = Path(folder, path.name)
        unpacked = await _get(channel, command, source, Path(folder), limit_mb)
        if unpacked is None or not found.is_file() or found.is_symlink():
            raise FileNotFoundError(f"{source} is not a file in the sandbox")
        found.replace(target)


async def download_folder(
    channel: Channel, source: str, target: Path, *, exclude: Sequence[str] = (), limit_mb: int = DOWNLOAD_MB
) -> Sequence[str]:
    """Get what is in a folder, but for what matches tar's patterns; returns what was left out as unsafe, with reasons.

    Raises TransferFailed, also beyond `limit_mb`; OSError.
    """
    options = [f"--exclude={pattern}" for pattern in exclude]
    command = ["tar", "-cf", "-", *options, "-C", source, "--", "."]
    unpacked = await _get(channel, command, source, target, limit_mb)
    return unpacked.refused if unpacked else ()


async def download_names(
    channel: Channel, source: str, target: Path, names: Sequence[str], *, limit_mb: int = DOWNLOAD_MB
) -> Sequence[str]:
    """As `download_folder`, for the files of these names."""
    stdin = b"".join(os.fsencode(f"./{name}") + b"\0" for name in names)
    command = ["tar", "-cf", "-", "-C", source, "--null", "-T", "-"]
    unpacked = await _get(channel, command, source, target, limit_mb, stdin)
    return unpacked.refused if unpacked else ()


async def names_in(channel: Channel, folder: str) -> list[str]:
    """The files below a folder, relative to it. Raises TransferFailed."""
    ended, listed = await channel.receive(["sh", "-c", _LIST, "sh", folder], _listing, limit=LISTING_MB << 20)
    _check(ended, f"download of {folder}")
    return [os.fsdecode(name.removeprefix(b"./")) for name in listed.split(b"\0") if name]


def _listing(out: BinaryIO) -> bytes:
    listed = bytearray()
    while listed != b"\0" and not listed.endswith(b"\0\0") and (chunk := out.read(archives.CHUNK)):
        listed += chunk
    return bytes(listed)


async def _get(
    channel: Channel, command: Sequence[str], source: str, target: Path, limit_mb: int, stdin: bytes = b""
) -> Unpacked | None:
    """Pack inside, unpack on the machine. None: there is no such file."""
    from harbor.environments.tar_transfer import tar_pack_succeeded

    limit = limit_mb << 20

    def unpack(tar: BinaryIO) -> Unpacked | tarfile.TarError:
        try:
            return archives.unpack(tar, target, limit=limit)
        except tarfile.TarError as damage:  # of a program that failed it says nothing
            return damage

    try:
        ended, unpacked = await channel.receive(command, unpack, limit=limit, stdin=stdin)
    except archives.Unsafe as error:
        raise TransferFailed(f"download of {source}: {error}") from error
    if ended.code == _NO_FILE:
        return None
    # GNU tar's 1 is a file that changed meanwhile: a log that is still written
    if not tar_pack_succeeded(ended.code, stderr=ended.said):
        raise TransferFailed(f"download of {source}: {ended.why}")
    if isinstance(unpacked, tarfile.TarError):
        raise TransferFailed(f"download of {source}: the archive is damaged: {unpacked}") from unpacked
    return unpacked


def _check(ended: Ended, what: str) -> None:
    if ended.code:
        raise TransferFailed(f"{what}: {ended.why}")
