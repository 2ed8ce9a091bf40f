"""What is particular to the store in a folder: places, kills, full disks."""

import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harbor_assets.artifacts import disk, tree
from harbor_assets.artifacts.folder import FolderArtifacts
from harbor_assets.domain.errors import HomeUnusable, Refused, StorageFull


@pytest.fixture
def store(tmp_path: Path) -> FolderArtifacts:
    return FolderArtifacts(tmp_path / "store")


def make_tree(folder: Path, text: str, files: int = 5) -> Path:
    (folder / "sub").mkdir(parents=True)
    for number in range(files):
        (folder / "sub" / f"{number}").write_text(text)
    (folder / "empty").mkdir()
    return folder


def test_nothing_is_made_before_the_first_write(store: FolderArtifacts) -> None:
    assert list(store.list("a")) == []
    assert not store.exists("a")
    store.remove("a")
    assert store.sweep() == 0
    assert not store.root.exists()


def test_the_url_is_the_path(store: FolderArtifacts) -> None:
    store.put_bytes("a/b", b"1")
    assert Path(store.url("a/b")).read_bytes() == b"1"


def test_a_tree_on_the_same_disk_is_moved_with_its_empty_folders(store: FolderArtifacts, tmp_path: Path) -> None:
    source = make_tree(tmp_path / "t", "x")
    inode = (source / "sub" / "0").stat().st_ino
    store.put_tree("t", source)
    assert (store.root / "t" / "sub" / "0").stat().st_ino == inode
    assert (store.root / "t" / "empty").is_dir()
    assert not source.exists()


def test_a_tree_from_another_disk_is_copied(store: FolderArtifacts, other_file_system: Path) -> None:
    source = make_tree(other_file_system / "t", "x")
    (source / "link").symlink_to("/etc/passwd")
    assert store.put_tree("t", source) == 1
    assert [name for name, _ in store.list("t")] == [f"sub/{n}" for n in range(5)]
    assert (store.root / "t" / "empty").is_dir()
    assert (source / "sub" / "0").read_text() == "x"
    assert sorted(p.name for p in store.root.iterdir()) == ["t"]


def test_no_mode_of_an_agents_making_is_kept(store: FolderArtifacts, tmp_path: Path) -> None:
    source = make_tree(tmp_path / "t", "x")
    (source / "sub" / "0").chmod(0o6777)
    (source / "sub").chmod(0o1777)
    store.put_tree("t", source)
    assert (store.root / "t/sub/0").stat().st_mode & 0o7777 == 0o644
    assert (store.root / "t/sub").stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize("can_exchange", [True, False])
