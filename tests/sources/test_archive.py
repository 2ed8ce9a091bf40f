"""Archives: equal folders give equal bytes, in exactly the agreed form."""

import gzip
import hashlib
import io
import os
import shutil
import socket
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain import archives
from harbor_assets.domain.archives import Entry, Tree, archive_key, fileset_ref, path_problem, tree_problems
from harbor_assets.domain.errors import Refused, StorageFull
from harbor_assets.domain.tasks import ArchiveSource
from harbor_assets.sources.archive import pack
from harbor_assets.sources.scan import scan
from tests.suites.make import make_task

HASH = "a" * 64


@pytest.fixture
def task(tmp_path: Path) -> Path:
    folder = make_task(tmp_path / "suite", "hello", native_id="tests/hello")
    (folder / "environment" / "empty").mkdir()
    (folder / "environment" / ".hidden").write_text("kept")
    (folder / ".gitignore").write_text("ignored.txt\n")
    (folder / "ignored.txt").write_text("kept as well")
    (folder / "tests" / "größe.txt").write_text("NFC")
    (folder / "tests" / ("long-" + "x" * 150)).write_text("long")
    (folder / "tests" / "link").symlink_to("../solution/solve.sh")
    (folder / "solution" / "solve.sh").chmod(0o4750)
    return folder


def packed(folder: Path) -> bytes:
    out = io.BytesIO()
    assert pack(folder, out) == hashlib.sha256(out.getvalue()).hexdigest()
    return out.getvalue()


def by_the_book(folder: Path) -> bytes:
    """The contract written down a second time, with the standard library doing what it does."""
    out = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        paths = sorted([folder, *folder.rglob("*")], key=lambda p: p.relative_to(folder.parent).as_posix())
        for path in paths:
            info = tarfile.TarInfo(path.relative_to(folder.parent).as_posix())
            status = path.lstat()
            info.mode = status.st_mode & 0o7777
            if path.is_symlink():
                info.type, info.linkname, info.mode = tarfile.SYMTYPE, str(path.readlink()), 0o777
                tar.addfile(info)
            elif path.is_dir():
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            else:
                info.size = status.st_size
                tar.addfile(info, io.BytesIO(path.read_bytes()))
    return out.getvalue()


def test_the_bytes_are_those_of_the_contract(task: Path):
    assert packed(task) == by_the_book(task)


def test_nothing_is_left_out_and_modes_are_kept(task: Path):
    with tarfile.open(fileobj=io.BytesIO(packed(task))) as tar:
        members = {member.name: member for member in tar.getmembers()}
    names = list(members)
    assert names == sorted(names)
    assert names[0] == "hello"
    assert {"hello/environment/empty", "hello/environment/.hidden", "hello/ignored.txt"} <= set(names)
    assert members["hello/solution/solve.sh"].mode == 0o4750
    assert members["hello/tests/link"].linkname == "../solution/solve.sh"
    assert {(m.uid, m.gid, m.mtime, m.uname, m.gname) for m in members.values()} == {(0, 0, 0, "", "")}


def test_times_owners_and_places_change_nothing(task: Path, tmp_path: Path):
    copy = tmp_path / "elsewhere" / "hello"
    shutil.copytree(task, copy, symlinks=True)
    for path in copy.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
    assert packed(copy) == packed(task)


@pytest.mark.parametrize("change", ["content", "mode", "name", "empty folder", "link"])
def test_what_changes_the_hash(task: Path, change: str):
    before = pack(task, None)
    if change == "content":
        (task / "instruction.md").write_text("Other")
    elif change == "mode":
        (task / "tests" / "test.sh").chmod(0o700)
    elif change == "name":
        (task / "ignored.txt").rename(task / "ignored2.txt")
    elif change == "empty folder":
        (task / "environment" / "empty").rmdir()
    else:
        (task / "tests" / "link").unlink()
        (task / "tests" / "link").symlink_to("test.sh")
    assert pack(task, None) != before


def test_a_hard_link_is_packed_as_a_plain_file(task: Path):
    os.link(task / "instruction.md", task / "tests" / "again.md")
    with tarfile.open(fileobj=io.BytesIO(packed(task))) as tar:
        assert tar.getmember("hello/tests/again.md").isreg()


