"""The gzip around a task archive, read exactly and within limits."""

import hashlib
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from harbor_assets.domain.archives import MAX_ARCHIVE_BYTES, MAX_STREAM_BYTES
from harbor_assets.domain.errors import Broken
from harbor_assets.sources.archive import CHUNK


def broken(what: str) -> Broken:
    """What is wrong with a task archive, as an error."""
    return Broken(f"The task archive {what}.")


class Inflated:
    """The tar inside the gzip, read exactly, with the hash and the size of both counted on the way."""

    def __init__(self, archive: BinaryIO) -> None:
        self._archive = archive
        self._inflate = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        self._chunk, self._at = b"", 0
        self._compressed = self._expanded = 0
        self.sha256 = hashlib.sha256()

    def read(self, count: int) -> bytes:
        return b"".join(self.pieces(count))

    def pieces(self, count: int) -> Iterator[bytes]:
        """Exactly `count` bytes in pieces. Raises `Broken` if there are fewer."""
        while count:
            if self._at == len(self._chunk):
                self._chunk, self._at = self._next(), 0
                if not self._chunk:
                    raise broken("ends too early")
            piece = self._chunk[self._at : self._at + count]
            self._at += len(piece)
            count -= len(piece)
            yield piece

    def finish(self) -> None:
        """Read to the end: only zeros may follow, the gzip trailer has to be right, and nothing may come after it."""
        rest = self._chunk[self._at :]
        while rest or (rest := self._next()):
            if rest.strip(b"\0"):
                raise broken("holds something after its end")
            rest = b""
        if self._inflate.unused_data or self._raw():
            raise broken("goes on after its end")

    def _next(self) -> bytes:
        while not self._inflate.eof:
            data = self._inflate.unconsumed_tail or self._raw()
            if not data:
                raise broken("ends too early")
            try:
                out = self._inflate.decompress(data, CHUNK)
            except zlib.error as error:
                raise broken(f"is not sound gzip ({error})") from error
            self._expanded += len(out)
            if self._expanded > MAX_STREAM_BYTES:
                raise broken(f"expands to more than {MAX_STREAM_BYTES:,} bytes")
            if out:
                return out
        return b""

    def _raw(self) -> bytes:
        data = self._archive.read(CHUNK)
        self.sha256.update(data)
        self._compressed += len(data)
        if self._compressed > MAX_ARCHIVE_BYTES:
            raise broken(f"has more than {MAX_ARCHIVE_BYTES:,} bytes")
        return data
