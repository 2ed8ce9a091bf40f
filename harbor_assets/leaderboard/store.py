"""The leaderboard in one DuckDB file.

A writer excludes every other process, readers too, while it has the file open. So the file is never written in place: a
copy is changed in one transaction and swapped in. Readers keep the old file until they are done, and a writer killed
anywhere leaves it as it was. Writers wait for each other at a lock file beside it.
"""

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from harbor_assets.domain.errors import NO_SPACE, Broken, StorageFull
from harbor_assets.domain.ranking import RankedRun
from harbor_assets.engine.ports import RankedBundle

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

LAYOUT = 1  # of the tables; another number is not read but made afresh from the bundles
_TRIAL_COLUMNS = (  # those that every bundle's trials.parquet has had from the first version on
    "run_id, task_index, task, task_ref, native_task_id, k, trial_id, trial_key, outcome, reason, reward, "
    "duration_sec, cost_usd"
)
_SCHEMA = f"""
CREATE TABLE layout AS SELECT {LAYOUT} AS version;
CREATE TABLE runs (
    run_id VARCHAR PRIMARY KEY, workspace VARCHAR, owner VARCHAR, phase VARCHAR, taskset_ref VARCHAR, agent VARCHAR,
    model VARCHAR, sandbox VARCHAR, mean DOUBLE, scored BIGINT, planned BIGINT, finished_at TIMESTAMPTZ, line VARCHAR
);
CREATE TABLE trials (
    run_id VARCHAR, task_index INTEGER, task VARCHAR, task_ref VARCHAR, native_task_id VARCHAR, k INTEGER,
    trial_id VARCHAR, trial_key VARCHAR, outcome VARCHAR, reason VARCHAR, reward DOUBLE, duration_sec DOUBLE,
    cost_usd DOUBLE
);
"""
_RANKED = "SELECT line FROM runs WHERE workspace = ? ORDER BY taskset_ref, sandbox, mean DESC NULLS LAST, run_id"


class DuckDbLeaderboard:
    """Implements the engine's `LeaderboardStore`."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def run_ids(self) -> frozenset[str]:
        """See `LeaderboardStore`."""
        return frozenset(run_id for (run_id,) in self._ask("SELECT run_id FROM runs"))

    def rows(self, workspace: str) -> Sequence[RankedRun]:
        """See `LeaderboardStore`."""
        return [RankedRun.model_validate_json(line) for (line,) in self._ask(_RANKED, workspace)]

    def write(self, bundles: Iterable[RankedBundle], *, afresh: bool = False) -> int:
        """See `LeaderboardStore`."""
        import duckdb

        part = self._file.with_name(f".{self._file.name}.part")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._locked():
                part.unlink(missing_ok=True)  # what a killed writer left
                if not afresh and self._readable():
                    shutil.copyfile(self._file, part)
                try:
                    written = _ingest(part, bundles)
                    with part.open("rb") as file:
                        os.fsync(file.fileno())
                    part.replace(self._file)
                finally:
                    part.unlink(missing_ok=True)
                    part.with_name(f"{part.name}.wal").unlink(missing_ok=True)
        except (OSError, duckdb.IOException) as error:
            full = isinstance(error, OSError) and error.errno in NO_SPACE
            if full or "No space left on device" in str(error):
                raise StorageFull(f"No space left for the leaderboard {self._file}") from error
            raise Broken(f"The leaderboard {self._file} cannot be written: {error}") from error
        return written

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fd = os.open(f"{self._file}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _readable(self) -> bool:
        """Whether there is a file of this layout. Anything else is made afresh: it holds nothing of its own."""
        import duckdb

        with suppress(duckdb.Error, OSError), _connect(self._file, read_only=True) as connection:
            return connection.execute("SELECT version FROM layout").fetchall() == [(LAYOUT,)]
        return False

    def _ask(self, query: str, *values: str) -> list[tuple[str, ...]]:
        if not self._readable():
            return []
        with _connect(self._file, read_only=True) as connection:
            return connection.execute(query, list(values)).fetchall()


@contextmanager
def _connect(file: Path, *, read_only: bool = False) -> "Iterator[DuckDBPyConnection]":
    import duckdb

    with duckdb.connect(str(file), read_only=read_only) as connection:
        # everything needed is in the wheel: never look for an extension on the network
        connection.execute("SET autoinstall_known_extensions = false")
        connection.execute("SET threads = 1")  # small tables; the other cores run trials
        yield connection


def _ingest(file: Path, bundles: Iterable[RankedBundle]) -> int:
    """Put bundles in the place of what is there of their runs, in one transaction. Returns how many."""
    new, written = not file.exists(), 0
    with _connect(file) as connection:
        connection.execute("BEGIN")
        if new:
            connection.execute(_SCHEMA)
        for found in bundles:
            run = found.run
            connection.execute("DELETE FROM runs WHERE run_id = ?", [run.run_id])
            connection.execute("DELETE FROM trials WHERE run_id = ?", [run.run_id])
            values = [
                run.run_id,
                run.workspace,
                run.owner,
                run.phase,
                run.taskset_ref,
                run.agent,
                run.model,
                run.sandbox,
                run.mean,
                run.coverage.trials,
                run.coverage.of_trials,
                run.finished_at,
                run.model_dump_json(),
            ]
            connection.execute(f"INSERT INTO runs VALUES ({', '.join('?' * len(values))})", values)  # noqa: S608
            connection.execute(
                f"INSERT INTO trials SELECT {_TRIAL_COLUMNS} FROM read_parquet(?)",  # noqa: S608
                [str(found.trials)],
            )
            written += 1
        connection.execute("COMMIT")
        connection.execute("CHECKPOINT")
    return written
