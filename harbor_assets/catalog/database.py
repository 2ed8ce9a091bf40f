"""One database: how it is opened, how a transaction runs, and what its errors mean."""

import fcntl
import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, exc, insert, make_url, select

from harbor_assets.catalog.schema import HEAD, METADATA, REVISIONS, VERSION, works_here
from harbor_assets.domain.errors import Broken, Conflict, HomeUnusable, Refused, ServiceUnavailable, StorageFull
from harbor_assets.settings import mask_url

BUSY_SECONDS = 30.0  # a write takes milliseconds: waiting this long means another process is stuck in one
ATTEMPTS = 5  # the API's number of tries on contention before it answers 409
_FEW_BYTES = 1 << 20  # SQLite says "I/O error" when it cannot grow its files: below this it was for want of space
_BUSY = (5, 6)  # SQLITE_BUSY, SQLITE_LOCKED
_WAL_PAUSE_SECONDS = 0.02
_SETUP_LOCK = 0x6861_7262  # "harb": the advisory lock of whoever makes or upgrades the schema on Postgres


class Database:
    """An engine and the rules of its transactions. Safe to share between threads."""

    def __init__(
        self,
        url: URL,
        *,
        busy_seconds: float = BUSY_SECONDS,
        upgraded: Callable[[Connection], None] = lambda connection: None,
    ) -> None:
        self._upgraded = upgraded
        self._shown = url.render_as_string(hide_password=True)
        self._path = Path(url.database or "") if url.drivername == "sqlite" else None
        self._busy_seconds = busy_seconds
        self._engine = self._make_engine(url)
        self._writer = self._engine.execution_options(harbor_write=True)
        self._reader = self._engine
        if self._path is None:  # what one read sees in several statements is one moment, as on SQLite
            self._reader = self._engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        self._ready = False
        self._preparing = threading.Lock()

    @classmethod
    def at(
        cls,
        url: str,
        *,
        busy_seconds: float = BUSY_SECONDS,
        upgraded: Callable[[Connection], None] = lambda connection: None,
    ) -> "Database":
        """`upgraded` is called when an older schema was brought up to date, to write what follows from what is stored.

        Raises `Refused` if `url` is neither a SQLite file nor Postgres.
        """
        if url.startswith("sqlite:///") and (path := url.removeprefix("sqlite:///")):
            return cls(URL.create("sqlite", database=path), busy_seconds=busy_seconds, upgraded=upgraded)
        try:
            parsed = make_url(url)
        except exc.ArgumentError:
            parsed = None
        if parsed is None or parsed.drivername not in ("postgresql", "postgresql+psycopg"):
            raise Refused(f"'{mask_url(url)}' is no catalog; write sqlite:///<path> or postgresql+psycopg://...")
        try:
            return cls(parsed.set(drivername="postgresql+psycopg"), busy_seconds=busy_seconds, upgraded=upgraded)
        except ModuleNotFoundError as error:
            raise Refused(
                f"The catalog {mask_url(url)} needs the package psycopg: pip install 'psycopg[binary]'"
            ) from error

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that sees one moment and changes nothing."""
        self._prepare()
        with self._translated(), self._reader.connect() as connection:
            yield connection

    def write[T](self, work: Callable[[Connection], T]) -> T:
        """`work` in a transaction that is committed if it returns and rolled back if it raises.

        It is done again, up to 5 times in all, where another process came first; then `Conflict`.
        """
        self._prepare()
        for attempt in range(ATTEMPTS):
            with self._translated():
                try:
                    with self._writer.begin() as connection:
                        return work(connection)
                except exc.DBAPIError as error:
                    if not _lost_race(error):
                        raise
            time.sleep(0.01 * attempt)
        raise Conflict(f"Others changed the same thing {ATTEMPTS} times in a row; look at it, then repeat.")

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold the lock `name` for the block; others wait, at most as long as a write does.

        On Postgres for every process of the deployment (an advisory lock, dropped with its connection), on SQLite for
        every process of this machine. Transactions inside the block are free to come and go.
        """
        self._prepare()
        if self._path is not None:
            with self._path.with_name(f"{self._path.name}.{name}.lock").open("a") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield
            return
        with self._translated(), self._engine.connect() as connection:
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({zlib.crc32(name.encode())})")
            yield

    def _make_engine(self, url: URL) -> Engine:
        if self._path is None:
            limits = {
                "connect_timeout": max(2, int(self._busy_seconds)),  # libpq's smallest
                "client_encoding": "utf8",  # else a server set up as SQL_ASCII answers in bytes
                "options": f"-c lock_timeout={int(self._busy_seconds * 1000)}",
            }
            return create_engine(url, connect_args=limits, pool_pre_ping=True)
        engine = create_engine(url, connect_args={"timeout": self._busy_seconds, "isolation_level": None})

        @event.listens_for(engine, "connect")
        def _configure(raw: Any, _: Any) -> None:
            raw.execute("PRAGMA synchronous=NORMAL")  # with WAL: a crash of the machine may lose the last, never break
            raw.execute("PRAGMA foreign_keys=ON")

        @event.listens_for(engine, "begin")
        def _begin(connection: Connection) -> None:
            # A write takes its lock at once: upgrading a read lock later fails without waiting if another writes.
            write = connection.get_execution_options().get("harbor_write")
            connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

        return engine

    def _prepare(self) -> None:
        """See that the schema is the one this program knows; make or upgrade it if need be."""
        if self._ready:
            return
        with self._preparing, self._translated():
            if self._ready:
                return
            with self._engine.connect() as connection:
                version = self._version(connection)
            if version != HEAD:
                self._use_wal()
                with self._writer.begin() as connection:  # whoever comes second waits here, and finds it done
                    if self._path is None:
                        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_SETUP_LOCK})")
                    self._bring_up_to_date(connection)
            self._ready = True

    def _version(self, connection: Connection) -> str | None:
        """The schema's version, None if there is none yet; a newer one that this program works on counts as its own.
        Raises `HomeUnusable` for any other that is not known here."""
        if not connection.dialect.has_table(connection, VERSION.name):
            return None
        version = connection.scalar(select(VERSION.c.version_num))
        if version is not None and version not in REVISIONS:
            if works_here(version, HEAD):
                return HEAD
            raise HomeUnusable(
                f"The catalog {self._shown} has schema {version!r}, made by a newer harbor-assets (this one knows "
                f"up to {HEAD!r}); upgrade harbor-assets, or choose another home with HARBOR_ASSETS_HOME."
            )
        return version

    def _use_wal(self) -> None:
        """Switch a SQLite file to write-ahead logging, which it keeps."""
        if self._path is None:
            return
        deadline = time.monotonic() + self._busy_seconds
        with self._engine.connect() as connection:
            raw: Any = connection.connection.dbapi_connection
            while True:
                try:
                    raw.execute("PRAGMA journal_mode=WAL")
                except sqlite3.Error as error:
                    # SQLite does not wait for this lock by itself: two processes on a fresh file meet here.
                    if _sqlite_code(error) not in _BUSY or time.monotonic() > deadline:
                        raise exc.OperationalError("PRAGMA journal_mode", None, error) from error
                    time.sleep(_WAL_PAUSE_SECONDS)
                else:
                    return

    def _bring_up_to_date(self, connection: Connection) -> None:
        version = self._version(connection)
        if version == HEAD:
            return
        if version is None:
            # The newest schema at once rather than script by script: Alembic costs 0.2 s, a test keeps both equal.
            try:
                METADATA.create_all(connection, checkfirst=False)
                VERSION.create(connection)
            except (exc.OperationalError, exc.ProgrammingError) as error:
                if "already exists" not in str(error.orig):
                    raise
                raise HomeUnusable(
                    f"The database {self._shown} holds tables that are not a catalog's; choose another with "
                    "HARBOR_ASSETS_CATALOG_URL."
                ) from error
            connection.execute(insert(VERSION).values(version_num=HEAD))
            return
        from harbor_assets.catalog.migrations import upgrade

        upgrade(connection)
        self._upgraded(connection)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except exc.DBAPIError as error:
            meaning = self._meaning(error)
            if isinstance(meaning, ServiceUnavailable | Broken) or (
                isinstance(meaning, Refused) and self._shown in str(meaning)
            ):
                meaning.elsewhere = "The catalog does not answer now; the service's log says why. Try again."
            raise meaning from error
        except exc.StatementError as error:  # a value that no column takes: our own mistake, told without the statement
            raise (error.orig or error) from None
        except exc.TimeoutError as error:
            raise ServiceUnavailable("Too many requests to the catalog at once; try again.") from error

    def _meaning(self, error: exc.DBAPIError) -> Exception:
        # The driver's own text, never SQLAlchemy's: that one carries the statement's values.
        text, where = str(error.orig), self._shown
        if self._path is None:
            return _postgres_meaning(error, f"The catalog {where}: {text.splitlines()[0] if text else 'no answer'}")
        match _sqlite_code(error.orig):
            case 13:  # SQLITE_FULL
                return StorageFull(f"No space left for the catalog {where}; free some, then repeat the command.")
            case 5 | 6:  # SQLITE_BUSY, SQLITE_LOCKED
                return ServiceUnavailable(
                    f"The catalog {where} was locked by another process for {self._busy_seconds:g} s; try again."
                )
            case 10 | 14 if self._out_of_space():  # SQLITE_IOERR, SQLITE_CANTOPEN
                return StorageFull(f"No space left for the catalog {where}; free some, then repeat the command.")
            case 3 | 8 | 10 | 11 | 14 | 23 | 26:
                # PERM, READONLY, IOERR, CORRUPT, CANTOPEN, AUTH, NOTADB
                return HomeUnusable(
                    f"The catalog {where} cannot be used: {text}. See that the file and its folder can be read and "
                    "written, put a copy back, or choose another home with HARBOR_ASSETS_HOME."
                )
            case _:
                return Broken(f"The catalog {where} is not as this version made it: {text}")

    def _out_of_space(self) -> bool:
        assert self._path is not None
        try:
            space = os.statvfs(self._path.parent)
        except OSError:
            return False
        return space.f_bavail * space.f_frsize < _FEW_BYTES or (space.f_files > 0 and space.f_favail == 0)


