"""An artifact store in memory. Passes the same port tests as the real ones."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from harbor_assets.artifacts import tree
from harbor_assets.artifacts.keys import check_key
from harbor_assets.domain.errors import NotFound, Refused


class MemoryArtifacts:
    """`Artifacts` as a dict; `objects` may be looked at and changed by a test."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def exists(self, key: str) -> bool:
        return check_key(key) in self.objects or any(True for _ in self.list(key))

    def size(self, key: str) -> int:
        return len(self._get(key))

    def open(self, key: str) -> BinaryIO:
        return io.BytesIO(self._get(key))

    def put_bytes(self, key: str, data: bytes) -> None:
        self.objects[check_key(key)] = data

    def put_file(self, key: str, source: Path) -> None:
        check_key(key)
        try:
            self.objects[key] = source.read_bytes()
        except OSError as error:
            raise Refused(f"{source} cannot be stored: {error.strerror}") from error

    def put_tree(self, key: str, source: Path) -> int:
        check_key(key)
        if not source.is_dir():
            raise Refused(f"{source} is not a folder")
        found = tree.survey(source, key)
        new = {f"{key}/{name}": (source / name).read_bytes() for name in found.files}
        self.remove(key)
        self.objects |= new
        return len(found.left_out)

    def list(self, key: str) -> Iterator[tuple[str, int]]:
        below = check_key(key) + "/"
        return iter(
            sorted((name.removeprefix(below), len(d)) for name, d in self.objects.items() if name.startswith(below))
        )

    def remove(self, key: str) -> None:
        below = check_key(key) + "/"
        for name in [name for name in self.objects if name == key or name.startswith(below)]:
            del self.objects[name]

    def sweep(self) -> int:
        return 0

    def url(self, key: str) -> str:
        return f"memory://{check_key(key)}"

    def _get(self, key: str) -> bytes:
        if check_key(key) not in self.objects:
            raise NotFound(f"There is no artifact {key!r}.")
        return self.objects[key]
