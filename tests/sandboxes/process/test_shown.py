"""How the shown folders are put together, and around what is mounted below them."""

from pathlib import Path

import pytest

from harbor_assets.sandboxes.process import shown
from harbor_assets.sandboxes.process.shown import Split, merge_split, mounts_below, shown_folders, split_for, view


def test_nothing_mounted_nothing_split() -> None:
    assert split_for([], ["var/log"]) == Split((), frozenset({"var/log"}))


def test_a_mount_splits_every_folder_above_it() -> None:
    found = split_for(["var/lib/x/pods", "opt/disk"], ["var/log"])
    assert found.folders == ("opt", "var", "var/lib", "var/lib/x")
    assert found.bare == {"var/lib/x/pods", "opt/disk", "var/log"}


def test_what_is_hidden_needs_no_splitting() -> None:
    """An engine's mounts lie below a hidden folder."""
    found = split_for(["var/lib/docker/overlay2/a/merged", "var/lib/docker"], ["var/lib/docker"])
    assert found.folders == ("var", "var/lib")
    assert "var/lib/docker" in found.bare


def test_the_view_without_splits(tmp_path: Path) -> None:
    for name in ("ROOT", "etc"):
        (tmp_path / "l/0" / name).mkdir(parents=True)
    (tmp_path / "l/1/ROOT").mkdir(parents=True)
    found = dict(view(tmp_path, ["l/0", "l/1"], Split()))
    assert found[""] == ["l/0/ROOT", "l/1/ROOT"]
    assert found["etc"] == ["l/0/etc", "/etc"]
    assert found["usr"] == ["/usr"]
    assert set(found) == {"", *shown_folders()}


def test_the_view_of_a_split_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = {"var": ["var/cache", "var/lib", "var/log"], "var/lib": ["var/lib/a", "var/lib/b"]}
    monkeypatch.setattr(shown, "subfolders", lambda name: tree.get(name, []))
    monkeypatch.setattr(shown, "shown_folders", lambda: ("usr", "var"))
    for name in ("ROOT", "var/lib/a", "var/cache"):
        (tmp_path / "l/0" / name).mkdir(parents=True)
    split = Split(("var", "var/lib"), frozenset({"var/log", "var/lib/b"}))
    assert view(tmp_path, ["l/0"], split) == [
        ("", ["l/0/ROOT"]),
        ("usr", ["/usr"]),
        ("var", ["l/0/var"]),
        ("var/cache", ["l/0/var/cache", "/var/cache"]),
        ("var/lib", ["l/0/var/lib"]),
        ("var/lib/a", ["l/0/var/lib/a", "/var/lib/a"]),
    ]


def test_what_was_written_below_a_split_folder_gets_home(tmp_path: Path) -> None:
    places = ["", "var", "var/lib", "var/lib/a"]
    (tmp_path / "rw/upper/var").mkdir(parents=True)
    for number, place in enumerate(places):
        if "/" in place:
            (tmp_path / f"rw/split/{number}/upper").mkdir(parents=True)
    (tmp_path / "rw/split/3/upper/file").write_text("x")
    merge_split(tmp_path, places)
    assert [str(p.relative_to(tmp_path / "rw/upper")) for p in sorted((tmp_path / "rw/upper").rglob("*"))] == [
        "var",
        "var/lib",
        "var/lib/a",
        "var/lib/a/file",
    ]
    assert (tmp_path / "rw/upper/var/lib").stat().st_mode == Path("/var/lib").stat().st_mode


def test_mount_points_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "privileged", lambda: True)
    assert mounts_below() == ()
    monkeypatch.setattr(shown, "privileged", lambda: False)
    assert all(point.split("/")[0] in shown.SHOWN and "/" in point for point in mounts_below())
