"""Dagster's storage on a deployment: as Dagster's own for Postgres, with a connection that is kept while it is used.

Dagster opens a connection for every statement. That costs 4.6 ms of CPU (SCRAM), and more in the server, where the
statement itself costs 0.02 ms: most of what an idle daemon did. Kept for good, as its web pages do, they would be too
many: a worker that waits an hour for its trial would hold one.

The code server makes an instance for a sensor's tick, and each one looked with three connections whether its tables are
there: that was 84 connections a minute. So a process looks once, and its instances share their connections.
"""

import threading
import time
from functools import lru_cache
from typing import Any, Self

from dagster._serdes import ConfigurableClassData
from dagster_postgres import DagsterPostgresStorage
from dagster_postgres.utils import create_pg_engine, pg_url_from_config
from sqlalchemy import Engine, event

IDLE_SECONDS = 10.0  # the daemon and run workers look every second to five; a worker of a trial goes quiet for minutes


class IdleCloser:
    """Closes the connections that an engine's pool keeps once none was used for `idle_seconds`."""

    def __init__(self, engine: Engine, idle_seconds: float = IDLE_SECONDS) -> None:
        self._engine, self._idle_seconds, self._used_at = engine, idle_seconds, 0.0
        self._waiting = False
        self._lock = threading.Lock()
        event.listen(engine, "checkin", self._used)

    def _used(self, *_: Any) -> None:
        with self._lock:
            self._used_at = time.monotonic()
            if not self._waiting:
                self._look_in(self._idle_seconds)

    def _look(self) -> None:
        with self._lock:
            left = self._used_at + self._idle_seconds - time.monotonic()
            self._waiting = False
            if left > 0:
                self._look_in(left)
                return
        self._engine.pool.dispose()  # of those in use, the next look closes the one that stays

    def _look_in(self, seconds: float) -> None:
        self._waiting = True
        timer = threading.Timer(seconds, self._look)
        timer.daemon = True
        timer.start()


@lru_cache(maxsize=4)
def _engine(postgres_url: str) -> Engine:
    """One connection is kept, more at once come and go as ever. That a server was restarted meanwhile is found out
    before a statement, not by it."""
    engine = create_pg_engine(
        postgres_url, isolation_level="AUTOCOMMIT", pool_size=1, max_overflow=-1, pool_pre_ping=True
    )
    IdleCloser(engine)
    return engine


_looked: set[str] = set()  # addresses whose tables were there, or were made, when this process looked


class DeploymentStorage(DagsterPostgresStorage):
    """Configured as `storage: postgres` is."""

    def __init__(self, postgres_url: str, should_autocreate_tables: bool = True, **config: Any) -> None:
        look = should_autocreate_tables and postgres_url not in _looked
        super().__init__(postgres_url, should_autocreate_tables=look, **config)
        if look:
            _looked.add(postgres_url)
        engine = _engine(postgres_url)
        for part in (self._run_storage, self._event_log_storage, self._schedule_storage):
            part._engine = engine  # each makes its own, and takes none

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Any) -> Self:
        create = config_value.get("should_autocreate_tables", True)
        return cls(pg_url_from_config(config_value), should_autocreate_tables=create, inst_data=inst_data)
