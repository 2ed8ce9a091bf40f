"""The store of results: one DuckDB file for each workspace, in one folder.

A workspace has a file of its own, since nothing inside DuckDB keeps a query from a table: who may read a workspace is
given its file, and there is no other one to be found in it.

A writer excludes every other process, readers too, while it has a file open. So no file is ever written in place: a
copy is changed in one transaction and swapped in. Readers keep the old file until they are done, and a writer killed
anywhere leaves it as it was. Writers wait for each other at a lock file in the folder.
"""

import fcntl
import os
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harbor_assets.domain.asking import Limits, SqlAnswer
from harbor_assets.domain.errors import NO_SPACE, Broken, NotFound, StorageFull
from harbor_assets.domain.ranking import RankedRun
from harbor_assets.domain.standings import Pairing
from harbor_assets.engine.ranking_ports import RankedBundle, Written
from harbor_assets.leaderboard import schema
from harbor_assets.leaderboard.ingest import ingest

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_RANKED = """
SELECT line, tasks_digest, cost_usd, cost_trials, duration_sec FROM runs JOIN pairings USING (run_id)
WHERE ($1 IS NULL OR experiment = $1)
AND ($2 IS NULL OR taskset = $2 OR starts_with(taskset_ref, $2) AND contains($2, '#'))
ORDER BY taskset_ref, sandbox, mean DESC NULLS LAST, run_id
"""
_PAIRINGS = "SELECT run_id, scored, totals, rates, unit FROM pairings WHERE run_id IN (SELECT unnest($1))"
EXPORTED = tuple(table for table in schema.TABLES if table != "pairings")
_CHECKPOINT = "1GB"  # of changes, until they are moved into the file
_WORKSPACE_SHOWN = 40  # characters of a workspace in the name of its file


_RUNS_OF_TASKS = (
    "SELECT run_id, task_ref FROM tasks WHERE list_contains($1::VARCHAR[], task_ref) GROUP BY ALL ORDER BY ALL"
)


