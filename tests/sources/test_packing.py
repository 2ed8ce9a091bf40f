"""Archives for the publisher, and task folders made of archives again."""

import errno
import hashlib
import os
import threading
import time
from pathlib import Path

import pytest

from harbor_assets.domain.archives import archive_key, fileset_ref
from harbor_assets.domain.errors import Broken, HomeUnusable, NotFound, Refused, StorageFull
from harbor_assets.domain.plans import PlannedTask
from harbor_assets.domain.suites import SourceTask
from harbor_assets.sources import cache as caching
from harbor_assets.sources import folders as foldering
from harbor_assets.sources import packing
from harbor_assets.sources.archive import pack
from harbor_assets.sources.cache import StatusCache
from harbor_assets.sources.directory import read_suite
from harbor_assets.sources.folders import ArchiveTaskFolders
from harbor_assets.sources.packager import package_digest
from harbor_assets.sources.packing import FolderPacker
from harbor_assets.sources.scan import scan
from tests.fakes.artifacts import MemoryArtifacts
from tests.suites.make import make_task


@pytest.fixture
def task(tmp_path: Path) -> SourceTask:
    make_task(tmp_path / "suite", "hello", native_id="tests/hello")
    return read_suite(tmp_path / "suite").tasks[0]


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return scratch


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Every folder that is packed, in order; files count as old at once."""
    packed: list[Path] = []
    monkeypatch.setattr(packing, "pack", lambda folder, dest: packed.append(folder) or pack(folder, dest))
    monkeypatch.setattr(caching, "_RACY_NS", -(10**18))
    return packed


def test_a_task_is_packed_once(task: SourceTask, scratch: Path, counted: list[Path]):
    with FolderPacker(scratch).open(task) as packed:
        assert packed.package_digest == package_digest(scan(Path(task.folder)))
        assert packed.files_hash == hashlib.sha256(packed.path().read_bytes()).hexdigest()
        assert packed.files_hash == pack(Path(task.folder), None)
    assert len(counted) == 1
    assert list(scratch.iterdir()) == []


def test_the_hashes_of_an_unchanged_task_are_known(
    task: SourceTask, scratch: Path, tmp_path: Path, counted: list[Path]
):
    with StatusCache(tmp_path / "status.db") as cache:
        with FolderPacker(scratch, cache).open(task) as first:
            hashes = first.package_digest, first.files_hash
        with FolderPacker(scratch, cache).open(task) as packed:
            assert (packed.package_digest, packed.files_hash) == hashes
            assert len(counted) == 1
            assert hashlib.sha256(packed.path().read_bytes()).hexdigest() == packed.files_hash
            assert packed.path() == packed.path()
        assert len(counted) == 2
    with StatusCache(tmp_path / "status.db", rehash=True) as cache, FolderPacker(scratch, cache).open(task):
        assert len(counted) == 3


def test_a_task_that_moved_under_our_hands_is_refused(task: SourceTask, scratch: Path, monkeypatch: pytest.MonkeyPatch):
    instruction = Path(task.folder) / "instruction.md"
    monkeypatch.setattr(packing, "package_digest", lambda seen: str(instruction.write_text("changed while hashed")))
    with pytest.raises(Refused, match="changed since it was read"), FolderPacker(scratch).open(task):
        pass
    with pytest.raises(Refused, match="changed since it was read"), FolderPacker(scratch).open(task):
        pass
    Path(task.folder).rename(f"{task.folder}-moved")
    with pytest.raises(Refused, match="cannot be read: No such file"), FolderPacker(scratch).open(task):
        pass
    assert list(scratch.iterdir()) == []


def test_only_old_left_overs_are_cleared_away(scratch: Path):
    for name, age in (("pack-old", 25 * 3600), ("pack-new", 60), ("other", 10**6)):
        (scratch / name).write_text("")
        os.utime(scratch / name, (time.time() - age,) * 2)
    FolderPacker(scratch)
    assert sorted(path.name for path in scratch.iterdir()) == ["other", "pack-new"]


@pytest.fixture
def artifacts() -> MemoryArtifacts:
    return MemoryArtifacts()


@pytest.fixture
def planned(task: SourceTask, scratch: Path, artifacts: MemoryArtifacts) -> PlannedTask:
    files_hash = pack(Path(task.folder), scratch / "archive")
    ref = fileset_ref("default", "hello", files_hash)
    artifacts.put_file(archive_key(ref), scratch / "archive")
    return PlannedTask(
        index=0,
        name=task.stored_name,
        native_task_id=task.native_task_id,
        ref=f"default/{task.stored_name}#{'0' * 64}",
        fileset_ref=ref,
        files_hash=files_hash,
        trial_key="0" * 64,
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "tasks"


def folders(artifacts: MemoryArtifacts, root: Path) -> ArchiveTaskFolders:
    return ArchiveTaskFolders(artifacts, root)


def test_a_task_is_unpacked_once_and_kept(planned: PlannedTask, artifacts: MemoryArtifacts, root: Path):
    first = folders(artifacts, root).get(planned)
    assert first == root / planned.files_hash / "hello"
    assert pack(first, None) == planned.files_hash
    assert root.stat().st_mode & 0o777 == 0o700
    artifacts.objects.clear()
    inode = first.stat().st_ino
    assert folders(artifacts, root).get(planned) == first
    assert first.stat().st_ino == inode


def test_a_touched_folder_is_compared_and_kept_if_its_content_is_right(
    planned: PlannedTask, artifacts: MemoryArtifacts, root: Path, monkeypatch: pytest.MonkeyPatch
):
    first = folders(artifacts, root).get(planned)
    artifacts.objects.clear()
    os.utime(first / "task.toml", (1, 1))
    assert folders(artifacts, root).get(planned) == first
    monkeypatch.setattr(foldering, "_content_hash", lambda folder: pytest.fail("the marker was not renewed"))
    assert folders(artifacts, root).get(planned) == first


@pytest.mark.parametrize("damage", ["content", "new file", "removed", "emptied", "second root", "a file in its place"])
def test_a_changed_folder_is_replaced(planned: PlannedTask, artifacts: MemoryArtifacts, root: Path, damage: str):
    first = folders(artifacts, root).get(planned)
    if damage == "content":
        (first / "tests" / "test.sh").write_text("echo 1 > /logs/verifier/reward.txt")
    elif damage == "new file":
        (first / "new").write_text("")
    elif damage == "removed":
        (first / "instruction.md").unlink()
    elif damage == "emptied":
        first.rename(root / "elsewhere")
    elif damage == "second root":
        (first.parent / "other").mkdir()
    else:
        first.rename(root / "elsewhere")
        first.parent.rmdir()
        first.parent.write_text("")
    again = folders(artifacts, root).get(planned)
    assert pack(again, None) == planned.files_hash
    assert not [path for path in root.iterdir() if path.name.startswith(".")]


def test_a_kill_before_the_marker_costs_a_comparison_only(planned: PlannedTask, artifacts: MemoryArtifacts, root: Path):
    first = folders(artifacts, root).get(planned)
    (root / f"{planned.files_hash}.json").unlink()
    artifacts.objects.clear()
    assert folders(artifacts, root).get(planned) == first
    (root / f"{planned.files_hash}.json").write_text("cut sho")
    assert folders(artifacts, root).get(planned) == first


def test_several_at_once_get_the_same_folder(planned: PlannedTask, artifacts: MemoryArtifacts, root: Path):
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(folders(artifacts, root).get(planned))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [root / planned.files_hash / "hello"] * 8


def test_what_is_wrong_with_an_archive_is_said(planned: PlannedTask, artifacts: MemoryArtifacts, root: Path):
    key = archive_key(planned.fileset_ref)
    data = artifacts.objects.pop(key)
    with pytest.raises(NotFound):
        folders(artifacts, root).get(planned)
    artifacts.objects[key] = data[:-5]
    with pytest.raises(Broken, match="ends too early"):
        folders(artifacts, root).get(planned)
    artifacts.objects[key] = data
    with pytest.raises(Broken, match="not the one of hash"):
        folders(artifacts, root).get(planned.model_copy(update={"files_hash": "0" * 64}))
    assert list(root.iterdir()) == []


def test_a_place_that_cannot_be_written_is_said(planned: PlannedTask, artifacts: MemoryArtifacts, tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HomeUnusable, match="HARBOR_ASSETS_HOME"):
        folders(artifacts, tmp_path / "file" / "tasks").get(planned)


def test_a_full_disk_is_said_so_and_leaves_nothing(
    planned: PlannedTask, artifacts: MemoryArtifacts, root: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(self: Path, *args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(StorageFull, match="no space left"):
        folders(artifacts, root).get(planned)
    assert [path.name for path in root.iterdir()] == [planned.files_hash]
