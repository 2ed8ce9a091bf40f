"""What goes wrong with a catalog on a disk: locks, full disks, files that are none, contents changed by hand."""

import os
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from harbor_assets.catalog import open_catalog
from harbor_assets.catalog.store import Catalog
from harbor_assets.domain.errors import Broken, HomeUnusable, Refused, ServiceUnavailable, StorageFull
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.domain.tasks import TasksetInput
from tests.catalog.samples import A, body, outcome, plan

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "100% of #1?" / "catalog.db"


@pytest.fixture
def catalog(file: Path) -> Iterator[Catalog]:
    file.parent.mkdir()
    with Catalog.open(f"sqlite:///{file}", busy_seconds=0.3) as opened:
        yield opened


def by_hand(file: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        assert connection.execute(statement, values).rowcount == 1


def test_the_path_is_taken_as_it_stands(catalog: Catalog, file: Path) -> None:
    catalog.put_task("ws", "t", body())
    assert file.exists()


def test_how_the_file_is_used(catalog: Catalog, file: Path) -> None:
    with catalog._database.read() as connection:
        found = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert found == {"journal_mode": "wal", "synchronous": 1, "foreign_keys": 1, "busy_timeout": 300}


def test_a_fresh_file_that_another_process_is_making_is_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "c.db"
    with closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(0.3, other.execute, ["ROLLBACK"])
        release.start()
        with Catalog.open(f"sqlite:///{file}", busy_seconds=10) as catalog:
            assert catalog.list_runs().total == 0
        release.join()
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize("what", ["text", "folder", "no folder above", "half a database"])
def test_a_file_that_is_no_catalog(tmp_path: Path, what: str) -> None:
    file = tmp_path / "home" / "catalog.db"
    if what != "no folder above":
        file.parent.mkdir()
    match what:
        case "text":
            file.write_text("this is no database, but long enough to be looked at as one\n" * 100)
        case "folder":
            file.mkdir()
        case "half a database":
            with Catalog.open(f"sqlite:///{file}") as whole:
                whole.put_task("ws", "t", body())
            data = file.read_bytes()
            file.write_bytes(data[:100] + b"\xff" * (len(data) - 100))
    with Catalog.open(f"sqlite:///{file}") as catalog, pytest.raises(HomeUnusable, match="HARBOR_ASSETS_HOME"):
        catalog.list_runs()


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_catalog_that_cannot_be_written(catalog: Catalog, file: Path) -> None:
    catalog.put_task("ws", "t", body())
    catalog.close()
    file.chmod(0o400)
    with pytest.raises(HomeUnusable, match="HARBOR_ASSETS_HOME"):
        catalog.put_task("ws", "t", body("new"))
    file.chmod(0o600)


@pytest.mark.parametrize("url", ["mysql://eva:hunter2@host/db", "sqlite://", "sqlite:///", "catalog.db", "://"])
def test_a_url_that_is_no_catalog(url: str) -> None:
    with pytest.raises(Refused, match="no catalog") as caught:
        open_catalog(url)
    assert "hunter2" not in str(caught.value)


def test_a_server_that_does_not_answer() -> None:
    pytest.importorskip("psycopg", reason="the driver of Postgres is not installed")
    with (
        Catalog.open("postgresql://eva:hunter2@127.0.0.1:1/db", busy_seconds=1) as catalog,
        pytest.raises(ServiceUnavailable, match="try again") as caught,
    ):
        catalog.list_runs()
    assert "hunter2" not in str(caught.value)


def test_content_changed_by_hand_is_told_on_every_read(catalog: Catalog, file: Path) -> None:
    task, _ = catalog.put_task("ws", "t", body("one"))
    taskset, _ = catalog.put_taskset("ws", "s", TasksetInput(tasks=["t"]))
    catalog.put_task("ws", "fine", body())
    by_hand(
        file, "UPDATE task_revisions SET body = replace(body, 'org/task', 'org/other') WHERE digest = ?", task.digest
    )
    by_hand(file, "UPDATE taskset_revisions SET body = 'no json'")
    for read in (
        lambda: catalog.get_task("ws", "t"),
        lambda: catalog.get_task("ws", "t", task.digest),
        lambda: catalog.get_tasks("ws", ["t"]),
        lambda: catalog.get_pinned_tasks([task.ref]),
    ):
        with pytest.raises(Broken, match=r"ws/t revision 1 is not what its digest says"):
            read()
    with pytest.raises(Broken, match="ws/s revision 1 cannot be read"):
        catalog.get_taskset("ws", "s", taskset.digest)
    page = catalog.list_tasks("ws")
    assert ([item.name for item in page.items], page.unreadable, page.total) == (["fine"], ("ws/t",), 2)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "other run", "newer"])
