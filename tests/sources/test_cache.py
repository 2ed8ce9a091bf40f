"""The status cache: right or silent, never wrong, never in the way."""

import os
import sqlite3
import time
from pathlib import Path

import pytest

from harbor_assets.sources import cache as caching
from harbor_assets.sources.cache import StatusCache
from harbor_assets.sources.scan import Scan, scan
from tests.suites.make import make_task


@pytest.fixture
def task(tmp_path: Path) -> Path:
    return make_task(tmp_path / "suite", "hello", native_id="tests/hello")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "status.db"


@pytest.fixture
def at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of this test count as old at once."""
    monkeypatch.setattr(caching, "_RACY_NS", -(10**18))


@pytest.mark.usefixtures("at_rest")
def test_what_was_stored_is_known_until_a_file_changes(task: Path, file: Path):
    with StatusCache(file) as cache:
        assert cache.get(scan(task), "k") is None
        cache.put(scan(task), "k", "value")
        assert cache.get(scan(task), "other") is None
    with StatusCache(file) as cache:
        assert cache.get(scan(task), "k") == "value"
        (task / "tests" / "test.sh").write_text("changed")
        assert cache.get(scan(task), "k") is None


CHANGES = {
    "content of the same length": lambda t: (t / "instruction.md").write_text(
        "x" * (t / "instruction.md").stat().st_size
    ),
    "content, with the old time put back": lambda t: _edit_secretly(t / "instruction.md"),
    "mode": lambda t: (t / "tests" / "test.sh").chmod(0o700),
    "mode of a folder": lambda t: (t / "tests").chmod(0o700),
    "mode of the task": lambda t: t.chmod(0o700),
    "a new file": lambda t: (t / "new").write_text(""),
    "a new folder": lambda t: (t / "new").mkdir(),
    "a removed file": lambda t: (t / "solution" / "solve.sh").unlink(),
    "a renamed file": lambda t: (t / "instruction.md").rename(t / "other.md"),
    "another file put in its place": lambda t: _replace(t / "instruction.md"),
    "a file become a link": lambda t: ((t / "instruction.md").unlink(), (t / "instruction.md").symlink_to("task.toml")),
}


def _edit_secretly(path: Path) -> None:
    before = path.stat()
    path.write_bytes(b"y" * before.st_size)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _replace(path: Path) -> None:
    before, other = path.stat(), path.with_name("other")
    other.write_bytes(path.read_bytes())
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)


@pytest.mark.usefixtures("at_rest")
@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_seen(task: Path, file: Path, change: str):
    time.sleep(0.02)  # the kernel's clock for file times ticks every few milliseconds
    with StatusCache(file) as cache:
        cache.put(scan(task), "k", "value")
        CHANGES[change](task)
        assert cache.get(scan(task), "k") is None


def test_a_file_changed_a_moment_ago_is_not_trusted(task: Path, file: Path):
    with StatusCache(file) as cache:
        cache.put(scan(task), "k", "value")
        assert cache.get(scan(task), "k") is None
        seen = scan(task)
        later = Scan(
            seen.folder, seen.entries, seen.unreadable, seen.signature, seen.newest_ns, seen.newest_ns + 2_000_000_000
        )
        cache.put(later, "k", "value")
        assert cache.get(scan(task), "k") == "value"


@pytest.mark.usefixtures("at_rest")
def test_rehash_believes_only_what_it_stored_itself(task: Path, file: Path):
    with StatusCache(file) as cache:
        cache.put(scan(task), "k", "old")
    with StatusCache(file, rehash=True) as cache:
        assert cache.get(scan(task), "k") is None
        cache.put(scan(task), "k", "new")
        assert cache.get(scan(task), "k") == "new"
    with StatusCache(file) as cache:
        assert cache.get(scan(task), "k") == "new"


@pytest.mark.usefixtures("at_rest")
def test_another_version_of_the_code_believes_nothing(task: Path, file: Path, monkeypatch: pytest.MonkeyPatch):
    with StatusCache(file) as cache:
        cache.put(scan(task), "k", "value")
    monkeypatch.setattr(caching, "version", lambda name: "99")
    with StatusCache(file) as cache:
        assert cache.get(scan(task), "k") is None


@pytest.mark.usefixtures("at_rest")
def test_a_damaged_cache_is_made_anew(task: Path, file: Path, caplog: pytest.LogCaptureFixture):
    file.parent.mkdir()
    file.write_bytes(b"this is no database" * 1000)
    with StatusCache(file) as cache:
        cache.put(scan(task), "k", "value")
        assert cache.get(scan(task), "k") is None
    assert "cannot be used" in caplog.text
    with StatusCache(file) as cache:
        cache.put(scan(task), "k", "value")
        assert cache.get(scan(task), "k") == "value"


def test_a_cache_that_cannot_be_written_is_as_if_there_were_none(task: Path, tmp_path: Path):
    (tmp_path / "file").write_text("")
    with StatusCache(tmp_path / "file" / "status.db") as cache:
        cache.put(scan(task), "k", "value")
        assert cache.get(scan(task), "k") is None


@pytest.mark.usefixtures("at_rest")
def test_a_cache_held_by_another_command_is_not_waited_for_long(
    task: Path, file: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(caching, "_BUSY_SECONDS", 0.01)
    with StatusCache(file) as cache:
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        cache.put(scan(task), "k", "value")
        assert cache.get(scan(task), "k") is None
        other.close()
    assert file.exists()


@pytest.mark.usefixtures("at_rest")
def test_what_nobody_asked_for_is_forgotten_and_what_is_used_is_not(
    task: Path, file: Path, monkeypatch: pytest.MonkeyPatch
):
    now = [time.time()]
    monkeypatch.setattr(caching.time, "time", lambda: now[0])
    with StatusCache(file) as cache:
        cache.put(scan(task), "used", "value")
        cache.put(scan(task), "forgotten", "value")
    for _ in range(2):
        now[0] += 60 * 24 * 3600
        with StatusCache(file) as cache:
            assert cache.get(scan(task), "used") == "value"
    with StatusCache(file) as cache:
        assert cache.get(scan(task), "forgotten") is None


@pytest.mark.usefixtures("at_rest")
def test_folders_whose_names_are_no_text_are_cached_as_well(tmp_path: Path, file: Path):
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    with StatusCache(file) as cache:
        cache.put(scan(folder), "k", "value")
        assert cache.get(scan(folder), "k") == "value"
