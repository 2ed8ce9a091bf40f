"""The store's files: whole or as they were, read while they are written, and always what the bundles say."""

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbor_assets.domain.errors import Broken
from harbor_assets.domain.outcomes import Reason, TrialError, Try
from harbor_assets.domain.plans import RunPlan, Sizing
from harbor_assets.domain.standings import Pairing
from harbor_assets.engine.ranking_ports import RankedBundle
from harbor_assets.leaderboard.schema import TABLES, VIEWS
from harbor_assets.leaderboard.store import DuckDbLeaderboard
from tests.fakes.accounts import START, make_row
from tests.leaderboard.bundles import make_run, run_id, small, write_bundle


@pytest.fixture
def store(tmp_path: Path) -> DuckDbLeaderboard:
    return DuckDbLeaderboard(tmp_path / "board" / "leaderboard.duckdb")


def ask(store: DuckDbLeaderboard, query: str, workspace: str = "default") -> list[tuple[Any, ...]]:
    with duckdb.connect(str(store.file_of(workspace)), read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.execute(query).fetchall()


def dump(store: DuckDbLeaderboard, folder: Path, workspace: str = "default") -> dict[str, bytes]:
    """Every table as the bytes of a sorted CSV."""
    folder.mkdir(exist_ok=True)
    found = {}
    with duckdb.connect(str(store.file_of(workspace)), read_only=True) as connection:
        for table in TABLES:
            file = folder / f"{table}.csv"
            connection.execute(f"COPY (SELECT * FROM {table} ORDER BY ALL) TO '{file}' (FORMAT csv)")
            found[table] = file.read_bytes()
    return found


def test_nothing_is_an_empty_store(store: DuckDbLeaderboard, tmp_path: Path):
    assert (store.run_ids(), store.rows("default")) == (frozenset(), [])
    assert list(tmp_path.iterdir()) == [], "looking makes no file"


def test_runs_are_listed_by_taskset_and_sandbox_those_without_a_mean_last(store: DuckDbLeaderboard, tmp_path: Path):
    bundles = [
        small(tmp_path, 1, 0.2, 0.2),
        small(tmp_path, 2, Reason.EVICTED, Reason.EVICTED),
        small(tmp_path, 3, 1.0, 0.8),
        small(tmp_path, 4, 1.0, 1.0, sandbox="kubernetes"),
        small(tmp_path, 5, 1.0, workspace="other"),
    ]
    assert set(store.write([bundles]).runs) == {run_id(n) for n in range(1, 6)}
    assert [row.run_id for row in store.rows("default")] == [run_id(n) for n in (4, 3, 1, 2)]
    (other,) = store.rows("other")
    assert (other.duration_sec, other.cost_usd, other.cost_trials) == (1.5, None, 0)
    assert other.conditions == bundles[-1].run.conditions
    assert [row.run_id for row in store.rows("default", taskset="default/hello#aaaaaa", experiment=None)] == [
        run_id(n) for n in (4, 3, 1, 2)
    ]
    assert store.rows("default", experiment="e") == store.rows("default", taskset="default/hell") == []
    assert store.pairings("default", [run_id(1), run_id(9)]) == {run_id(1): Pairing([1, 1], [0.2, 0.2], False, True)}
    assert store.rows("third") == []


def test_a_workspace_is_not_in_the_file_of_another(store: DuckDbLeaderboard, tmp_path: Path):
    names = ["default", "other", "Other", "ö" * 255, "a" * 255]
    store.write([[small(tmp_path, n, 1.0, workspace=name) for n, name in enumerate(names)]])
    assert [ask(store, "SELECT DISTINCT workspace FROM trials", name) for name in names] == [[(n,)] for n in names]
    assert len(store.run_ids()) == 5


def test_every_table_says_what_the_bundle_says(store: DuckDbLeaderboard, tmp_path: Path):
    plan, rows = make_run(7, [[1.0, Reason.EVICTED], [0.25, 0.75]], sizing=Sizing(cpus=2), agent_timeout_multiplier=1.5)
    task = plan.tasks[1].model_copy(update={"images": {"agent": "r/i@sha256:1"}})
    plan = RunPlan.model_validate({**plan.model_dump(), "tasks": (plan.tasks[0], task)})
    lost = Try(start=START, error=TrialError(type="WorkerLost", message="gone"))
    again = Try(
        start=START, end=START, cost=0.5, reason=Reason.EVICTED, leftovers="evidence/x", reward=0.5, prompt_tokens=9
    )
    rows[3] = make_row(plan, 1, 2, 0.75, tries=(lost, again, rows[3].tries[0]), rewards={"reward": 0.75, "speed": 3.0})
    store.write([[write_bundle(tmp_path, plan, rows, experiment="exp", evaluation="first")]])
    assert ask(
        store, "SELECT experiment, evaluation, scored_trials, planned_trials, tries, round(mean, 6) FROM runs"
    ) == [("exp", "first", 3, 4, 6, 0.666667)]
    assert ask(store, "SELECT task, planned, scored, passed, mean, lowest FROM tasks ORDER BY 1") == [
        ("hello-t0", 2, 1, 1, 1.0, 1.0),
        ("hello-t1", 2, 2, 0, 0.5, 0.25),
    ]
    assert ask(store, "SELECT experiment, agent, task_index, k, outcome, reward, passed FROM trials ORDER BY 3, 4") == [
        ("exp", "oracle", 0, 1, "scored", 1.0, True),
        ("exp", "oracle", 0, 2, "infra_failed", None, None),
        ("exp", "oracle", 1, 1, "scored", 0.25, False),
        ("exp", "oracle", 1, 2, "scored", 0.75, False),
    ]
    of_last = "FROM attempts WHERE task_index = 1 AND k = 2 ORDER BY attempt"
    assert ask(
        store,
        f"SELECT attempt, last, reason, error_type, cost_usd, leftovers, duration_sec, reward, prompt_tokens {of_last}",
    ) == [
        (1, False, None, "WorkerLost", None, None, None, None, None),
        (2, False, "evicted", None, 0.5, "evidence/x", 0.0, 0.5, 9),
        (3, True, "graded", None, None, rows[3].tries[2].leftovers, 1.5, None, None),
    ]
    assert ask(
        store, "SELECT output, state, value, is_primary FROM scores WHERE k = 2 AND task_index = 1 ORDER BY 1"
    ) == [
        ("reward", "observed", 0.75, True),
        ("speed", "observed", 3.0, False),
    ]
    assert ask(
        store,
        "SELECT task_digest, archive_hash, agent_image, sizing, multipliers, network, machine, trial_partition, "
        "task_partition, taskset_partition, bundle_partition FROM lineage WHERE task_index = 1 AND k = 1",
    ) == [
        (
            f"{1:064x}",
            f"{1:064x}",
            "r/i@sha256:1",
            "cpus=2",
            "agent_timeout=1.5",
            "",
            "debian-12-x86_64",
            f"{run_id(7)}|00001",
            "default/hello-t1#000000000000",
            "default/hello#aaaaaaaaaaaa",
            run_id(7),
        )
    ]
    assert ask(store, "SELECT scored, totals, rates, unit FROM pairings") == [([1, 2], [1.0, 1.0], False, True)]


def test_the_views_can_be_asked(store: DuckDbLeaderboard, tmp_path: Path):
    store.write([[small(tmp_path, 1, 1.0, Reason.EVICTED), small(tmp_path, 2, 0.0, 0.5)]])
    assert ask(store, "SELECT run_id, mean FROM leaderboard") == [(run_id(1), 1.0), (run_id(2), 0.25)]
    assert ask(store, "SELECT task_ref[9:16], runs, planned, scored, mean FROM agent_tasks ORDER BY 1") == [
        ("hello-t0", 2, 2, 2, 0.5),
        ("hello-t1", 2, 2, 1, 0.5),
    ]
    assert ask(store, "SELECT outcome, reason, trials FROM failures") == [("infra_failed", "evicted", 1)]
    assert ask(store, "SELECT count(*) FROM provenance WHERE trials_of_key = 2") == [(2,)]
    assert {name for (name,) in ask(store, "SELECT view_name FROM duckdb_views() WHERE NOT internal")} == set(VIEWS)


def test_views_that_add_up_count_a_trial_once(store: DuckDbLeaderboard, tmp_path: Path):
    regrade, rows = make_run(2, [[0.0], [Reason.EVICTED]], regrade_of=run_id(1))
    rerun, more = make_run(3, [[1.0], [1.0]], rerun_of=run_id(1))
    store.write(
        [[small(tmp_path, 1, 1.0, 0.0), write_bundle(tmp_path, regrade, rows), write_bundle(tmp_path, rerun, more)]]
    )
    assert ask(store, "SELECT run_id, rerun_of, regrade_of FROM runs ORDER BY 1") == [
        (run_id(1), None, None),
        (run_id(2), None, run_id(1)),
        (run_id(3), run_id(1), None),
    ]
    assert ask(store, "SELECT task_ref[9:16], runs, planned, passed FROM agent_tasks ORDER BY 1") == [
        ("hello-t0", 2, 2, 2),
        ("hello-t1", 2, 2, 1),
    ]
    assert ask(store, "SELECT * FROM failures") == []
    assert dict(ask(store, "SELECT run_id, regrade_of FROM leaderboard"))[run_id(2)] == run_id(1)
    assert {run.run_id: run.regrade_of for run in store.rows("default")}[run_id(2)] == run_id(1)


def test_bundles_of_earlier_versions_have_nulls_where_nothing_was_recorded(store: DuckDbLeaderboard, tmp_path: Path):
    made = small(tmp_path, 1, 1.0)
    file = made.folder / "trials.parquet"
    later = "archive, archive_hash, agent_image, verifier_image, verifier_revision"
    with duckdb.connect(":memory:") as connection:
        connection.execute(f"CREATE TABLE t AS SELECT * EXCLUDE ({later}), 'x' AS later FROM read_parquet('{file}')")
        connection.execute(f"COPY t TO '{file}' (FORMAT parquet)")
    store.write([[made, small(tmp_path, 2, 1.0)]])
    assert ask(store, "SELECT archive_hash, verifier_revision FROM lineage ORDER BY run_id") == [
        (None, None),
        ("0" * 64, "0" * 64),
    ]


@pytest.fixture(scope="module")
def some(tmp_path_factory: pytest.TempPathFactory) -> Sequence[RankedBundle]:
    folder = tmp_path_factory.mktemp("bundles")
    chance = random.Random(5)
    ends: list[float | Reason] = [1.0, 0.0, 0.1, 0.7, Reason.EVICTED]
    return [
        write_bundle(folder, *make_run(n, [[chance.choice(ends) for _ in range(3)] for _ in range(4)]))
        for n in range(4)
    ]


@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_any_order_and_batches_give_the_same_bytes(
    some: Sequence[RankedBundle], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
):
    folder = tmp_path_factory.mktemp("orders")
    whole, grown = DuckDbLeaderboard(folder / "a"), DuckDbLeaderboard(folder / "b")
    whole.write([some], afresh=True)
    order = [*data.draw(st.permutations(range(4))), *data.draw(st.lists(st.integers(0, 3), max_size=2))]
    for n in order:
        grown.write([[some[n]]])
    assert dump(grown, folder / "grown") == dump(whole, folder / "whole")
    grown.write([[some[n]] for n in order], afresh=True)
    assert dump(grown, folder / "again") == dump(whole, folder / "whole")


def test_a_run_again_takes_the_place_of_what_was_there(store: DuckDbLeaderboard, tmp_path: Path):
    for rewards in ((0.1, 0.1), (1.0,)):
        store.write([[small(tmp_path, 1, *rewards)]])
    assert [row.mean for row in store.rows("default")] == [1.0]
    for table in TABLES:
        assert ask(store, f"SELECT count(*) FROM {table}") == [(1,)], table


def test_a_file_is_read_again_when_it_was_replaced_and_not_before(
    store: DuckDbLeaderboard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert store.version("default") == ""
    store.write([[small(tmp_path, 1, 1.0)]])
    before = store.version("default")
    assert store.run_ids() == {run_id(1)}
    with monkeypatch.context() as closed:
        closed.setattr(store, "_ask", lambda *_: 1 / 0)
        assert store.run_ids() == {run_id(1)}
    store.write([[small(tmp_path, 2, 1.0)]])
    assert store.version("default") != before
    assert store.run_ids() == {run_id(1), run_id(2)}


def test_a_file_that_is_none_of_ours_is_made_afresh(store: DuckDbLeaderboard, tmp_path: Path):
    store.write([[small(tmp_path, 1, 1.0)]])
    for content in (b"torn" * 1000, b""):
        store.file_of("default").write_bytes(content)
        assert store.run_ids() == frozenset()
        store.write([[small(tmp_path, 2, 1.0)]])
        assert store.run_ids() == {run_id(2)}


def test_an_earlier_layout_is_made_afresh_and_the_store_of_before_is_removed(store: DuckDbLeaderboard, tmp_path: Path):
    store.write([[small(tmp_path, 1, 1.0)]])
    old = tmp_path / "board" / "leaderboard.duckdb"
    old.write_bytes(b"one file for all")
    with duckdb.connect(str(store.file_of("default"))) as connection:
        connection.execute("UPDATE layout SET version = 1")
    assert (store.run_ids(), store.rows("default")) == (frozenset(), [])
    store.write([[small(tmp_path, 2, 1.0)]])
    assert store.run_ids() == {run_id(2)}
    assert not old.exists()


def test_a_rebuild_forgets_what_has_no_bundle_any_more(store: DuckDbLeaderboard, tmp_path: Path):
    store.write([[small(tmp_path, 1, 1.0), small(tmp_path, 2, 1.0, workspace="gone")]])
    store.write([[small(tmp_path, 3, 1.0)]], afresh=True)
    assert store.run_ids() == {run_id(3)}
    assert not store.file_of("gone").exists()


def test_a_bundle_that_cannot_be_read_is_left_out_as_a_whole_and_named(store: DuckDbLeaderboard, tmp_path: Path):
    bundles = [small(tmp_path, n, 1.0) for n in range(3)]
    (bundles[1].folder / "scores.parquet").write_bytes(b"torn")
    written = store.write([bundles])
    assert written.runs == (run_id(0), run_id(2))
    ((failed, why),) = written.failed
    assert failed == run_id(1)
    assert "cannot be read" in why
    assert ask(store, "SELECT DISTINCT run_id FROM trials ORDER BY 1") == [(run_id(0),), (run_id(2),)]


def test_what_breaks_midway_leaves_the_old(store: DuckDbLeaderboard, tmp_path: Path):
    store.write([[small(tmp_path, 1, 1.0)]])

    def batches() -> Iterator[Sequence[RankedBundle]]:
        yield [small(tmp_path, 2, 1.0)]
        raise Broken("no more")

    with pytest.raises(Broken):
        store.write(batches())
    assert store.run_ids() == {run_id(1)}
    assert sorted(path.name for path in store.file_of("default").parent.iterdir()) == [
        store.file_of("default").name,
        "lock",
    ]


KILLED = """
import os, signal, sys
from pathlib import Path
from harbor_assets.leaderboard.store import DuckDbLeaderboard
from tests.leaderboard.bundles import small
folder = Path(sys.argv[1])
def batches():
    yield [small(folder, 2, 1.0)]
    os.kill(os.getpid(), signal.SIGKILL)
DuckDbLeaderboard(folder / "board" / "leaderboard.duckdb").write(batches())
"""


def test_a_writer_killed_midway_leaves_the_old_and_the_next_goes_on(store: DuckDbLeaderboard, tmp_path: Path):
    store.write([[small(tmp_path, 1, 1.0)]])
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=root, env={**os.environ}, check=False)
    assert done.returncode == -signal.SIGKILL
    assert store.run_ids() == {run_id(1)}
    store.write([[small(tmp_path, 3, 1.0)]])
    assert store.run_ids() == {run_id(1), run_id(3)}
    assert not list(store.file_of("default").parent.glob(".*"))


def test_readers_and_two_writers_never_meet_half_a_write(store: DuckDbLeaderboard, tmp_path: Path):
    batches = {writer: [small(tmp_path, 10 * writer + n, 1.0) for n in range(4)] for writer in (1, 2)}
    seen: list[frozenset[str]] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.append(store.run_ids())

    reader = threading.Thread(target=read)
    reader.start()
    writers = [threading.Thread(target=store.write, args=([batch],)) for batch in batches.values()]
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    assert len(store.run_ids()) == 8
    assert {len(found) for found in seen} <= {0, 4, 8}
