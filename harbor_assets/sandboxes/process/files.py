"""Files into a sandbox and out of it, by a `tar` that runs inside: the machine follows no path of a task's."""

import asyncio
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from harbor_assets.sandboxes.process import transfer
from harbor_assets.sandboxes.process.commands import ExecResult
from harbor_assets.sandboxes.process.sandbox import Sandbox

TRANSFER_SECONDS = 600.0  # Harbor's own patience with the packing of a folder
DOWNLOAD_MB = 1024  # of one folder: what an agent leaves beyond is a fault, and must not fill the machine's disk
SPOOL = 8 << 20  # bytes of a transfer kept in memory, then in an unnamed file
_A_FOLDER, _NO_FILE = 91, 92  # exit codes of our own scripts
_UPLOAD_FOLDER = 'mkdir -p "$1" && exec tar -xf - -o -C "$1"'
_UPLOAD_FILE = '[ -d "$2" ] && exit 91; mkdir -p "$1" && exec tar -xf - -o -C "$1"'
_DOWNLOAD_FILE = '[ -f "$1" ] || exit 92; exec tar -chf - -C "$2" -- "./$3"'


class TransferFailed(RuntimeError):
    """Files could not be moved; the message says which and why."""


async def upload_file(box: Sandbox, source: Path, target: PurePosixPath) -> None:
    """Put one file in place, as `cp` does: into the target if that is a folder. Raises TransferFailed."""
    code = await _put(
        box, lambda tar: transfer.pack_file(source, target.name, tar), _UPLOAD_FILE, str(target.parent), str(target)
    )
    if code == _A_FOLDER:
        await _put(box, lambda tar: transfer.pack_file(source, source.name, tar), _UPLOAD_FOLDER, str(target))


async def upload_folder(box: Sandbox, source: Path, target: str) -> None:
    """Put what is in a folder into another, which keeps its own mode and owner. Raises TransferFailed."""
    await _put(box, lambda tar: transfer.pack_folder(source, tar), _UPLOAD_FOLDER, target)


async def download_file(box: Sandbox, source: PurePosixPath, target: Path) -> None:
    """Get one file; of a link, what it points to inside. Raises TransferFailed, FileNotFoundError."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".download-") as folder:
        pack = ["sh", "-c", _DOWNLOAD_FILE, "sh", str(source), str(source.parent), source.name]
        found = Path(folder, source.name)
        if await _get(box, pack, str(source), Path(folder)) is None or not found.is_file() or found.is_symlink():
            raise FileNotFoundError(f"{source} is not a file in the sandbox")
        found.replace(target)


async def download_folder(box: Sandbox, source: str, target: Path, *, exclude: Sequence[str] = ()) -> list[str]:
    """Get what is in a folder, but for what matches tar's patterns; returns what was left out as unsafe, with reasons.

    Raises TransferFailed; tarfile.TarError if the task's `tar` made no archive.
    """
    options = [f"--exclude={pattern}" for pattern in exclude]
    return await _get(box, ["tar", "-cf", "-", *options, "-C", source, "--", "."], source, target) or []


async def download_names(box: Sandbox, source: str, target: Path, names: Sequence[str]) -> list[str]:
    """As `download_folder`, for the files of these names."""
    pack = ["tar", "-cf", "-", "-C", source, "--null", "-T", "-"]
    stdin = b"".join(os.fsencode(f"./{name}") + b"\0" for name in names)
    return await _get(box, pack, source, target, stdin) or []


async def names_in(box: Sandbox, folder: str) -> list[str]:
    """The files below a folder, relative to it. Raises TransferFailed."""
    done = await box.exec(["find", ".", "-type", "f", "-print0"], cwd=folder, timeout=TRANSFER_SECONDS)
    if done.code:
        raise TransferFailed(f"download of {folder}: {_why(done)}")
    return [os.fsdecode(name.removeprefix(b"./")) for name in done.stdout.split(b"\0") if name]


async def _put(box: Sandbox, pack: Callable[[BinaryIO], None], script: str, *args: str) -> int:
    """Pack on the machine, unpack inside as root. Returns 0, or `_A_FOLDER`."""
    with _spool(box) as tar:
        await asyncio.to_thread(pack, tar)
        tar.seek(0)
        done = await box.exec(["sh", "-c", script, "sh", *args], stdin=tar, timeout=TRANSFER_SECONDS, cap=1 << 16)
    if done.code not in (0, _A_FOLDER):
        raise TransferFailed(f"upload to {args[-1]}: {_why(done)}")
    return done.code


async def _get(
    box: Sandbox, pack: Sequence[str], source: str, target: Path, stdin: bytes | None = None
) -> list[str] | None:
    """Pack inside as root, unpack on the machine; returns what was left out. None: there is no such file."""
    from harbor.environments.tar_transfer import tar_pack_succeeded

    limit = DOWNLOAD_MB << 20
    size = 0

    def bound(chunk: bytes, stream: str) -> None:
        nonlocal size
        size += len(chunk) if stream == "stdout" else 0
        if size > limit:
            raise TransferFailed(f"download of {source}: more than {DOWNLOAD_MB} MB")

    with _spool(box) as tar:
        done = await box.exec(pack, stdin=stdin, timeout=TRANSFER_SECONDS, on_chunk=bound, cap=limit, sink=tar)
        if done.code == _NO_FILE:
            return None
        # GNU tar's 1 is a file that changed meanwhile: a log that is still written
        if not tar_pack_succeeded(done.code, stderr=done.stderr.decode(errors="replace")):
            raise TransferFailed(f"download of {source}: {_why(done)}")
        tar.seek(0)
        try:
            return (await asyncio.to_thread(transfer.unpack, tar, target, limit=limit)).refused
        except transfer.Unsafe as e:
            raise TransferFailed(f"download of {source}: {e}") from e


def _spool(box: Sandbox) -> Any:
    """An unnamed file on the disk where sandboxes live: /tmp may be small, or memory."""
    return tempfile.SpooledTemporaryFile(max_size=SPOOL, dir=str(box.folder))


def _why(done: ExecResult) -> str:
    return done.stderr[-500:].decode(errors="replace").strip() or f"exit code {done.code}"
