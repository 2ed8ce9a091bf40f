"""What agents and tests printed, kept to a size: the begin and the end of it, and how much was left out between."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

log = logging.getLogger(__name__)

KEEP_BYTES = 64 << 20  # of one file: a log beyond that is looked at by its begin and its end
_CHUNK = 1 << 20
_FOLDERS = ("agent", "verifier")  # what phases print; artifacts are what the task asked to keep, and stay whole


def cut_output(folder: Path, keep: int = KEEP_BYTES) -> int:
    """Cut every file below a trial's `agent/` and `verifier/`, those of each step too, to `keep` bytes.

    Returns how many bytes are gone. The note that stands in their place counts them. Links are not followed.
    """
    return sum(_cut(path, keep) for path in _logs(folder))


def note(dropped: int) -> bytes:
    """What stands in place of `dropped` bytes."""
    return (
        f"\n[harbor-assets: {dropped} bytes were left out here; logs are kept up to {KEEP_BYTES >> 20} MiB]\n".encode()
    )


def _logs(folder: Path) -> Iterator[Path]:
    steps = folder / "steps"
    places = [folder, *(sorted(steps.iterdir()) if steps.is_dir() else ())]
    for place in places:
        for name in _FOLDERS:
            for parent, _, files in os.walk(place / name):
                yield from (Path(parent, file) for file in files)


def _cut(path: Path, keep: int) -> int:
    if path.is_symlink() or not path.is_file() or (size := path.stat().st_size) <= keep:
        return 0
    half = max(0, keep - len(note(size))) // 2
    beside = path.with_name(f".{path.name}.cut")
    try:
        with path.open("rb") as whole, beside.open("wb") as kept:
            _copy(whole, kept, half)
            kept.write(note(size - 2 * half))
            whole.seek(size - half)
            _copy(whole, kept, half)
        beside.replace(path)
    except OSError as error:
        log.warning("%s could not be cut and is kept whole: %s", path, error)
        beside.unlink(missing_ok=True)
        return 0
    return size - 2 * half


def _copy(source: BinaryIO, target: BinaryIO, size: int) -> None:
    while size > 0 and (chunk := source.read(min(size, _CHUNK))):
        target.write(chunk)
        size -= len(chunk)
