"""Bringing a deployment's catalog up to date before anything uses it: made or upgraded."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harbor_assets.catalog.store import Catalog
from harbor_assets.domain.errors import Refused, ServiceUnavailable

_PAUSE_SECONDS = 1.0
_CONNECT_SECONDS = 5
_LOCK = 0x6861_7263  # "harc": of whoever migrates; the schema itself has a lock of its own, below this one


def bring_up_to_date(url: str) -> None:
    """Make or upgrade the schema. Raises as the catalog does."""
    with Catalog.open(url) as catalog:
        catalog.list_tasksets("default", page_size=1)


@contextmanager
def alone(url: str, wait_seconds: float) -> Iterator[None]:
    """Hold a lock of the database's server, so that only one migrates at a time; the database is made if it is missing.

    Waits for a server that is not there yet. On SQLite, which needs neither, there is nothing to do. Raises
    `ServiceUnavailable` if the server does not answer within `wait_seconds`, `Refused` if it does not let us in.
    """
    if url.startswith("sqlite"):
        yield
        return
    with _connected(url, wait_seconds) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        yield  # the lock goes with the connection, whatever happens


@contextmanager
def _connected(url: str, wait_seconds: float) -> Iterator[Any]:
    import psycopg

    address = url.replace("postgresql+psycopg://", "postgresql://", 1)
    until = time.monotonic() + wait_seconds
    while True:
        try:
            connection = psycopg.connect(address, autocommit=True, connect_timeout=_CONNECT_SECONDS)
        except psycopg.OperationalError as error:
            said = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
            if f'database "{_name(address)}" does not exist' in said:
                _make_database(address)
            elif "authentication failed" in said:
                raise Refused(f"The database does not let us in: {said}; see HARBOR_ASSETS_CATALOG_URL") from None
            elif time.monotonic() > until:
                raise ServiceUnavailable(f"The database did not answer for {wait_seconds:g} s: {said}") from None
            else:
                time.sleep(_PAUSE_SECONDS)
        else:
            with connection:
                yield connection
            return


def _make_database(address: str) -> None:
    import psycopg
    from psycopg import errors, sql

    # Every server has this one; who may not use it has to make the catalog's database by hand.
    with psycopg.connect(address, dbname="postgres", autocommit=True, connect_timeout=_CONNECT_SECONDS) as connection:
        try:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(_name(address))))
        except (errors.DuplicateDatabase, errors.UniqueViolation):
            return  # another was faster
        except errors.InsufficientPrivilege as error:
            raise Refused(f"The database '{_name(address)}' is missing and we may not make it; let an admin") from error


def _name(address: str) -> str:
    from psycopg.conninfo import conninfo_to_dict

    return str(conninfo_to_dict(address).get("dbname") or "")
