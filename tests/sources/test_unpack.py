"""Archives from strangers: what is refused, and that nothing of a refused one stays."""

import errno
import gzip
import hashlib
import io
import os
import tarfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain.errors import Broken, StorageFull
from harbor_assets.sources import inflate, staging
from harbor_assets.sources import unpack as unpacking
from harbor_assets.sources.archive import pack
from harbor_assets.sources.scan import scan
from harbor_assets.sources.staging import remove_tree, sweep
from harbor_assets.sources.unpack import unpack
from tests.suites.make import make_task


def member(name: str, kind: bytes = tarfile.REGTYPE, data: bytes = b"", **fields) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.mtime, info.size = kind, 0, len(data)
    info.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    for field, value in fields.items():
        setattr(info, field, value)
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict") + padded(data)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def folder(name: str, **fields) -> bytes:
    return member(name, tarfile.DIRTYPE, **fields)


def link(name: str, target: str) -> bytes:
    return member(name, tarfile.SYMTYPE, linkname=target)


def pax(records: bytes, count: int = 1) -> bytes:
    info = tarfile.TarInfo("././@PaxHeader")
    info.type, info.size = tarfile.XHDTYPE, len(records)
    return (info.tobuf(tarfile.USTAR_FORMAT) + padded(records)) * count


def record(key: str, value: str) -> bytes:
    body = f" {key}={value}\n".encode()
    length = len(body) + 1
    while length != len(body) + len(str(length)):
        length = len(body) + len(str(length))
    return str(length).encode() + body


END = bytes(1024)
TOML = member("t/task.toml", data=b"")


def archive(*parts: bytes, end: bytes = END) -> bytes:
    return gzip.compress(b"".join(parts) + end, mtime=0)


def unpacked(data: bytes, into: Path) -> Path:
    return unpack(io.BytesIO(data), into / "dest", hashlib.sha256(data).hexdigest())


def assert_refused(data: bytes, into: Path, match: str) -> None:
    with pytest.raises(Broken, match=match):
        unpacked(data, into)
    assert list(into.iterdir()) == []


@pytest.fixture
def task(tmp_path: Path) -> Path:
    task = make_task(tmp_path / "suite", "hello", native_id="tests/hello")
    (task / "environment" / "empty").mkdir()
    (task / "tests" / "link").symlink_to("../solution/solve.sh")
    (task / "tests" / ("größe" * 30)).write_bytes(os.urandom(3_000_000))
    (task / "tests" / "closed").mkdir()
    (task / "tests" / "closed" / "file").write_text("x")
    (task / "tests" / "closed").chmod(0o500)
    (task / "solution" / "solve.sh").chmod(0o4751)
    return task


@pytest.fixture
def into(tmp_path: Path) -> Path:
    into = tmp_path / "cache"
    into.mkdir()
    return into


def test_what_was_packed_comes_out_the_same(task: Path, into: Path):
    data = io.BytesIO()
    files_hash = pack(task, data)
    found = unpack(io.BytesIO(data.getvalue()), into / files_hash, files_hash)
    assert found == into / files_hash / "hello"
    assert scan(found).entries == scan(task).entries
    assert pack(found, None) == files_hash
    assert [p.name for p in into.iterdir()] == [files_hash]
    remove_tree(into / files_hash)
    assert list(into.iterdir()) == []


def test_the_bytes_have_to_be_those_of_the_hash(into: Path):
    with pytest.raises(Broken, match="not the one of hash 0000"):
        unpack(io.BytesIO(archive(folder("t"), TOML)), into / "dest", "0" * 64)
    assert list(into.iterdir()) == []


def test_archives_of_other_programs_are_read(into: Path):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
        for name in ("t/", "t/task.toml"):
            info = tarfile.TarInfo(name)
            info.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            info.mode, info.mtime, info.uid, info.uname = 0o755, 1.5, 1000, "somebody"
            tar.addfile(info)
    assert (unpacked(data.getvalue(), into) / "task.toml").exists()


