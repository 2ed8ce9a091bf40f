"""Files that are replaced whole: whoever reads one finds the old or the new, never a half."""

import os
import secrets
from pathlib import Path


def replace_file(path: Path, data: bytes, *, mode: int) -> None:
    """Write it beside, then rename it into place, safe on disk. An interrupted call leaves what was there.

    Raises `OSError`, and then leaves nothing of its own.
    """
    beside = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            os.fchmod(file.fileno(), mode)  # whatever the umask
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
