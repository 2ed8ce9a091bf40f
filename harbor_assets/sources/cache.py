"""What is known of task folders whose files have not changed since: answers by file status, without opening a file.

A cache and nothing else: an entry that cannot be read, a file that is damaged or a folder that cannot be written is as
if there were none. One SQLite file, so that two commands at once do no harm and a killed one loses only its last entry.
"""

import hashlib
import logging
import os
import sqlite3
import sys
import time
import zlib
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Self

from harbor_assets.sources.scan import Scan

_FORMAT = 1  # raised when the rules or the stored shapes change within one version of the program
_RACY_NS = 2_000_000_000  # a file changed this shortly before it was read may change again and look the same
_KEPT_DAYS = 90  # of an entry that nobody asked for
_DAY_SECONDS = 24 * 3600
_BUSY_SECONDS = 5.0  # another command writes one row at a time

log = logging.getLogger(__name__)


class StatusCache:
    """Texts by (folder, kind), each valid as long as the folder's scan has the signature it was stored with.

    `rehash`: nothing stored before is believed; what is found now is stored.
    """

    def __init__(self, file: Path, *, rehash: bool = False) -> None:
        self._file = file
        self._rehash = rehash
        # What was computed by other code is as good as stale; zlib decides an archive's bytes.
        code = (_FORMAT, version("harbor-assets"), version("harbor"), zlib.ZLIB_RUNTIME_VERSION, sys.version_info[:2])
        self._code = repr(code)
        self._today = int(time.time() // _DAY_SECONDS)
        self._used: set[tuple[int, bytes, str]] = set()
        self._fresh: set[tuple[bytes, str]] = set()
        self._db = self._open()

    def get(self, scan: Scan, kind: str) -> str | None:
        """What was stored of this folder, if nothing about it has changed."""
        key = (os.fsencode(scan.folder), kind)
        if self._db is None or (self._rehash and key not in self._fresh):
            return None
        try:
            row = self._db.execute(
                "SELECT value, seen FROM known WHERE folder = ? AND kind = ? AND signature = ?",
                (*key, self._signature(scan)),
            ).fetchone()
        except sqlite3.Error as error:
            return self._give_up(error)
        if row is None:
            return None
        if row[1] != self._today:
            self._used.add((self._today, *key))
        return row[0]

    def put(self, scan: Scan, kind: str, value: str) -> None:
        """Store what was found by reading the folder after `scan`. Not done where a file is too young to be trusted."""
        if self._db is None or scan.newest_ns > scan.taken_ns - _RACY_NS:
            return
        key = (os.fsencode(scan.folder), kind)
        try:
            self._db.execute(
                "INSERT OR REPLACE INTO known (folder, kind, signature, value, seen) VALUES (?, ?, ?, ?, ?)",
                (*key, self._signature(scan), value, self._today),
            )
        except sqlite3.Error as error:
            self._give_up(error)
        else:
            self._fresh.add(key)

    def close(self) -> None:
        """Remember what was used today, forget what nobody used for long."""
        if self._db is None:
            return
        try:
            self._db.executemany("UPDATE known SET seen = ? WHERE folder = ? AND kind = ?", self._used)
            self._db.execute("DELETE FROM known WHERE seen < ?", (self._today - _KEPT_DAYS,))
            self._db.close()
        except sqlite3.Error as error:
            self._give_up(error)
        self._db = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _signature(self, scan: Scan) -> str:
        return hashlib.sha256(f"{self._code}\0{scan.signature}".encode()).hexdigest()

    def _open(self) -> sqlite3.Connection | None:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            db = sqlite3.connect(self._file, timeout=_BUSY_SECONDS, isolation_level=None)
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")  # a power cut may lose the last entries, never tear the file
            db.execute(
                "CREATE TABLE IF NOT EXISTS known (folder BLOB, kind TEXT, signature TEXT NOT NULL,"
                " value TEXT NOT NULL, seen INTEGER NOT NULL, PRIMARY KEY (folder, kind)) WITHOUT ROWID"
            )
        except (sqlite3.Error, OSError) as error:
            return self._give_up(error)
        return db

    def _give_up(self, error: Exception) -> None:
        self._db = None
        damaged = getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
        then = "it is made anew by the next command" if damaged else "tasks are read anew"
        log.warning("The cache %s cannot be used (%s); %s.", self._file, error, then)
        if damaged:
            for end in ("", "-wal", "-shm"):
                with suppress(OSError):
                    self._file.with_name(self._file.name + end).unlink()