def test_a_path_gets_the_archive_complete_or_not_at_all(task: Path, tmp_path: Path):
    dest = tmp_path / "out" / "archive"
    dest.parent.mkdir()
    assert pack(task, dest) == hashlib.sha256(dest.read_bytes()).hexdigest()
    dest.unlink()
    (task / "tests" / "out").symlink_to("/etc")
    with pytest.raises(Refused, match="tests/out: is an absolute link"):
        pack(task, dest)
    assert list(dest.parent.iterdir()) == []


def test_a_folder_that_changes_while_it_is_packed_is_refused(task: Path):
    class Meddling(io.BytesIO):
        def write(self, data) -> int:
            (task / "instruction.md").write_text("changed meanwhile")
            return super().write(data)

    with pytest.raises(Refused, match="changed while it was being read"):
        pack(task, Meddling())


def test_a_full_disk_is_said_so(task: Path):
    with Path("/dev/full").open("wb", buffering=0) as full, pytest.raises(StorageFull, match="no space left"):
        pack(task, full)


def test_special_files_are_refused(task: Path):
    os.mkfifo(task / "tests" / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(task / "tests" / "socket"))
    with pytest.raises(Refused) as refused:
        pack(task, None)
    assert [problem.subject for problem in refused.value.problems] == ["tests/pipe", "tests/socket"]


@pytest.mark.parametrize(
    ("link", "target", "reason"),
    [
        ("tests/a", "/etc/hostname", "absolute"),
        ("tests/a", "../../other", "out of the task"),
        ("tests/a", "../../hello/task.toml", "out of the task"),
        ("tests/a", "nowhere", "link to nothing"),
        ("tests/a", "test.sh/x", "link to nothing"),
        ("tests/a", "a", "in a circle"),
        ("tests/a", "..", "endless"),
        ("tests/a", ".", "endless"),
        ("a", "tests/../tests/..", "endless"),
        ("task.toml", "ignored.txt", "has to be a real file"),
        ("instruction.md", "ignored.txt", "has to be a real file"),
        (".gitignore", "ignored.txt", "has to be a real file"),
        ("steps", "tests", "has to be a real folder"),
        ("steps/one", "../tests", "has to be a real folder"),
    ],
)
def test_links_that_are_not_allowed(task: Path, link: str, target: str, reason: str):
    path = task / link
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)
    problems = dict(tree_problems("hello", scan(task).entries))
    assert reason in problems[link]
    with pytest.raises(Refused):
        pack(task, None)


def test_links_inside_the_task_are_allowed_also_through_each_other(task: Path):
    (task / "tests" / "b").symlink_to("link")
    (task / "tests" / "c").symlink_to("../environment")
    (task / "tests" / "d").symlink_to("c/Dockerfile")
    assert tree_problems("hello", scan(task).entries) == []
    tree = Tree(scan(task).entries)
    assert tree.find("tests/d") == tree.get("environment/Dockerfile")


@pytest.mark.parametrize("target", ["link/.", "link/", "link/..", "link/x"])
def test_a_link_through_a_file_leads_nowhere(task: Path, target: str):
    (task / "tests" / "b").symlink_to(target)
    assert "link to nothing" in dict(tree_problems("hello", scan(task).entries))["tests/b"]


def test_two_folders_that_link_to_each_other_are_endless(task: Path):
    (task / "tests" / "to-env").symlink_to("../environment")
    (task / "environment" / "to-tests").symlink_to("../tests")
    assert {path for path, _ in tree_problems("hello", scan(task).entries)} == {"tests/to-env", "environment/to-tests"}


