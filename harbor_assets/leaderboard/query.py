"""One question of anybody's in SQL to one file of the store: read-only, bounded, and with nothing else in reach.

Three walls stand behind each other. The query's syntax tree may name only the tables and views of the schema, a few
functions that make rows, and no function that tells settings (those name paths of this machine). The connection can
open no other file, load no extension and change no setting. And what is attached, to be read, holds one workspace.
"""

import json
import math
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import JsonValue

from harbor_assets.domain.asking import Limits, SqlAnswer, SqlColumn
from harbor_assets.domain.errors import Broken, Refused, ServiceUnavailable
from harbor_assets.leaderboard import schema

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_ROW_MAKERS: Final = frozenset({"range", "generate_series", "unnest", "json_each", "json_tree"})
_CATALOGS: Final = frozenset({"tables", "columns", "duckdb_tables", "duckdb_views", "duckdb_columns", "sqlite_master"})
_FUNCTIONS_NOT: Final = frozenset({"current_setting", "getenv", "getvariable", "nextval", "currval"})
_AT_ONCE: Final = 2  # queries of a process: each may take its whole memory
_DEPTH: Final = 150  # of a query's expressions: the tree of deeper ones cannot be read here
_WAIT_SECONDS: Final = 10.0  # for a place among them
_FETCHED: Final = 256  # rows at a time: as many as may be held before their size is known

_places = threading.BoundedSemaphore(_AT_ONCE)


def answer(file: Path | None, query: str, limits: Limits) -> SqlAnswer:
    """What a query gives in a file of the store, None: in an empty one.

    Raises `Refused` for what is not one SELECT over the schema, is wrong (with DuckDB's words and the place), or goes
    beyond the limits; `ServiceUnavailable` while too many are asked.
    """
    import duckdb

    if len(query) > limits.characters:
        raise Refused(f"The query has {len(query)} characters; at most {limits.characters} are read")
    if not _places.acquire(timeout=_WAIT_SECONDS):
        raise ServiceUnavailable(f"{_AT_ONCE} other queries are being answered; ask again in a moment")
    try:
        with _opened(file, limits) as connection:
            _check(connection, query)
            with _clock(connection, limits.seconds) as ran_out:
                try:
                    return _fetched(connection, query, limits)
                except duckdb.InterruptException:
                    if ran_out.is_set():
                        raise Refused(f"The query took longer than {limits.seconds:g} s; ask for less") from None
                    raise
    except duckdb.OutOfMemoryException:
        raise Refused(f"The query needs more than {limits.memory_mb} MB; ask for fewer rows or columns") from None
    except (duckdb.IOException, duckdb.InternalException, duckdb.FatalException) as error:
        raise Broken(f"The store of results cannot be read: {error}") from error
    except duckdb.Error as error:
        raise Refused(f"The query cannot be answered: {_said(error, file)}") from None
    finally:
        _places.release()


@contextmanager
def _opened(file: Path | None, limits: Limits) -> "Iterator[DuckDBPyConnection]":
    """A database of this query alone, with the file attached: settings of a file's own would be shared with others."""
    import duckdb

    with duckdb.connect(":memory:") as connection:
        for setting in ("home_directory", "secret_directory", "extension_directory", "temp_directory"):
            connection.execute(f"SET {setting} = ''")
        for setting in ("autoinstall_known_extensions", "autoload_known_extensions", "allow_community_extensions"):
            connection.execute(f"SET {setting} = false")
        connection.execute("SET threads = 1")
        connection.execute(f"SET max_expression_depth = {_DEPTH}")
        connection.execute(f"SET memory_limit = '{limits.memory_mb}MB'")
        connection.execute("SET max_temp_directory_size = '0KB'")
        connection.execute("SET TimeZone = 'UTC'")
        if file is None:
            for statement in schema.statements():
                connection.execute(statement)
        else:
            escaped = str(file).replace("'", "''")
            connection.execute(f"ATTACH '{escaped}' AS store (READ_ONLY)")
            connection.execute("USE store")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        yield connection


