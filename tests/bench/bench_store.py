"""The store of results at size: ingest, the leaderboard, a question in SQL, beside plain DuckDB on the same rows.

    uv run python tests/bench/bench_store.py [TRIALS ...]

A run has 500 tasks of one trial each; one trial in fifty has no reward. Bundles are made from a few by DuckDB, since
making each from outcome rows would take longer than what is measured. Plain DuckDB is one table made with one CREATE
TABLE from all `trials.parquet`, and one GROUP BY over it. Wall seconds.
"""

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import batched
from pathlib import Path

import duckdb

from harbor_assets.domain.asking import Limits
from harbor_assets.domain.outcomes import Reason
from harbor_assets.domain.standings import boards
from harbor_assets.engine.ranking import AT_ONCE, Rankings
from harbor_assets.engine.ranking_ports import RankedBundle
from harbor_assets.leaderboard.store import EXPORTED, DuckDbLeaderboard
from tests.leaderboard.bundles import make_run, run_id, write_bundle

SIZES = [int(argument) for argument in sys.argv[1:]] or [10_000, 1_000_000]
TASKS = 500
TEMPLATES = 20  # bundles that are made in earnest; the others are these under other names
QUESTION = "SELECT agent, model, count(*), avg(reward), sum(cost_usd) FROM trials GROUP BY ALL"
REPEATS = 20


def templates(folder: Path, *, rates: bool) -> list[RankedBundle]:
    """Runs of different worth."""
    chance, made = random.Random(7), []
    for n in range(TEMPLATES):
        worth = 0.2 + 0.03 * n
        rewards = [chance.random() for _ in range(TASKS)]
        given = [float(r < worth) if rates else round(min(1.0, r * worth * 2), 3) for r in rewards]
        ends: list[list[float | Reason]] = [[Reason.EVICTED if chance.random() < 0.02 else one] for one in given]
        made.append(write_bundle(folder, *make_run(n, ends)))
    return made


def copies(made: Sequence[RankedBundle], folder: Path, count: int) -> Iterator[RankedBundle]:
    """As many bundles, each a template under a name of its own."""
    with duckdb.connect(":memory:") as connection:
        for n in range(count):
            source, own = made[n % len(made)], folder / run_id(n + 1000)
            own.mkdir(parents=True)
            for name in ("trials", "scores"):
                rows = f"SELECT * REPLACE ('{own.name}' AS run_id) FROM read_parquet('{source.folder}/{name}.parquet')"
                connection.execute(f"COPY ({rows}) TO '{own}/{name}.parquet' (FORMAT parquet, COMPRESSION zstd)")
            text = (source.folder / "outcomes.jsonl").read_text()
            (own / "outcomes.jsonl").write_text(text.replace(source.run.run_id, own.name))
            yield RankedBundle(source.run.model_copy(update={"run_id": own.name}), own)


def timed(work: Callable[[], object], repeats: int = REPEATS) -> tuple[float, float]:
    """The median and the 95th percentile of so many runs, in seconds."""
    found = []
    for _ in range(repeats):
        start = time.monotonic()
        work()
        found.append(time.monotonic() - start)
    return statistics.median(found), sorted(found)[max(0, round(0.95 * repeats) - 1)]


def told(name: str, found: tuple[float, float], beside: float | None = None) -> None:
    ratio = f"   {found[0] / beside:6.2f} of plain" if beside else ""
    print(f"  {name:<44} p50 {found[0]:8.3f} s   p95 {found[1]:8.3f} s{ratio}", flush=True)


class NoRuns:
    """A catalog of which nothing is missing."""

    def ended_runs(self, workspace: str | None = None) -> Sequence[str]:
        return ()


def bench(trials: int, made: Sequence[RankedBundle], folder: Path) -> None:
    """Everything at one size."""
    bundles = list(copies(made, folder / "bundles", trials // TASKS))
    store = DuckDbLeaderboard(folder / "leaderboard.duckdb")
    start, cpu = time.monotonic(), time.process_time()
    written = store.write(map(list, batched(bundles, AT_ONCE)), afresh=True)
    ingest, cpu = time.monotonic() - start, time.process_time() - cpu
    if written.failed:
        raise SystemExit(written.failed[0])
    again = timed(lambda: store.write([[bundles[0]]]), 3)
    file = store.file_of("default")
    plain = duckdb.connect(str(folder / "plain.duckdb"))
    plain.execute("SET threads = 1")
    files = [str(found.folder / "trials.parquet") for found in bundles]
    start, plain_cpu = time.monotonic(), time.process_time()
    plain.execute("CREATE TABLE trials AS SELECT *, NULL::VARCHAR AS model FROM read_parquet(?)", [files])
    plain.execute("CHECKPOINT")
    plain_ingest, plain_cpu = time.monotonic() - start, time.process_time() - plain_cpu
    counts = [store.sql("default", f"SELECT count(*) FROM {table}", Limits()).rows[0][0] for table in EXPORTED]
    rows = sum(count for count in counts if isinstance(count, int))
    size = file.stat().st_size / 1e6
    print(f"{trials:,} trials of {len(bundles):,} runs; {rows:,} rows in all tables; file {size:.0f} MB")
    print(f"  ingest {ingest:.1f} s: {trials / ingest:,.0f} trials/s, {rows / ingest:,.0f} rows/s; CPU {cpu:.1f} s")
    rate = trials / plain_ingest
    print(f"  plain: one table of the trials alone {plain_ingest:.1f} s: {rate:,.0f} rows/s; CPU {plain_cpu:.1f} s")
    told("one run more (its file is copied)", again)
    base = timed(lambda: plain.execute(QUESTION).fetchall())
    told("plain DuckDB: GROUP BY over all trials", base)
    told("the same through `sql`", timed(lambda: store.sql("default", QUESTION, Limits())), base[0])

    def board(by: Sequence[str]) -> None:
        boards(store.rows("default"), lambda runs: store.pairings("default", runs), by=by)

    rankings = Rankings(runs=NoRuns(), artifacts=None, store=store, scratch=folder)  # type: ignore[arg-type]
    rankings.leaderboard("default")
    told("leaderboard: every run a line", timed(lambda: board(["run"])), base[0])
    told("leaderboard: as it is kept until a run ends", timed(lambda: rankings.leaderboard("default")), base[0])
    told("leaderboard: by agent and model", timed(lambda: board(["agent", "model"]), 5), base[0])
    told("the runs alone, as listed", timed(lambda: store.rows("default")), base[0])
    plain.close()


def main() -> None:
    """Every size with rewards of 0 and 1, and the smallest with others: the tests differ."""
    with tempfile.TemporaryDirectory(prefix="bench-store-") as name:
        for size, rates in [*((size, True) for size in SIZES), (SIZES[0], False)]:
            folder = Path(name, f"{size}-{rates}")
            print("rewards 0 or 1" if rates else "rewards between 0 and 1")
            bench(size, templates(folder / "templates", rates=rates), folder)


if __name__ == "__main__":
    main()