@given(st.data())
def test_following_links_agrees_with_the_kernel(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    root = tmp_path_factory.mktemp("tree") / "task"
    for folder in ("a/b", "c"):
        (root / folder).mkdir(parents=True)
    (root / "a" / "f").write_text("")
    parts = st.lists(st.sampled_from(["a", "b", "c", "f", "..", ".", "", "l0", "l1", "l2"]), min_size=1, max_size=4)
    for number, where in enumerate(("a", "c", "")):
        (root / where / f"l{number}").symlink_to("/".join(data.draw(parts)).lstrip("/") or ".")
    tree = Tree(scan(root).entries)
    for path in ("a/l0", "c/l1", "l2"):
        end = tree.follow(tree.get(path) or pytest.fail(path))
        try:
            (root / path).stat()  # the kernel's word: pathlib walks `file/..` as if a file were a folder
            real = (root / path).resolve(strict=True)
        except (OSError, RuntimeError):
            real = None
        if isinstance(end, Entry):
            assert real == root / end.path
        elif real and real.is_relative_to(root):
            assert "out of the task" in end  # the kernel may leave and come back


def long(count: int) -> str:
    return "/".join(["x" * 100] * count)


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("a/./b", "plain relative"),
        ("../a", "plain relative"),
        ("/a", "plain relative"),
        ("a//b", "plain relative"),
        ("", "plain relative"),
        ("a/b ", "ends in a space"),
        ("a./b", "dot"),
        ("a\nb", "'\\n'"),
        ("a\x85b", "control"),
        ("a%20", "'%'"),
        ("a\\b", "'\\\\'"),
        ("a:b", "':'"),
        ("a?b#c", "'#', '?'"),
        ("gro\u0308sse", "normal form"),
        ("\udcff", "UTF-8"),
        (long(41), "4140 bytes"),
    ],
)
def test_paths_that_no_archive_may_hold(path: str, problem: str):
    assert problem in (path_problem(path) or "")


@pytest.mark.parametrize("path", ["a", ".hidden", "a b/c", "größe", "a..b", long(40), "*", "a'b\""])
def test_paths_that_are_allowed(path: str):
    assert path_problem(path) is None


def test_names_that_differ_in_case_only_are_refused():
    entries = [Entry("", "dir"), Entry("Readme", "file"), Entry("a", "dir"), Entry("README", "file")]
    assert tree_problems("t", entries) == [
        ("README", "differs from 'Readme' in case only; such names meet on some machines")
    ]


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([Entry("task.toml", "file", size=archives.MIB + 1)], "1,048,577 bytes"),
        ([Entry(".gitignore", "file", size=256 * archives.KIB + 1)], "at most 262,144"),
        ([Entry("instruction.md", "file", size=archives.MIB + 1)], "at most 1,048,576"),
        ([Entry("steps/one/instruction.md", "file", size=archives.MIB + 1)], "at most 1,048,576"),
        ([Entry("tests/big", "file", size=4 * archives.GIB + 1)], "at most 4,294,967,296"),
        ([Entry(f"tests/{i}", "file", size=4 * archives.GIB) for i in range(5)], "at most 17,179,869,184"),
        ([Entry(f"steps/s{i}", "dir") for i in range(129)], "128 steps"),
        ([Entry(f"steps/s{i}/instruction.md", "file", size=archives.MIB) for i in range(17)], "16,777,216"),
        ([Entry(f"f{i}", "file") for i in range(100_001)], "100,000"),
    ],
)
def test_limits(entries: list[Entry], problem: str):
    assert any(problem in reason for _, reason in tree_problems("t", entries))
    assert tree_problems("t", entries[: len(entries) // 2]) == []


@pytest.mark.parametrize("root", ["task_template", "a:b", "x ", "..", ""])
def test_folder_names_that_are_not_allowed(root: str):
    assert tree_problems(root, [])


def test_a_fileset_ref_fits_the_grammar_and_its_key_stays_below_filesets():
    ref = fileset_ref("default", "my task (1)", HASH)
    assert ref == f"default/harbor-tasks#my-task--1-/{HASH}/task_archive"
    assert ArchiveSource(fileset_ref=ref, files_hash=HASH).fileset_ref == ref
    assert archive_key(ref) == f"filesets/default/harbor-tasks/my-task--1-/{HASH}/task_archive"


@given(st.text(min_size=1, max_size=60))
def test_any_folder_name_gives_a_fileset_ref_and_a_key(folder: str):
    ref = fileset_ref("default", folder, HASH)
    ArchiveSource(fileset_ref=ref, files_hash=HASH)
    assert archive_key(ref).startswith("filesets/default/harbor-tasks/")


@pytest.mark.parametrize(
    "ref", ["default/x#../../etc", "a/../b#x", "../x#y", "a#b", "default/x#", "default/x", "a/b#/c"]
)
def test_a_fileset_ref_that_leads_elsewhere_is_refused(ref: str):
    with pytest.raises(Refused, match="not a fileset reference"):
        archive_key(ref)
