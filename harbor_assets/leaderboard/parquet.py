"""A bundle's rows as Parquet: `trials.parquet` and `scores.parquet`, typed, also when there are no rows.

The columns are part of the bundle's contract: they are only ever added to, at the end. Times are UTC, durations in
seconds, money in US dollars. `state` of a score is `observed`, `missing` (the trial was scored, this side reward was
not given) or `trial_failed`. `value` is null unless observed: a failed trial is never a zero.
"""

import errno
from collections.abc import Iterable, Iterator, Mapping
from itertools import batched
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harbor_assets.domain.bundle import SCORES_TABLE, TRIALS_TABLE
from harbor_assets.domain.errors import Broken, StorageFull
from harbor_assets.domain.text import whole
from harbor_assets.engine.ports import BundleTables

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TRIAL_COLUMNS: Mapping[str, str] = {
    "run_id": "VARCHAR",
    "task_index": "INTEGER",
    "task": "VARCHAR",
    "task_ref": "VARCHAR",
    "native_task_id": "VARCHAR",
    "k": "INTEGER",
    "trial_id": "VARCHAR",
    "trial_key": "VARCHAR",
    "outcome": "VARCHAR",
    "reason": "VARCHAR",
    "message": "VARCHAR",
    "reward": "DOUBLE",
    "reward_key": "VARCHAR",
    "flags": "VARCHAR[]",
    "error_type": "VARCHAR",
    "error_message": "VARCHAR",
    "tries": "INTEGER",
    "started_at": "TIMESTAMPTZ",
    "ended_at": "TIMESTAMPTZ",
    "duration_sec": "DOUBLE",
    "prompt_tokens": "BIGINT",
    "completion_tokens": "BIGINT",
    "cache_read_tokens": "BIGINT",
    "runtime_sec": "DOUBLE",
    "cost_usd": "DOUBLE",
    "evidence": "VARCHAR",
    "taskset_ref": "VARCHAR",
    "agent": "VARCHAR",
    "sandbox": "VARCHAR",
    "harbor_version": "VARCHAR",
    "archive": "VARCHAR",
    "archive_hash": "VARCHAR",
    "agent_image": "VARCHAR",
    "verifier_image": "VARCHAR",
    "verifier_revision": "VARCHAR",
}
SCORE_COLUMNS: Mapping[str, str] = {
    "run_id": "VARCHAR",
    "task_index": "INTEGER",
    "task": "VARCHAR",
    "k": "INTEGER",
    "trial_id": "VARCHAR",
    "metric": "VARCHAR",
    "output": "VARCHAR",
    "primary": "BOOLEAN",
    "state": "VARCHAR",
    "value": "DOUBLE",
}

BATCH_ROWS = 2000  # rows held as Python objects at once; larger batches are not faster


class ParquetTables:
    """Implements the engine's `TableWriter` with DuckDB."""

    def write(self, tables: BundleTables, folder: Path) -> None:
        """Make both files in `folder`, which exists. A file is replaced as a whole or left as it was.

        Raises `StorageFull`, and `Broken` for rows that do not fit the columns.
        """
        import duckdb

        with duckdb.connect(":memory:") as connection:
            # everything needed is in the wheel: never look for an extension on the network
            connection.execute("SET autoinstall_known_extensions = false")
            connection.execute("SET threads = 1")  # a few thousand rows; the other cores run trials
            try:
                _write(connection, tables.trials, TRIAL_COLUMNS, folder / TRIALS_TABLE)
                _write(connection, tables.scores, SCORE_COLUMNS, folder / SCORES_TABLE)
            except (OSError, duckdb.IOException) as error:
                full = isinstance(error, OSError) and error.errno == errno.ENOSPC
                if full or "No space left on device" in str(error):
                    raise StorageFull(f"No space left in {folder} for the tables of the bundle") from error
                raise
            except duckdb.Error as error:
                raise Broken(f"The rows of the bundle do not fit its tables: {error}") from error


def _write(
    connection: "DuckDBPyConnection", rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str], target: Path
) -> None:
    typed = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
    connection.execute(f"CREATE OR REPLACE TEMP TABLE bundle_rows ({typed})")
    insert = f"INSERT INTO bundle_rows SELECT unnest(row) FROM (SELECT unnest(?::STRUCT({typed})[]) AS row)"  # noqa: S608
    for batch in batched(_checked(rows, columns), BATCH_ROWS):
        connection.execute(insert, [list(batch)])
    part = target.with_name(f".{target.name}.part")
    try:
        escaped = str(part).replace("'", "''")
        connection.execute(f"COPY bundle_rows TO '{escaped}' (FORMAT parquet, COMPRESSION zstd)")
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _checked(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
    for row in rows:
        if row.keys() != columns.keys():
            wrong = sorted(row.keys() ^ columns.keys())
            raise Broken(f"A row of the bundle's tables has other columns than declared: {', '.join(wrong)}")
        yield {name: whole(value) if isinstance(value, str) else value for name, value in row.items()}