REFUSED = {
    "nothing": ((), "is empty"),
    "no root folder": ((TOML,), "begin with its one root folder"),
    "a file as root": ((member("t"),), "begin with its one root folder"),
    "two roots": ((folder("t"), folder("u")), "outside of its root"),
    "the root twice": ((folder("t"), folder("t")), "outside of its root"),
    "a child before its folder": ((folder("t"), member("t/a/b")), "before its folder"),
    "a child of a file": ((folder("t"), member("t/a"), member("t/a/b")), "no folder"),
    "a child of a link": ((folder("t"), folder("t/x"), link("t/a", "x"), member("t/a/b")), "no folder"),
    "a path upwards": ((folder("t"), member("t/../../evil")), "plain relative"),
    "an absolute path": ((folder("t"), member("/etc/evil")), "plain relative"),
    "an absolute path by PAX": ((folder("t"), pax(record("path", "/etc/evil")), member("t/x")), "plain relative"),
    "a dot in a path": ((folder("t"), member("t/./x")), "plain relative"),
    "a control character": ((folder("t"), member("t/a\x1bb")), "control"),
    "a colon": ((folder("t"), member("t/a:b")), "':'"),
    "a name twice": ((folder("t"), member("t/a"), member("t/a")), "twice"),
    "a name twice but for case": ((folder("t"), member("t/a"), member("t/A")), "twice"),
    "the template": ((folder("task_template"),), "kept for templates"),
    "a hard link": ((folder("t"), member("t/a"), member("t/b", tarfile.LNKTYPE, linkname="t/a")), "kind of entry"),
    "a character device": ((folder("t"), member("t/a", tarfile.CHRTYPE)), "kind of entry"),
    "a block device": ((folder("t"), member("t/a", tarfile.BLKTYPE)), "kind of entry"),
    "a pipe": ((folder("t"), member("t/a", tarfile.FIFOTYPE)), "kind of entry"),
    "a sparse file": ((folder("t"), member("t/a", tarfile.GNUTYPE_SPARSE)), "kind of entry|cannot be read"),
    "a GNU long name": ((folder("t"), member("t/a", tarfile.GNUTYPE_LONGNAME)), "kind of entry"),
    "a global PAX header": ((member("g", tarfile.XGLTYPE), folder("t")), "kind of entry"),
    "an absolute link": ((folder("t"), link("t/a", "/etc")), "absolute link"),
    "a link out": ((folder("t"), link("t/a", "../x")), "link out of the task"),
    "a link to nothing": ((folder("t"), link("t/a", "b")), "link to nothing"),
    "a link with NUL": ((folder("t"), pax(record("linkpath", "b\0")), link("t/a", "b"), member("t/b")), "to nothing"),
    "links in a circle": ((folder("t"), link("t/a", "b"), link("t/b", "a")), "in a circle"),
    "a link to its folder": ((folder("t"), folder("t/x"), link("t/x/a", ".")), "endless"),
    "a link at task.toml": ((folder("t"), member("t/x"), link("t/task.toml", "x")), "real file"),
    "a sparse file by PAX": ((folder("t"), pax(record("GNU.sparse.size", "9")), member("t/a")), "unknown key"),
    "an unknown PAX key": ((folder("t"), pax(record("SCHILY.xattr.x", "9")), member("t/a")), "unknown key"),
    "PAX without an end": ((folder("t"), pax(b"99 path=x\n"), member("t/a")), "cannot be read"),
    "PAX without a length": ((folder("t"), pax(b"x path=x\n"), member("t/a")), "cannot be read"),
    "PAX of length 0": ((folder("t"), pax(b"0 path=x\n"), member("t/a")), "cannot be read"),
    "PAX not UTF-8": ((folder("t"), pax(b"10 path=\xff\n"), member("t/a")), "not UTF-8|cannot be read"),
    "a negative PAX size": ((folder("t"), pax(record("size", "-1")), member("t/a")), "impossible size"),
    "nine PAX headers": ((folder("t"), pax(record("uid", "1"), 9), member("t/a")), "kind of entry"),
    "a PAX header too large": (
        (folder("t"), pax(record("path", "x" * (1 << 20))), member("t/a")),
        "extended header of",
    ),
    "a folder with bytes": ((folder("t", size=512), bytes(512)), "impossible size"),
    "a size that is not there": ((folder("t"), member("t/a", data=b"")[:124] + b"77777777777" + bytes(377)), "header"),
    "a broken checksum": ((folder("t"), b"x" + TOML[1:]), "header"),
    "bytes in the padding": ((folder("t"), member("t/a", data=b"x")[:-1] + b"!"), "padding"),
    "task.toml too large": ((folder("t"), member("t/task.toml", data=bytes((1 << 20) + 1))), "at most 1,048,576"),
    "a file too large": ((folder("t"), member("t/a", size=(4 << 30) + 1)), "at most 4,294,967,296"),
    "links too long": ((folder("t"), link("t/a", "x/" * 2500)), "too long"),
    "a name too long for a file": ((folder("t"), member("t/" + "n" * 300)), "too long"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_an_archive_may_not_hold(what: str, into: Path):
    parts, reason = REFUSED[what]
    assert_refused(archive(*parts), into, reason)
    assert not Path("/etc/evil").exists()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "ends too early"),
        (b"not gzip at all", "not sound gzip"),
        (archive(folder("t"), TOML)[:-1], "ends too early"),
        (archive(folder("t"), TOML)[:-8] + bytes(8), "not sound gzip"),
        (archive(folder("t"), TOML) + b"x", "goes on after its end"),
        (archive(folder("t"), TOML) + archive(folder("u")), "goes on after its end"),
        (archive(folder("t"), TOML, end=b""), "ends too early"),
        (archive(folder("t"), TOML, end=bytes(512)), "ends too early"),
        (archive(folder("t"), TOML, end=bytes(512) + b"x" * 512), "no proper end"),
        (archive(folder("t"), TOML, end=END + b"x" * 512), "something after its end"),
        (archive(folder("t"), TOML, end=END + bytes(3 << 20) + b"x"), "something after its end"),
        (archive(folder("t"), member("t/a", data=b"x" * 5000)[:1000], end=b""), "ends too early"),
    ],
)
def test_archives_that_are_cut_or_go_on(data: bytes, reason: str, into: Path):
    assert_refused(data, into, reason)


