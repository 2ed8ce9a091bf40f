"""Archives that a task made: nothing of them gets outside the folder they are unpacked into."""

import contextlib
import io
import os
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbor_assets.sandboxes.archives import Unpacked, Unsafe, pack_file, pack_folder, unpack

LIMIT = 1 << 20


def archive(*members: tuple[str, str, str], mode: int = 0o644) -> io.BytesIO:
    """(name, kind, content or target) each."""
    buffer = io.BytesIO()
    kinds = {"file": tarfile.REGTYPE, "dir": tarfile.DIRTYPE, "link": tarfile.SYMTYPE, "hard": tarfile.LNKTYPE}
    kinds |= {"pipe": tarfile.FIFOTYPE, "device": tarfile.CHRTYPE}
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, kind, text in members:
            info = tarfile.TarInfo(name)
            info.type, info.mode = kinds[kind], mode
            if kind in ("link", "hard"):
                info.linkname = text
            elif kind == "file":
                info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()) if kind == "file" else None)
    buffer.seek(0)
    return buffer


def unpacked(folder: Path, *members: tuple[str, str, str], **how: int) -> Unpacked:
    return unpack(archive(*members, **how), folder / "out", limit=LIMIT)


@pytest.mark.parametrize(
    "member",
    [
        ("/etc/evil", "file", "x"),
        ("../evil", "file", "x"),
        ("a/../../evil", "file", "x"),
        ("link", "link", "/etc/passwd"),
        ("link", "link", ".."),
        ("a/link", "link", "../../evil"),
        ("link", "link", "a/../../evil"),
        ("link", "link", ""),
        ("hard", "hard", "/etc/passwd"),
        ("hard", "hard", "../evil"),
        ("pipe", "pipe", ""),
        ("device", "device", ""),
    ],
)
def test_what_may_not_come_out(tmp_path: Path, member: tuple[str, str, str]) -> None:
    done = unpacked(tmp_path, ("kept", "file", "kept"), member)
    assert len(done.refused) == 1
    assert done.files == 1
    assert [path.name for path in tmp_path.rglob("*") if path.name not in ("out", "kept", "a")] == []


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/there").symlink_to(outside)  # of an earlier download
    done = unpacked(
        tmp_path,
        ("there/evil", "file", "x"),
        ("sub", "dir", ""),
        ("alias", "link", "sub"),
        ("alias/file", "file", "x"),
        ("alias/hard", "hard", "sub/file"),
    )
    assert list(outside.iterdir()) == []
    assert len(done.refused) == 3
    assert not (tmp_path / "out/sub/file").exists()


def test_links_replace_and_are_replaced(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/file").symlink_to(secret)
    unpacked(tmp_path, ("file", "file", "new"), ("folder", "dir", ""))
    assert secret.read_text() == "secret"
    assert (tmp_path / "out/file").read_text() == "new"


@pytest.mark.parametrize(
    ("name", "target"), [("link", "file"), ("a/link", "../file"), ("a/b/link", "../../a/b"), ("link", "./sub/file")]
)
def test_links_that_stay_inside_come_out(tmp_path: Path, name: str, target: str) -> None:
    assert unpacked(tmp_path, (name, "link", target)).refused == []
    assert os.readlink(tmp_path / "out" / name) == target  # noqa: PTH115 -- as it was written


def test_a_hard_link_to_a_file_that_came_out(tmp_path: Path) -> None:
    assert unpacked(tmp_path, ("a", "file", "text"), ("b", "hard", "a")).refused == []
    assert (tmp_path / "out/b").read_text() == "text"


def test_modes(tmp_path: Path) -> None:
    unpacked(tmp_path, ("file", "file", ""), ("folder", "dir", ""), mode=0o7000)
    assert (tmp_path / "out/file").stat().st_mode & 0o7777 == 0o600
    assert (tmp_path / "out/folder").stat().st_mode & 0o7777 == 0o700


def test_too_large_and_contradictory_archives(tmp_path: Path) -> None:
    with pytest.raises(Unsafe, match="more than"):
        unpacked(tmp_path, ("a", "file", "x" * LIMIT), ("b", "file", "x"))
    with pytest.raises(Unsafe, match="a folder and a file"):
        unpacked(tmp_path, ("c/d", "file", "x"), ("c", "file", "x"))
    cut = archive(("a", "file", "x" * 2000)).getvalue()[:1500]
    with pytest.raises(tarfile.TarError):
        unpack(io.BytesIO(cut), tmp_path / "cut", limit=LIMIT)


def test_a_sparse_file_is_as_large_as_it_says(tmp_path: Path) -> None:
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 1 << 40)
    buffer = io.BytesIO()
    header = tarfile.TarInfo("sparse")
    header.type = tarfile.GNUTYPE_SPARSE
    block = bytearray(header.tobuf(tarfile.GNU_FORMAT))
    block[483:495] = b"\x80" + (1 << 40).to_bytes(11, "big")
    block[148:156] = b" " * 8
    block[148:156] = f"{sum(block):06o}\0 ".encode()
    buffer.write(bytes(block) + bytes(1024))
    buffer.seek(0)
    with pytest.raises(Unsafe):
        unpack(buffer, tmp_path / "out", limit=LIMIT)


NAMES = st.lists(st.sampled_from(["a", "b", "..", ".", "c"]), min_size=1, max_size=4).map("/".join)
MEMBERS = st.lists(
    st.tuples(NAMES | NAMES.map("/{}".format), st.sampled_from(["file", "dir", "link", "hard"]), NAMES), max_size=8
)


@settings(max_examples=80)
@given(members=MEMBERS)
def test_whatever_the_archive_nothing_is_outside(members: list[tuple[str, str, str]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "deep", "er")
        folder.mkdir(parents=True)
        out = folder / "out"
        with contextlib.suppress(Unsafe):
            unpack(archive(*members), out, limit=LIMIT)
        outside = [path for path in Path(name).rglob("*") if not path.is_relative_to(out)]
        assert outside == [Path(name, "deep"), folder]
        for path in out.rglob("*"):
            assert Path(os.path.realpath(path)).is_relative_to(out)  # unlike resolve(), no error for a loop


def test_packing(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_text("x")
    (source / "link").symlink_to("file")
    buffer = io.BytesIO()
    pack_folder(source, buffer)
    buffer.seek(0)
    with tarfile.open(fileobj=buffer) as tar:
        assert [(member.name, member.issym()) for member in tar] == [("file", False), ("link", True)]
    buffer = io.BytesIO()
    pack_file(source / "link", "other", buffer)
    buffer.seek(0)
    with tarfile.open(fileobj=buffer) as tar:
        assert [(member.name, member.isreg(), member.size) for member in tar] == [("other", True, 1)]
