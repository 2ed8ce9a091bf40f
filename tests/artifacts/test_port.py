"""What every artifact store does, the fake one too."""

import os
from pathlib import Path

import pytest

from harbor_assets.domain.errors import NotFound, Refused
from harbor_assets.engine.ports import Artifacts


def read(store: Artifacts, key: str) -> bytes:
    with store.open(key) as stream:
        return stream.read()


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    """A trial's folder with what a store must leave out."""
    folder = tmp_path / "trial"
    (folder / "logs" / "empty").mkdir(parents=True)
    (folder / "result.json").write_bytes(b"{}")
    (folder / "logs" / "agent log.txt").write_bytes(b"hello")
    (folder / "logs" / "réponse#1?.txt").write_bytes(b"x")
    (folder / "link").symlink_to("result.json")
    (folder / "logs" / "away").symlink_to("/etc")
    os.mkfifo(folder / "pipe")
    (folder / "back\\slash").write_bytes(b"")
    Path(os.fsdecode(os.fsencode(folder) + b"/not-utf8-\xff")).write_bytes(b"")
    return folder


def test_an_object_is_what_was_put(store: Artifacts) -> None:
    assert not store.exists("a/b")
    store.put_bytes("a/b", b"one")
    assert store.exists("a/b")
    assert store.exists("a")
    assert store.size("a/b") == 3
    assert read(store, "a/b") == b"one"
    store.put_bytes("a/b", b"")
    assert store.size("a/b") == 0
    assert read(store, "a/b") == b""


def test_what_is_not_there_is_told_by_name(store: Artifacts) -> None:
    store.put_bytes("a/b", b"one")
    for key in ("a", "a/b/c", "nothing"):
        with pytest.raises(NotFound, match=repr(key)):
            store.size(key)
        with pytest.raises(NotFound, match=repr(key)), store.open(key):
            pass
    assert not store.exists("a/b/c")


def test_a_file_is_copied_and_left_alone(store: Artifacts, tmp_path: Path) -> None:
    source = tmp_path / "archive"
    source.write_bytes(bytes(range(256)) * 5000)
    store.put_file("archives/one", source)
    assert read(store, "archives/one") == source.read_bytes()
    for missing in (tmp_path / "nope", tmp_path):
        with pytest.raises(Refused, match="cannot be stored"):
            store.put_file("archives/two", missing)
    assert not store.exists("archives/two")


def test_a_tree_leaves_out_and_counts_what_is_no_file(store: Artifacts, trial: Path) -> None:
    assert store.put_tree("runs/1", trial) == 5
    assert list(store.list("runs/1")) == [("logs/agent log.txt", 5), ("logs/réponse#1?.txt", 1), ("result.json", 2)]
    assert read(store, "runs/1/logs/réponse#1?.txt") == b"x"


def test_a_tree_replaces_the_one_before(store: Artifacts, tmp_path: Path) -> None:
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "same").write_text(f"{number}")
        (folder / f"only-{number}").write_text("")
        assert store.put_tree("bundle", folder) == 0
    assert [name for name, _ in store.list("bundle")] == ["only-2", "same"]
    assert read(store, "bundle/same") == b"2"


def test_a_tree_needs_a_folder(store: Artifacts, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "to").mkdir()
    (tmp_path / "link").symlink_to("to")
    for source in ("file", "nothing") if type(store).__name__ == "MemoryArtifacts" else ("file", "nothing", "link"):
        with pytest.raises(Refused, match="not a folder"):
            store.put_tree("bundle", tmp_path / source)
    assert not store.exists("bundle")


def test_folders_no_one_may_enter_are_stored_too(store: Artifacts, tmp_path: Path) -> None:
    closed = tmp_path / "t" / "closed"
    closed.mkdir(parents=True)
    (closed / "secret").write_bytes(b"1")
    (closed / "secret").chmod(0)
    closed.chmod(0)
    assert store.put_tree("t", tmp_path / "t") == 0
    assert read(store, "t/closed/secret") == b"1"