def test_limits_of_the_whole(into: Path, monkeypatch: pytest.MonkeyPatch):
    files = [member(f"t/{i}", data=b"x" * 600) for i in range(4)]
    monkeypatch.setattr(unpacking, "MAX_PAYLOAD_BYTES", 2399)
    assert_refused(archive(folder("t"), *files), into, "more bytes than a task may have")
    monkeypatch.setattr(unpacking, "MAX_PAYLOAD_BYTES", 2400)
    monkeypatch.setattr(unpacking, "MAX_ENTRIES", 4)
    assert_refused(archive(folder("t"), *files), into, "more than 4 entries")
    monkeypatch.setattr(unpacking, "MAX_ENTRIES", 5)
    monkeypatch.setattr(unpacking, "_NAMES_BYTES", 3)
    assert_refused(archive(folder("t"), *files), into, "too long")
    monkeypatch.setattr(unpacking, "_NAMES_BYTES", 4)
    assert unpacked(archive(folder("t"), *files), into).is_dir()


def test_a_bomb_is_stopped(into: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inflate, "MAX_STREAM_BYTES", 10 << 20)
    assert_refused(archive(folder("t"), TOML, end=bytes(20 << 20)), into, "expands to more")
    monkeypatch.setattr(inflate, "MAX_ARCHIVE_BYTES", 100)
    assert_refused(archive(folder("t"), member("t/a", data=os.urandom(5000))), into, "more than 100 bytes")


def test_many_small_headers_take_one_pass(into: Path):
    many = pax(record("uid", "1") * 90_000)
    start = time.process_time()
    assert unpacked(archive(folder("t"), many, member("t/a")), into).is_dir()
    assert time.process_time() - start < 3


@given(st.binary(max_size=3000), st.integers(0, 3000))
def test_noise_is_refused_and_leaves_nothing(tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int):
    into = tmp_path_factory.mktemp("noise")
    plain = folder("t") + TOML + link("t/l", "task.toml") + END
    data = gzip.compress(plain[:at] + noise + plain[at + len(noise) :], mtime=0)
    try:
        found = unpacked(data, into)
    except Broken:
        assert list(into.iterdir()) == []
    else:
        assert [p.name for p in into.iterdir()] == ["dest"]
        assert found.resolve().is_relative_to(into)


def test_a_full_disk_is_said_so(into: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(unpacking.os, "fchmod", full)
    with pytest.raises(StorageFull, match="no space left"):
        unpacked(archive(folder("t"), TOML), into)
    assert list(into.iterdir()) == []


def test_several_at_once_agree_on_one(into: Path):
    data = archive(folder("t"), TOML)
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(unpacked(data, into))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [into / "dest" / "t"] * 8
    assert [p.name for p in into.iterdir()] == ["dest"]


def test_only_what_a_killed_process_left_is_swept(into: Path, monkeypatch: pytest.MonkeyPatch):
    left = into / ".unpack-left"
    (left / "t").mkdir(parents=True)
    assert sweep(into) == 0  # it may be somebody's, made a moment ago
    monkeypatch.setattr(staging, "_GRACE_SECONDS", -1)
    with staging.staging(into) as held:
        assert sweep(into) == 1
        assert list(into.iterdir()) == [held]