def test_a_plan_that_cannot_be_read(catalog: Catalog, file: Path, text: str) -> None:
    run, other = (catalog.add_run(plan(), request_digest=A)[0] for _ in range(2))
    catalog.mark_started(run.id, NOW)
    stored = {"other run": other.plan.model_dump_json(), "newer": run.plan.model_dump_json()[:-1] + ',"sharding":3}'}
    by_hand(file, "UPDATE plans SET plan = ? WHERE run_id = ?", stored.get(text, text), run.id)
    for read in (lambda: catalog.get_run(run.id), lambda: catalog.begin_execution(run.id)):
        with pytest.raises(Broken, match=f"^plan_unreadable: run {run.id}"):
            read()
    page = catalog.list_runs()
    assert ([item.id for item in page.items], page.unreadable, page.total) == ([other.id], (run.id,), 2)
    assert catalog.list_runs(active=True).unreadable == (run.id,), "its phase stays"
    with pytest.raises(Broken):
        catalog.finish(run.id, RunPhase.FAILED, ResultState.NONE, at=NOW, error="plan_unreadable")
    assert catalog.list_runs(active=True).unreadable == (), "but it can be ended"


def test_an_outcome_that_cannot_be_read(catalog: Catalog, file: Path) -> None:
    run, _ = catalog.add_run(plan(), request_digest=A)
    catalog.add_outcome(outcome(run.id, 1))
    by_hand(file, "UPDATE outcomes SET body = replace(body, 'graded', 'guessed')")
    with pytest.raises(Broken, match=f"outcome 1/1 of run {run.id}"):
        catalog.outcomes(run.id)
    assert catalog.count_outcomes([run.id]) == {run.id: {"scored": 1}}


def test_text_that_no_database_takes_is_escaped(catalog: Catalog) -> None:
    run, _ = catalog.add_run(plan(), request_digest=A)
    ended = catalog.finish(run.id, RunPhase.FAILED, ResultState.NONE, at=NOW, error="a\0b \udcff é")
    assert ended.error == r"a\x00b \udcff é"


def test_a_time_without_an_offset_is_a_bug_of_ours(catalog: Catalog) -> None:
    run, _ = catalog.add_run(plan(), request_digest=A)
    with pytest.raises(ValueError, match="no offset"):
        catalog.mark_started(run.id, datetime(2030, 1, 1))
    assert catalog.get_run(run.id).started_at is None


def test_too_long_an_owner_or_key(catalog: Catalog) -> None:
    with pytest.raises(Refused, match="256 characters"):
        catalog.add_run(plan(owner="x" * 256), request_digest=A)
    with pytest.raises(Refused, match="256 characters"):
        catalog.add_run(plan(), request_digest=A, idempotency_key="x" * 256)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mounted = tmp_path / "disk"
    mounted.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mounted)], check=True)
    yield mounted
    subprocess.run(["umount", "-l", str(mounted)], check=True)


@pytest.mark.req_root
def test_a_full_disk_is_told_and_nothing_is_lost(small_disk: Path) -> None:
    with Catalog.open(f"sqlite:///{small_disk}/c.db") as catalog:
        catalog.put_task("ws", "t", body("one"))
        stored: list[str] = []

        def fill() -> None:
            for number in range(200):
                catalog.put_task("ws", f"big{number}", body(instruction="x" * 20_000))
                stored.append(f"big{number}")

        with pytest.raises(StorageFull, match="No space left"):
            fill()
        assert stored
        assert set(catalog.get_tasks("ws", stored)) == set(stored)
        assert catalog.list_tasks("ws").total == 1 + len(stored)


@pytest.mark.req_root
def test_a_disk_that_is_full_already(small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(b"x" * (1 << 20))
    with Catalog.open(f"sqlite:///{small_disk}/c.db") as catalog:
        with pytest.raises(StorageFull, match="No space left"):
            catalog.list_runs()
        (small_disk / "filler").unlink()
        assert catalog.list_runs().total == 0


@pytest.mark.req_root
def test_an_old_catalog_on_a_disk_that_is_full(small_disk: Path) -> None:
    url = f"sqlite:///{small_disk}/c.db"
    with Catalog.open(url) as catalog:
        catalog.put_task("ws", "t", body("one"))
    room = os.statvfs(small_disk)
    (small_disk / "filler").write_bytes(b"x" * (room.f_bavail * room.f_frsize))
    with Catalog.open(url) as catalog, pytest.raises(StorageFull, match="No space left"):
        catalog.put_task("ws", "t", body("two"))
    (small_disk / "filler").unlink()
    with Catalog.open(url) as catalog:
        assert catalog.get_task("ws", "t").revision == 1