def test_a_deep_tree_is_cut_and_counted(store: Artifacts, tmp_path: Path) -> None:
    top = tmp_path / "t"
    top.mkdir()
    (top / "kept").write_bytes(b"1")
    here = os.open(top, os.O_RDONLY)
    for _ in range(1100):  # far deeper than a path can say, or Python recurse
        os.mkdir("ddd", dir_fd=here)
        below = os.open("ddd", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    assert store.put_tree("t", top) == 1
    assert list(store.list("t")) == [("kept", 1)]
    if top.exists():
        from harbor_assets.artifacts.tree import remove

        remove(top)  # pytest's own removal would give up on it
    assert not top.exists()


def test_list_is_sorted_and_of_what_lies_below(store: Artifacts) -> None:
    for key in ("t/b", "t/a/z", "t/a.txt", "t-other/c", "t/a/B"):
        store.put_bytes(key, b"1")
    assert [name for name, _ in store.list("t")] == ["a.txt", "a/B", "a/z", "b"]
    assert list(store.list("nothing")) == []
    assert list(store.list("t/b")) == []


def test_remove_takes_an_object_or_all_below_and_is_repeatable(store: Artifacts) -> None:
    for key in ("t/a", "t/b/c", "t/b/d", "u"):
        store.put_bytes(key, b"1")
    store.remove("t/b")
    store.remove("t/b")
    assert [name for name, _ in store.list("t")] == ["a"]
    store.remove("t/a")
    assert not store.exists("t/a")
    assert store.exists("u")
    store.remove("never/there")


def test_a_key_that_reads_as_a_pattern_is_only_a_key(store: Artifacts, tmp_path: Path) -> None:
    for key in ("t/a*", "t/ab", "t/[a]", "t/a", "t/?", "u*/x", "u1/x"):
        store.put_bytes(key, b"1")
    for key in ("t/a*", "t/[a]", "t/?", "u*"):
        store.remove(key)
    assert [name for name, _ in store.list("t")] == ["a", "ab"]
    assert store.exists("u1/x")
    for name in ("*", "?"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}{name}").write_bytes(b"1")
        store.put_tree("v*", tmp_path / name)
    assert [name for name, _ in store.list("v*")] == ["??"]


@pytest.mark.parametrize(
    "key",
    ["", "/abs", "a//b", "a/", "../up", "a/../b", ".", "a/./b", "a\\b", "a\nb", "a\0", "a\x7f", "a\x85", "e\u0301",
     "x" * 256, "é" * 128, "a/" * 600 + "b", "\udcff", ".incoming-x"],
)  # fmt: skip
def test_a_key_that_could_leave_the_store_is_refused(store: Artifacts, key: str, tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    calls = [
        lambda: store.exists(key),
        lambda: store.size(key),
        lambda: store.open(key),
        lambda: store.put_bytes(key, b""),
        lambda: store.put_file(key, Path(__file__)),
        lambda: store.put_tree(key, tmp_path / "t"),
        lambda: store.list(key),
        lambda: store.remove(key),
        lambda: store.url(key),
    ]
    for call in calls:
        with pytest.raises(Refused, match="the artifact key"):
            call()


def test_sweeping_takes_nothing_that_was_stored(store: Artifacts) -> None:
    assert store.sweep() == 0
    store.put_bytes("a/b", b"1")
    assert store.sweep() == 0
    assert store.exists("a/b")


def test_keys_may_hold_what_urls_and_shells_do_not_like(store: Artifacts) -> None:
    for key in ("a b/c", "a%2Fb", "a#b?c=d", "ü/日本", "a:b", "x" * 255, "-", "~", "a*"):
        store.put_bytes(key, key.encode())
        assert read(store, key) == key.encode()
    assert store.url("a b/c").endswith("a b/c")