class DuckDbLeaderboard:
    """Implements the engine's `LeaderboardStore`.

    `file` is what the store is called: its files lie in a folder of that name with `.d` behind it, and a file of that
    name, the store of earlier versions, is removed by the first write.
    """

    def __init__(self, file: Path) -> None:
        self._old, self._folder = file, file.with_name(f"{file.name}.d")
        self._known: dict[Path, tuple[str, frozenset[str]]] = {}

    def file_of(self, workspace: str) -> Path:
        """The file of a workspace, which may not exist. Names may be longer than a file's, and differ in case alone."""
        slug = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in workspace[:_WORKSPACE_SHOWN])
        return self._folder / f"{slug}-{sha256(workspace.encode()).hexdigest()[:16]}.duckdb"

    def run_ids(self) -> frozenset[str]:
        """See `LeaderboardStore`."""
        found = [self._ids(file) for file in self._folder.glob("[!.]*.duckdb")]
        return frozenset().union(*found)

    def _ids(self, file: Path) -> frozenset[str]:
        """The runs in a file; it is only read again when it was replaced."""
        version = _version(file)
        if file in self._known and self._known[file][0] == version:
            return self._known[file][1]
        ids = frozenset(run_id for (run_id,) in self._ask(file, "SELECT run_id FROM runs"))
        if version:
            self._known[file] = version, ids
        return ids

    def version(self, workspace: str) -> str:
        """See `LeaderboardStore`."""
        return _version(self.file_of(workspace))

    def rows(self, workspace: str, *, experiment: str | None = None, taskset: str | None = None) -> Sequence[RankedRun]:
        """See `LeaderboardStore`."""
        return [_run(*row) for row in self._ask(self.file_of(workspace), _RANKED, experiment, taskset)]

    def pairings(self, workspace: str, run_ids: Sequence[str]) -> Mapping[str, Pairing]:
        """See `LeaderboardStore`."""
        found = self._ask(self.file_of(workspace), _PAIRINGS, list(run_ids))
        return {run_id: Pairing(*values) for run_id, *values in found}

    def runs_of_tasks(self, workspace: str, refs: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """See `LeaderboardStore`."""
        found: dict[str, list[str]] = defaultdict(list)
        for run_id, ref in self._ask(self.file_of(workspace), _RUNS_OF_TASKS, list(refs)) if refs else ():
            found[run_id].append(ref)
        return found

    def sql(self, workspace: str, query: str, limits: Limits) -> SqlAnswer:
        """See `LeaderboardStore`."""
        from harbor_assets.leaderboard.query import answer

        file = self.file_of(workspace)
        return answer(file if _is_readable(file) else None, query, limits)

    def export(self, workspace: str, table: str, target: Path) -> None:
        """See `LeaderboardStore`."""
        if table not in EXPORTED:
            raise NotFound(f"There is no table '{table[:80]}' in the store of results; there are {', '.join(EXPORTED)}")
        file = self.file_of(workspace)
        with connect(file, read_only=True) if _is_readable(file) else connect(None) as connection:
            escaped = str(target).replace("'", "''")
            rows = f"SELECT * FROM {table}"  # noqa: S608 one of ours
            connection.execute(f"COPY ({rows}) TO '{escaped}' (FORMAT parquet, COMPRESSION zstd)")

    def write(self, batches: Iterable[Sequence[RankedBundle]], *, afresh: bool = False) -> Written:
        """See `LeaderboardStore`."""
        import duckdb

        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with self._locked():
                for left in self._folder.glob(".*.part*"):  # what a killed writer left
                    left.unlink()
                writing = _Writing(self, afresh=afresh)
                try:
                    writing.take(batches)
                    changed = writing.close()
                    for part, file in changed:
                        part.replace(file)
                finally:
                    writing.abandon()
                if afresh:
                    for file in self._folder.glob("[!.]*.duckdb"):
                        if file not in {target for _, target in changed}:
                            file.unlink()
                for left in (self._old, self._old.with_name(f"{self._old.name}.lock")):
                    left.unlink(missing_ok=True)
        except (OSError, duckdb.Error) as error:
            full = isinstance(error, OSError) and error.errno in NO_SPACE
            if full or "No space left on device" in str(error):
                raise StorageFull(f"No space left for the leaderboard {self._folder}") from error
            raise Broken(f"The leaderboard {self._folder} cannot be written: {error}") from error
        return Written(tuple(writing.runs), tuple(writing.failed))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fd = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _ask(self, file: Path, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query; none where there is no file of this layout."""
        import duckdb

        with ExitStack() as stack:
            try:
                reader = stack.enter_context(connect(file, read_only=True))
                if not readable(reader):
                    return []
            except (duckdb.Error, OSError):
                return []
            return reader.execute(query, list(values)).fetchall()


def _run(line: str, tasks: str, cost: float | None, cost_trials: int, seconds: float | None) -> RankedRun:
    """A run's line with what was added up from its trials; bundles of before do not say which tasks they are of."""
    run = RankedRun.model_validate_json(line)
    conditions = run.conditions.model_copy(update={"tasks": tasks})
    added = {"conditions": conditions, "cost_usd": cost, "cost_trials": cost_trials, "duration_sec": seconds}
    return run.model_copy(update=added)


class _Writing:
    """One write: the copies that are changed, by workspace, until they are swapped in."""

    def __init__(self, store: DuckDbLeaderboard, *, afresh: bool) -> None:
        self._store, self._afresh = store, afresh
        self._open: dict[str, DuckDBPyConnection] = {}
        self._there: dict[str, set[str]] = {}  # the runs in each copy
        self._stack = ExitStack()
        self._parts: list[tuple[Path, Path]] = []
        self.runs: list[str] = []
        self.failed: list[tuple[str, str]] = []

    def take(self, batches: Iterable[Sequence[RankedBundle]]) -> None:
        """Read all of them."""
        for batch in batches:
            by_workspace: dict[str, list[RankedBundle]] = defaultdict(list)
            for found in batch:
                by_workspace[found.run.workspace].append(found)
            for workspace, bundles in by_workspace.items():
                self._ingest(workspace, bundles)

    def _ingest(self, workspace: str, bundles: Sequence[RankedBundle]) -> None:
        """All of them in one transaction; where one cannot be read, each in its own."""
        import duckdb

        connection = self._connection(workspace)
        try:
            with _transaction(connection):
                ingest(connection, bundles, self._there[workspace])
        except duckdb.Error as error:
            if "No space left on device" in str(error):
                raise
            if len(bundles) > 1:
                for found in bundles:
                    self._ingest(workspace, [found])
            else:
                said = str(error).splitlines()[0]
                self.failed.append((bundles[0].run.run_id, f"its bundle cannot be read: {said}"))
        else:
            run_ids = [found.run.run_id for found in bundles]
            self.runs += run_ids
            self._there[workspace].update(run_ids)

    def _connection(self, workspace: str) -> "DuckDBPyConnection":
        if workspace in self._open:
            return self._open[workspace]
        file = self._store.file_of(workspace)
        part = file.with_name(f".{file.name}.part")
        self._parts.append((part, file))
        if not self._afresh and _is_readable(file):
            shutil.copyfile(file, part)
        made = not part.exists()
        connection = self._stack.enter_context(connect(part))
        if made:
            for statement in schema.statements():
                connection.execute(statement)
        connection.execute(f"SET checkpoint_threshold = '{_CHECKPOINT}'")  # one at the end; nobody reads a copy
        self._there[workspace] = {run_id for (run_id,) in connection.execute("SELECT run_id FROM runs").fetchall()}
        self._open[workspace] = connection
        return connection

    def close(self) -> Sequence[tuple[Path, Path]]:
        """Bring everything to the disk. Returns (copy, file whose place it takes)."""
        for connection in self._open.values():
            connection.execute("CHECKPOINT")
        self._stack.close()
        for part, _ in self._parts:
            with part.open("rb") as file:
                os.fsync(file.fileno())
        return self._parts

    def abandon(self) -> None:
        """Remove what is left of the copies."""
        self._stack.close()
        for part, _ in self._parts:
            part.unlink(missing_ok=True)
            part.with_name(f"{part.name}.wal").unlink(missing_ok=True)


@contextmanager
def connect(file: Path | None, *, read_only: bool = False) -> "Iterator[DuckDBPyConnection]":
    """A connection to one file, None: to an empty store in memory.

    Raises `duckdb.IOException` where it is none of DuckDB's, or, to read, not there.
    """
    import duckdb

    with duckdb.connect(str(file or ":memory:"), read_only=read_only) as connection:
        # everything needed is in the wheel: never look for an extension on the network
        connection.execute("SET autoinstall_known_extensions = false")
        connection.execute("SET threads = 1")  # the other cores run trials, and sums depend on no order of threads
        connection.execute("SET TimeZone = 'UTC'")
        if file is None:
            for statement in schema.statements():
                connection.execute(statement)
        yield connection


def readable(connection: "DuckDBPyConnection") -> bool:
    """Whether the file has this layout. Any other is made afresh: it holds nothing of its own."""
    return connection.execute("SELECT version FROM layout").fetchall() == [(schema.LAYOUT,)]


def _version(file: Path) -> str:
    """What is another whenever the file is; empty where there is none. Files are replaced, never written in place."""
    try:
        found = file.stat()
    except OSError:
        return ""
    return f"{found.st_ino}-{found.st_mtime_ns}-{found.st_size}"


def _is_readable(file: Path) -> bool:
    import duckdb

    with suppress(duckdb.Error, OSError), connect(file, read_only=True) as connection:
        return readable(connection)
    return False


@contextmanager
def _transaction(connection: "DuckDBPyConnection") -> Iterator[None]:
    connection.execute("BEGIN")
    try:
        yield
    except BaseException:
        with suppress(Exception):  # the first error tells more
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
