"""The leaderboard's file: whole or as it was, read while it is written, and always what the bundles say."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from harbor_assets.domain.errors import Broken
from harbor_assets.domain.policies import PolicyCoverage
from harbor_assets.domain.ranking import RankedRun
from harbor_assets.engine.ports import RankedBundle
from harbor_assets.leaderboard.store import DuckDbLeaderboard

TRIALS = """
COPY (SELECT ? AS run_id, i::INTEGER AS task_index, 't' AS task, 'r' AS task_ref, 'n' AS native_task_id, 1 AS k,
  'x' AS trial_id, 'key' AS trial_key, 'scored' AS outcome, 'graded' AS reason, 1.0::DOUBLE AS reward,
  2.0::DOUBLE AS duration_sec, NULL::DOUBLE AS cost_usd, 'more' AS later FROM range(3) t(i)) TO '{}' (FORMAT parquet)
"""


def ranked(run_id: str, mean: float | None = 0.5, **values: Any) -> RankedRun:
    return RankedRun.model_validate(
        {
            "run_id": run_id,
            "workspace": "default",
            "owner": "me",
            "phase": "completed",
            "taskset_ref": "default/a#1",
            "agent": "oracle",
            "model": None,
            "sandbox": "process",
            "n_attempts": 1,
            "reward_key": "reward",
            "mean": mean,
            "mean_missing_as_zero": mean,
            "pass_at_k": {"1": mean},
            "coverage": PolicyCoverage(trials=3, tasks=3, of_trials=3, of_tasks=3),
            "harbor_version": None,
            "started_at": None,
            "finished_at": None,
            **values,
        }
    )


def bundle(folder: Path, run_id: str, mean: float | None = 0.5, **values: Any) -> RankedBundle:
    path = folder / f"{run_id}.parquet"
    duckdb.connect(":memory:").execute(TRIALS.format(path), [run_id])
    return RankedBundle(ranked(run_id, mean, **values), path)


@pytest.fixture
def store(tmp_path: Path) -> DuckDbLeaderboard:
    return DuckDbLeaderboard(tmp_path / "board" / "leaderboard.duckdb")


def trials(store: DuckDbLeaderboard, tmp_path: Path) -> list[tuple[str, int]]:
    with duckdb.connect(str(tmp_path / "board" / "leaderboard.duckdb"), read_only=True) as connection:
        return connection.execute("SELECT run_id, count(*) FROM trials GROUP BY 1 ORDER BY 1").fetchall()


def test_nothing_is_an_empty_leaderboard(store: DuckDbLeaderboard, tmp_path: Path):
    assert (store.run_ids(), store.rows("default")) == (frozenset(), [])
    assert list(tmp_path.iterdir()) == [], "looking makes no file"


def test_runs_are_ranked_within_taskset_and_sandbox_those_without_a_mean_last(store: DuckDbLeaderboard, tmp_path: Path):
    entries = [
        bundle(tmp_path, "r1", 0.2),
        bundle(tmp_path, "r2", None),
        bundle(tmp_path, "r3", 0.9),
        bundle(tmp_path, "r4", 1.0, sandbox="kubernetes"),
        bundle(tmp_path, "r5", 1.0, workspace="other"),
    ]
    assert store.write(entries) == 5
    assert [row.run_id for row in store.rows("default")] == ["r4", "r3", "r1", "r2"]
    assert [row.run_id for row in store.rows("other")] == ["r5"]
    assert store.rows("other")[0] == entries[-1].run


def test_a_run_again_takes_the_place_of_what_was_there_and_a_rebuild_is_the_same(
    store: DuckDbLeaderboard, tmp_path: Path
):
    for run_id, mean in (("a", 0.1), ("b", 0.2), ("a", 0.3)):
        store.write([bundle(tmp_path, run_id, mean)])
    incremental = (store.rows("default"), trials(store, tmp_path))
    assert incremental[1] == [("a", 3), ("b", 3)]
    store.write([bundle(tmp_path, "b", 0.2), bundle(tmp_path, "a", 0.3)], afresh=True)
    assert (store.rows("default"), trials(store, tmp_path)) == incremental


def test_a_file_that_is_none_of_ours_is_made_afresh(store: DuckDbLeaderboard, tmp_path: Path):
    store.write([bundle(tmp_path, "a")])
    (tmp_path / "board" / "leaderboard.duckdb").write_bytes(b"torn" * 1000)
    assert store.run_ids() == frozenset()
    store.write([bundle(tmp_path, "b")])
    assert store.run_ids() == {"b"}


def test_a_bundle_that_breaks_midway_leaves_the_old(store: DuckDbLeaderboard, tmp_path: Path):
    store.write([bundle(tmp_path, "a")])

    def entries() -> Iterator[RankedBundle]:
        yield bundle(tmp_path, "b")
        raise Broken("no more")

    with pytest.raises(Broken):
        store.write(entries())
    with pytest.raises(Broken, match="cannot be written"):
        store.write([RankedBundle(ranked("c"), tmp_path / "absent.parquet")])
    assert store.run_ids() == {"a"}
    assert sorted(path.name for path in (tmp_path / "board").iterdir()) == [
        "leaderboard.duckdb",
        "leaderboard.duckdb.lock",
    ]


KILLED = """
import os, signal, sys
from pathlib import Path
from harbor_assets.leaderboard.store import DuckDbLeaderboard
from tests.leaderboard.test_store import bundle
folder = Path(sys.argv[1])
def entries():
    yield bundle(folder, "b")
    os.kill(os.getpid(), signal.SIGKILL)
DuckDbLeaderboard(folder / "board" / "leaderboard.duckdb").write(entries())
"""


def test_a_writer_killed_midway_leaves_the_old_and_the_next_goes_on(store: DuckDbLeaderboard, tmp_path: Path):
    store.write([bundle(tmp_path, "a")])
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=root, env={**os.environ}, check=False)
    assert done.returncode == -signal.SIGKILL
    assert store.run_ids() == {"a"}
    store.write([bundle(tmp_path, "c")])
    assert store.run_ids() == {"a", "c"}


def test_readers_and_two_writers_never_meet_half_a_write(store: DuckDbLeaderboard, tmp_path: Path):
    entries = {writer: [bundle(tmp_path, f"{writer}{n}") for n in range(4)] for writer in "ab"}
    store.write([])
    seen: list[frozenset[str]] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.append(store.run_ids())

    reader = threading.Thread(target=read)
    reader.start()
    writers = [threading.Thread(target=store.write, args=(part,)) for part in entries.values()]
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    assert len(store.run_ids()) == 8
    assert {len(found) for found in seen} <= {0, 4, 8}
