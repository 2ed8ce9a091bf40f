"""A folder as a build context: its key, its order, and what is sent of it."""

import os
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harbor_assets.domain.ignores import Ignore
from harbor_assets.domain.images import context_key
from harbor_assets.images import messages as m
from harbor_assets.images.context import CHUNK, entries, key_entries, read
from harbor_assets.images.session import send


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "context"
    (root / "a").mkdir(parents=True)
    (root / "a" / "deep.txt").write_text("deep")
    (root / "a.txt").write_text("beside: sorts after what is in a/")
    (root / "Dockerfile").write_text("FROM scratch\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o4755)
    (root / "link").symlink_to("./a/../a.txt")
    (root / "outside").symlink_to("/etc/passwd")
    os.mkfifo(root / "pipe")
    return root


def test_order_kinds_and_modes_are_fsutils(folder: Path) -> None:
    found = {entry.path: entry for entry in entries(folder)}
    assert list(found) == ["Dockerfile", "a", "a/deep.txt", "a.txt", "link", "outside", "run.sh"]
    assert found["a"].go_mode & (1 << 31)
    assert found["run.sh"].go_mode == 0o755 | 1 << 23
    assert (found["link"].go_mode, found["link"].target) == (0o777 | 1 << 27, "./a/../a.txt")


def test_an_exception_brings_its_folders_along(folder: Path) -> None:
    left = entries(folder, Ignore.parse("**\n!a/deep.txt"))
    assert [entry.path for entry in left] == ["a", "a/deep.txt"]


def test_a_link_is_not_read_through(folder: Path) -> None:
    with pytest.raises(OSError, match="symbolic links"):
        list(read(folder, "outside"))


def test_the_key_changes_with_bytes_modes_links_and_names_and_not_with_times(folder: Path) -> None:
    def key() -> str:
        return context_key(key_entries(folder))

    keys = [key()]
    os.utime(folder / "a.txt", (1, 1))
    assert key() == keys[0]
    (folder / "a.txt").write_text("other")
    keys.append(key())
    (folder / "a.txt").chmod(0o755)
    keys.append(key())
    (folder / "link").unlink()
    (folder / "link").symlink_to("a.txt")
    keys.append(key())
    (folder / "a.txt").rename(folder / "b.txt")
    keys.append(key())
    (folder / "empty").mkdir()
    keys.append(key())
    assert len(set(keys)) == len(keys)


def test_the_sender_gives_what_is_asked_for_until_it_is_told_to_end(folder: Path) -> None:
    (folder / "a.txt").write_bytes(b"x" * (2 * CHUNK + 1))
    asked: queue.Queue[Any] = queue.Queue()
    sent = send(folder, entries(folder), iter(asked.get, None))
    stats: list[Any] = []
    while (packet := next(sent)).HasField("stat"):
        stats.append(packet.stat)
    assert packet.type == m.STAT
    assert [stat.path for stat in stats][:4] == ["Dockerfile", "a", "a/deep.txt", "a.txt"]
    assert {(stat.uid, stat.gid) for stat in stats} == {(0, 0)}
    asked.put(m.Packet(type=m.REQUEST, ID=3))
    pieces = [next(sent) for _ in range(4)]
    assert [(piece.type, piece.ID, len(piece.data)) for piece in pieces] == [
        (m.DATA, 3, CHUNK),
        (m.DATA, 3, CHUNK),
        (m.DATA, 3, 1),
        (m.DATA, 3, 0),
    ]
    asked.put(m.Packet(type=m.FIN))
    assert [packet.type for packet in sent] == [m.FIN]


def test_the_sender_ends_when_the_receiver_is_gone(folder: Path) -> None:
    def gone() -> Iterator[Any]:
        raise ConnectionError
        yield

    assert [packet.type for packet in send(folder, [], gone())] == [m.STAT, m.FIN]


def test_messages_have_the_numbers_of_the_wire() -> None:
    # Written down from the published .proto files, so that a slip in our table cannot agree with itself.
    assert m.Packet(type=1, ID=5).SerializeToString() == b"\x08\x01\x18\x05"
    assert m.Stat(path="p", mode=1, linkname="l").SerializeToString() == b"\x0a\x01p\x10\x01\x3a\x01l"
    request = m.SolveRequest(Ref="r", Exporter="image", Session="s", Frontend="f", FrontendAttrs={"a": "b"})
    assert request.SerializeToString() == b"\x0a\x01r\x1a\x05image\x2a\x01s\x32\x01f\x3a\x06\x0a\x01a\x12\x01b"