def test_replacing_a_tree_leaves_nothing_behind(
    store: FolderArtifacts, tmp_path: Path, can_exchange: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not can_exchange:
        monkeypatch.setattr(disk, "exchange", lambda *_: False)
    store.put_tree("t", make_tree(tmp_path / "1", "old", files=9))
    store.put_tree("t", make_tree(tmp_path / "2", "new"))
    assert [name for name, _ in store.list("t")] == [f"sub/{n}" for n in range(5)]
    assert (store.root / "t/sub/0").read_text() == "new"
    assert sorted(p.name for p in store.root.iterdir()) == ["t"]
    assert not (tmp_path / "2").exists()


def test_exchange_swaps_two_folders(tmp_path: Path) -> None:
    one, other = make_tree(tmp_path / "1", "one"), make_tree(tmp_path / "2", "other")
    if not hasattr(ctypes.CDLL(None), "renameat2"):
        pytest.skip("this C library has no renameat2")
    assert disk.exchange(one, other)
    assert (one / "sub/0").read_text() == "other"
    assert (other / "sub/0").read_text() == "one"
    with pytest.raises(FileNotFoundError):
        disk.exchange(one, tmp_path / "nothing")


def test_a_reader_never_meets_a_half(store: FolderArtifacts, tmp_path: Path) -> None:
    """A tree and a file are replaced again and again while another thread reads them."""
    store.put_tree("t", make_tree(tmp_path / "first", "0000"))
    store.put_bytes("f", b"0" * 100_000)
    stop = threading.Event()
    seen: set[int] = set()
    wrong: list[str] = []

    def reader() -> None:
        while not stop.is_set():
            with store.open("f") as stream:
                data = stream.read()
            if len(data) != 100_000 or len(set(data)) != 1:
                wrong.append(f"file of {len(data)} bytes")
            handle = os.open(store.root / "t", os.O_RDONLY)  # one tree, whatever replaces it
            try:
                seen.add(os.fstat(handle).st_ino)
            finally:
                os.close(handle)

    thread = threading.Thread(target=reader)
    thread.start()
    try:
        for number in range(1, 30):
            store.put_tree("t", make_tree(tmp_path / str(number), f"{number:04}"))
            store.put_bytes("f", f"{number % 10}".encode() * 100_000)
    except BaseException:
        stop.set()
        raise
    stop.set()
    thread.join()
    assert not wrong
    assert len(seen) > 1


def test_objects_and_folders_do_not_take_each_others_place(store: FolderArtifacts, tmp_path: Path) -> None:
    store.put_bytes("file", b"1")
    store.put_bytes("folder/file", b"1")
    with pytest.raises(Refused):
        store.put_bytes("file/below", b"2")
    with pytest.raises(Refused):
        store.put_bytes("file/far/below", b"2")
    with pytest.raises(Refused):
        store.put_bytes("folder", b"2")
    with pytest.raises(Refused):
        store.put_tree("file", make_tree(tmp_path / "t", "x"))
    assert sorted(p.name for p in store.root.iterdir()) == ["file", "folder"]


def test_links_inside_the_store_are_not_followed(store: FolderArtifacts, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("secret")
    store.put_bytes("t/a", b"1")
    (store.root / "t" / "link").symlink_to(tmp_path / "outside")
    assert not store.exists("t/link")
    assert [name for name, _ in store.list("t")] == ["a"]


def test_removing_prunes_folders_while_others_write(store: FolderArtifacts) -> None:
    stop = time.monotonic() + 0.5
    failed: list[BaseException] = []

    def work(name: str) -> None:
        try:
            while time.monotonic() < stop:
                store.put_bytes(f"a/b/c/{name}", b"1")
                store.remove(f"a/b/c/{name}")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(str(n),)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert list(store.root.iterdir()) == []


KILLED = """
    import sys
    from pathlib import Path
    from harbor_assets.artifacts.folder import FolderArtifacts
    store, source = FolderArtifacts(Path(sys.argv[1])), Path(sys.argv[2])
    print("ready", flush=True)
    number = 0
    while True:
        number += 1
        folder = source / str(number)
        (folder / "sub").mkdir(parents=True)
        for name in range(20):
            (folder / "sub" / str(name)).write_text(str(number) * 1000)
        store.put_tree("t", folder)
        store.put_bytes("f", str(number % 10).encode() * 300_000)
"""


@pytest.mark.parametrize("elsewhere", [False, True])
def test_kill_9_leaves_the_old_or_the_new(
    store: FolderArtifacts, tmp_path: Path, other_file_system: Path, elsewhere: bool
) -> None:
    source = other_file_system if elsewhere else tmp_path / "source"
    for number in range(4):
        with subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(KILLED), str(store.root), str(source / str(number))],
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            time.sleep(0.02 + 0.03 * number)
            until = time.monotonic() + 60
            while number == 3 and not (store.exists("t") and store.exists("f")) and time.monotonic() < until:
                time.sleep(0.01)  # a loaded machine: the last one is killed when something is there to be halved
            process.send_signal(signal.SIGKILL)
        if store.exists("t"):
            texts = {(store.root / "t" / name).read_text() for name, _ in store.list("t")}
            assert len(texts) == 1
            assert len(list(store.list("t"))) == 20
        if store.exists("f"):
            with store.open("f") as stream:
                data = stream.read()
            assert len(data) == 300_000
            assert len(set(data)) == 1
    assert store.exists("t")
    assert store.sweep(older_than_seconds=-1) >= 0
    assert {p.name for p in store.root.iterdir()} <= {"t", "f"}


def test_sweep_removes_only_what_is_old(store: FolderArtifacts, tmp_path: Path) -> None:
    store.put_bytes("kept", b"1")
    old, fresh, half = (store.root / f".incoming-{name}" for name in ("old", "fresh", "half"))
    make_tree(old, "x")
    fresh.write_text("x")
    make_tree(half, "x")
    hour_ago = time.time() - 3601
    for path in (*old.rglob("*"), old, half):
        os.utime(path, (hour_ago, hour_ago))  # `half` is old, but a file in it was written just now
    assert store.sweep() == 1
    assert sorted(p.name for p in store.root.iterdir()) == [".incoming-fresh", ".incoming-half", "kept"]


def test_remove_takes_links_not_what_they_point_to(tmp_path: Path) -> None:
    make_tree(tmp_path / "kept", "x")
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "link").symlink_to(tmp_path / "kept")
    tree.remove(tmp_path / "t")
    assert (tmp_path / "kept" / "sub" / "0").exists()
    assert not (tmp_path / "t").exists()
    tree.remove(tmp_path / "t")


def test_a_file_where_the_store_should_be(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("")
    store = FolderArtifacts(tmp_path / "store")
    with pytest.raises(HomeUnusable, match="HARBOR_ASSETS_ARTIFACTS_URL"):
        store.put_bytes("a", b"1")


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_store_that_cannot_be_written(store: FolderArtifacts) -> None:
    store.put_bytes("a", b"1")
    store.root.chmod(0o500)
    try:
        with pytest.raises(HomeUnusable, match="HARBOR_ASSETS_ARTIFACTS_URL"):
            store.put_bytes("b", b"1")
    finally:
        store.root.chmod(0o700)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mounted = tmp_path / "disk"
    mounted.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mounted)], check=True)
    yield mounted
    subprocess.run(["umount", "-l", str(mounted)], check=True)


@pytest.mark.req_root
def test_a_full_disk_is_told_and_leaves_the_old(small_disk: Path, tmp_path: Path) -> None:
    store = FolderArtifacts(small_disk / "store")
    store.put_bytes("f", b"old")
    store.put_tree("t", make_tree(tmp_path / "1", "old"))
    (tmp_path / "big").write_bytes(b"x" * 2_000_000)
    with pytest.raises(StorageFull, match="no space left"):
        store.put_bytes("f", b"x" * 2_000_000)
    with pytest.raises(StorageFull, match="no space left"):
        store.put_file("f", tmp_path / "big")
    with pytest.raises(StorageFull, match="no space left"):
        store.put_tree("t", make_tree(tmp_path / "2", "x" * 400_000))
    with store.open("f") as stream:
        assert stream.read() == b"old"
    assert (store.root / "t/sub/0").read_text() == "old"
    assert sorted(p.name for p in store.root.iterdir()) == ["f", "t"]
    store.put_bytes("f", b"new")