def _sqlite_code(error: BaseException | None) -> int | None:
    """SQLite's primary result code (https://sqlite.org/rescode.html)."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _lost_race(error: exc.DBAPIError) -> bool:
    """True if another transaction came first and a repetition will see what it did."""
    # serialization_failure, deadlock_detected (https://www.postgresql.org/docs/current/errcodes-appendix.html)
    return isinstance(error, exc.IntegrityError) or getattr(error.orig, "sqlstate", None) in ("40001", "40P01")


def _postgres_meaning(error: exc.DBAPIError, text: str) -> Exception:
    state: str = getattr(error.orig, "sqlstate", None) or ""
    if isinstance(error, exc.DataError) and "NUL" in text:
        return Refused("The request holds a NUL character (%00, \\u0000); the catalog keeps it in no text.")
    if isinstance(error, exc.DataError):
        return Refused(f"The request holds a value that the catalog cannot take: {text.partition(': ')[2] or text}.")
    if state == "53100":  # disk_full
        return StorageFull(f"{text}; free space on the database's machine, then repeat the command.")
    if state.startswith("28") or state == "3D000":  # authorization, unknown database
        return Refused(f"{text}; see HARBOR_ASSETS_CATALOG_URL.")
    if state.startswith(("08", "53", "57", "55")) or not state:  # connection, resources, shutdown, locks
        return ServiceUnavailable(f"{text}; try again.")
    return Broken(text)