def _check(connection: "DuckDBPyConnection", query: str) -> None:
    """Raises `Refused` unless it is one SELECT over what may be named."""
    import duckdb

    one = "The store answers one SELECT statement"
    statements = connection.extract_statements(query)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        words = ", ".join(_first_word(statement.query) for statement in statements)
        raise Refused(f"{one}, not: {words or 'nothing'}")
    (text,) = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchone() or ("{}",)
    try:
        tree = json.loads(text)
    except RecursionError:
        raise Refused(f"{one}, nested less deeply than this one") from None
    if tree.get("error"):
        raise Refused(f"{one}: {tree.get('error_message')}")
    nodes = list(_nodes(tree))
    with_names = {entry["key"].lower() for node in nodes for entry in _entries(node)}
    known = {*schema.TABLES, *schema.VIEWS, *_CATALOGS, *with_names}
    for node in nodes:
        kind = node.get("type")
        if kind == "BASE_TABLE":
            name, place = str(node["table_name"]), str(node["schema_name"]).lower()
            if name.lower() not in known or node["catalog_name"] or place not in ("", "main", "information_schema"):
                tables = ", ".join([*schema.TABLES, *schema.VIEWS])
                raise Refused(f"There is no table '{name}' to be asked; there are {tables}")
        elif kind == "TABLE_FUNCTION":
            name = str(node["function"].get("function_name", ""))
            if name.lower() not in _ROW_MAKERS:
                raise Refused(f"'{name}' cannot be asked for rows; of functions {', '.join(sorted(_ROW_MAKERS))} can")
        elif node.get("class") == "FUNCTION" and str(node.get("function_name", "")).lower() in _FUNCTIONS_NOT:
            raise Refused(f"The function '{node['function_name']}' tells of the service and cannot be used")
        elif str(kind).startswith(("INSERT", "UPDATE", "DELETE", "MERGE")):
            raise Refused(f"{one}; it changes nothing")


def _first_word(statement: str) -> str:
    """What a statement begins with, as it was written."""
    found = re.match(r"(?:\s|\(|--[^\n]*|/\*.*?\*/)*(\w{1,40})", statement, re.DOTALL)
    return found[1].upper() if found else "a statement without a word"


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    waiting = [tree]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            yield found
            waiting += found.values()
        elif isinstance(found, list):
            waiting += found


def _entries(node: dict[str, Any]) -> Sequence[dict[str, Any]]:
    """The names that a WITH gives."""
    found = node.get("cte_map")
    return found.get("map", ()) if isinstance(found, dict) else ()


@contextmanager
def _clock(connection: "DuckDBPyConnection", seconds: float) -> Iterator[threading.Event]:
    """Interrupt the connection after so long; the event tells that it was."""
    ran_out = threading.Event()

    def stop() -> None:
        ran_out.set()
        connection.interrupt()

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    with ExitStack() as stack:
        stack.callback(timer.join)
        stack.callback(timer.cancel)
        timer.start()
        yield ran_out


def _fetched(connection: "DuckDBPyConnection", query: str, limits: Limits) -> SqlAnswer:
    cursor = connection.execute(query)
    columns = [SqlColumn(name=name, type=str(kind)) for (name, kind, *_) in cursor.description or ()]
    rows: list[list[JsonValue]] = []
    size, cut = 0, ""
    while not cut and (some := cursor.fetchmany(_FETCHED)):
        for row in some:
            if len(rows) == limits.rows:
                cut = f"{limits.rows} rows"
                break
            plain = [_plain(value) for value in row]
            size += sum(len(value) if isinstance(value, str) else 8 for value in plain) + _nested(plain)
            if size > limits.bytes and not rows:
                raise Refused(
                    f"The first row alone is larger than the {limits.bytes} bytes of an answer; ask for fewer or "
                    "shorter values, as with left(value, 1000)"
                )
            if size > limits.bytes:
                cut = f"{limits.bytes} bytes"
                break
            rows.append(plain)
    return SqlAnswer(columns=columns, rows=rows, cut=cut or None)


def _nested(values: Sequence[JsonValue]) -> int:
    return sum(len(json.dumps(value)) for value in values if isinstance(value, list | dict))


def _plain(value: Any) -> JsonValue:
    """As JSON says it: times with an offset, spans in seconds, bytes in hexadecimal, what is not finite as a text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | Decimal):
        number = float(value)
        return number if math.isfinite(number) else str(number)
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value).isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value.hex() if isinstance(value, bytes | bytearray) else str(value)


def _said(error: Exception, file: Path | None) -> str:
    """DuckDB's own words, which show the place in the query, without where the file lies."""
    text = str(error).strip()
    return text.replace(str(file), "store") if file else text
