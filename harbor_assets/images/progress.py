"""A build's progress as plain lines, as `docker build --progress=plain` writes them."""

import threading
from typing import Any

HEAD_BYTES = TAIL_BYTES = 512 * 1024  # of a log: how a build began, and how it ended


class BuildLog:
    """Collects lines; what lies between the first and the last half megabyte is dropped, and that is said."""

    def __init__(self) -> None:
        self._head, self._tail, self._dropped = bytearray(), bytearray(), 0
        self._numbers: dict[str, int] = {}
        self._ended: set[str] = set()
        self._lock = threading.Lock()

    def update(self, status: Any) -> None:
        """Take in a `StatusResponse`."""
        for vertex in status.vertexes:
            known = vertex.digest in self._numbers
            number = self._numbers.setdefault(vertex.digest, len(self._numbers) + 1)
            if not known:
                self.line(f"#{number} {vertex.name}")
            if vertex.HasField("completed") and vertex.digest not in self._ended:
                self._ended.add(vertex.digest)
                word = f"ERROR: {vertex.error}" if vertex.error else "CACHED" if vertex.cached else "DONE"
                self.line(f"#{number} {word}")
        for log in status.logs:
            number = self._numbers.get(log.vertex, 0)
            for text in log.msg.splitlines():
                self._add(f"#{number} ".encode() + text + b"\n")

    def line(self, text: str) -> None:
        """One line of our own."""
        self._add(text.encode(errors="backslashreplace") + b"\n")

    def _add(self, data: bytes) -> None:
        with self._lock:
            if not self._tail and len(self._head) + len(data) <= HEAD_BYTES:
                self._head += data
                return
            self._tail += data
            if (over := len(self._tail) - TAIL_BYTES) > 0:
                del self._tail[:over]
                self._dropped += over

    def content(self) -> bytes:
        """All of it."""
        with self._lock:
            cut = f"\n… {self._dropped} bytes left out …\n".encode() if self._dropped else b""
            return bytes(self._head) + cut + bytes(self._tail)
