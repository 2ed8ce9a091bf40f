"""Several processes on one catalog: no revision twice, no run twice, nothing half after a kill."""

import json
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from harbor_assets.catalog.store import Catalog
from harbor_assets.domain.errors import ServiceUnavailable
from tests.catalog.samples import body

PRELUDE = """
    import json, sys, time
    from pathlib import Path
    from harbor_assets.catalog import open_catalog
    from tests.catalog.samples import A, B, body, plan
    import harbor_assets.catalog.store  # all imports are done before the start
    url, number, go = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    print("ready", flush=True)
    while not go.exists():
        time.sleep(0.001)
    catalog = open_catalog(url)
"""


def start(url: str, go: Path, script: str, count: int = 4) -> list[subprocess.Popen[str]]:
    """`count` processes that stand ready; they run `script` once `go` exists."""
    code = textwrap.dedent(PRELUDE) + textwrap.dedent(script)
    processes = [
        subprocess.Popen([sys.executable, "-c", code, url, str(n), str(go)], stdout=subprocess.PIPE, text=True)
        for n in range(count)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    return processes


def answers(processes: Sequence[subprocess.Popen[str]]) -> list[Any]:
    found = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    assert all(process.returncode == 0 for process in processes)
    return found


def test_four_processes_on_a_fresh_home(url: str, tmp_path: Path) -> None:
    """All open it at once. Equal content cuts one revision, different contents get an ordinal each, one key one run."""
    processes = start(
        url,
        tmp_path / "go",
        """
        same = [catalog.put_task("ws", "same", body("one"))[1] for _ in range(20)]
        own = [catalog.put_task("ws", "own", body(f"{number}-{i}")) for i in range(20)]
        runs = [catalog.add_run(plan(), request_digest=A, idempotency_key=f"k{i}") for i in range(10)]
        print(json.dumps([sum(same), [[t.revision, cut] for t, cut in own], [[r.id, new] for r, new in runs]]))
        """,
    )
    (tmp_path / "go").touch()
    found = answers(processes)
    assert sum(cuts for cuts, _, _ in found) == 1
    assert sorted(revision for _, own, _ in found for revision, cut in own if cut) == list(range(1, 81))
    for nth in zip(*(runs for _, _, runs in found), strict=True):
        assert len({run_id for run_id, _ in nth}) == 1
        assert Counter(new for _, new in nth) == {True: 1, False: 3}
    with Catalog.open(url) as catalog:
        assert catalog.get_task("ws", "same").revision == 1
        assert catalog.get_task("ws", "own").revision == 80
        assert catalog.list_runs().total == 10


def test_threads_share_a_catalog(url: str) -> None:
    cuts: list[bool] = []
    with Catalog.open(url) as catalog:

        def work() -> None:
            cuts.extend(catalog.put_task("ws", f"t{n}", body("one"))[1] for n in range(10))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(cuts), sum(cuts)) == (80, 10)
        assert catalog.list_tasks("ws").total == 10


def test_a_write_that_waits_too_long_says_so_and_reads_go_on(url: str) -> None:
    hold = "BEGIN IMMEDIATE" if url.startswith("sqlite") else "LOCK TABLE tasks IN EXCLUSIVE MODE"
    other = create_engine(url, isolation_level="AUTOCOMMIT" if url.startswith("sqlite") else "READ COMMITTED")
    with Catalog.open(url, busy_seconds=0.3) as catalog:
        catalog.put_task("ws", "t", body())
        with other.connect() as connection:
            connection.exec_driver_sql(hold)
            began = time.monotonic()
            with pytest.raises(ServiceUnavailable, match="try again"):
                catalog.put_task("ws", "t", body("new"))
            assert 0.2 < time.monotonic() - began < 10
            assert catalog.get_task("ws", "t").revision == 1
            connection.exec_driver_sql("ROLLBACK")
        assert catalog.put_task("ws", "t", body("new"))[1]
    other.dispose()


@pytest.mark.parametrize("after", [0.02, 0.3])
def test_kill_9_while_writing_leaves_whole_records(tmp_path: Path, after: float) -> None:
    file = tmp_path / "c.db"
    url = f"sqlite:///{file}"
    processes = start(
        url,
        tmp_path / "go",
        """
        from tests.catalog.samples import outcome
        for i in range(10_000):
            catalog.put_task("ws", f"t{i % 7}", body(f"{number}-{i}", tags=["mine"]))
            run, _ = catalog.add_run(plan(), request_digest=A, idempotency_key=f"{number}-{i}")
            catalog.begin_execution(run.id)
            catalog.add_outcome(outcome(run.id))
        """,
        count=2,
    )
    (tmp_path / "go").touch()
    time.sleep(after)
    for process in processes:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    with Catalog.open(url) as catalog:
        tasks = catalog.list_tasks("ws")
        runs = catalog.list_runs(page_size=1000)
        assert tasks.unreadable == runs.unreadable == ()
        for task in tasks.items:
            assert task.tags == {"latest": task.revision, "mine": task.revision}
            assert catalog.get_task("ws", task.name, task.digest).revision == task.revision
        assert catalog.put_task("ws", "after", body("one"))[1]
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        counts = [
            connection.execute(f"SELECT count(*) FROM {table}").fetchone() for table in ("runs", "plans", "idempotency")
        ]
    assert counts[0] == counts[1] == counts[2] == (runs.total,)
