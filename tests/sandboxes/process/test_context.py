"""What a COPY takes from its folder: .dockerignore, wildcards, links, archives, owners, and the tar that carries it."""

import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.sandboxes.process.context import TIME, Context, Source, owner_ids, write_tar
from harbor_assets.sandboxes.process.dockerfile import DockerfileUnsupported, LayerBuildError, parse
from harbor_assets.sandboxes.process.dockerignore import Ignore
from harbor_assets.sandboxes.process.recipe import Copy, recipe


def copy(line: str) -> Copy:
    (step,) = recipe(parse(f"FROM x\n{line}\n".encode()), machine="x86_64").steps
    assert isinstance(step, Copy)
    return step


def take(folder: Path, line: str) -> tuple[Source, ...]:
    return Context.open(folder).select(copy(line))


def names(sources: tuple[Source, ...]) -> list[str]:
    return [f"{source.name}/{entry.rel}".rstrip("/") for source in sources for entry in source.entries]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path in ("a.txt", "b.txt", "sub/c.txt", "sub/deep/d.log", "sub/deep/e.txt", "other/f.log"):
        file = tmp_path / "context" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(path)
    return tmp_path / "context"


@pytest.mark.parametrize(
    ("patterns", "path", "left_out"),
    [
        ("a", "a", True),
        ("a", "a/b/c", True),
        ("a", "b/a", False),
        ("/a", "a", True),
        ("a/", "a", True),
        ("./a/../b", "b", True),
        ("*.log", "x.log", True),
        ("*.log", "d/x.log", False),
        ("**/*.log", "x.log", True),
        ("**/*.log", "d/e/x.log", True),
        ("**", "d/e", True),
        ("d/**", "d/e/f", True),
        ("d/**", "d", False),
        ("d/**/f", "d/f", True),
        ("d/**/f", "d/e/e/f", True),
        ("**/**/f", "e/f", True),
        ("*/e", "d/e/x", True),
        ("?.txt", "a.txt", True),
        ("?.txt", "ab.txt", False),
        ("[ab].txt", "b.txt", True),
        ("[^ab].txt", "b.txt", False),
        ("a.c", "abc", False),
        ("a\\*", "a*", True),
        ("a\\*", "ab", False),
        ("# a", "# a", False),
        ("*\n!keep", "keep", False),
        ("*\n!keep", "drop", True),
        ("!keep\n*", "keep", True),
        ("d\n!d/keep", "d/keep", False),
        ("d\n!d/keep\nd/k*", "d/keep", True),
        ("", "a", False),
    ],
)
def test_dockerignore(patterns: str, path: str, left_out: bool) -> None:
    assert Ignore.parse(patterns)(path) is left_out


def test_a_pattern_that_cannot_be_read_is_named() -> None:
    with pytest.raises(DockerfileUnsupported, match=r"\.dockerignore, \[z-a\]"):
        Ignore.parse("[z-a]")


segments = st.lists(st.text("ab.*?[]!\\/", min_size=1, max_size=6), max_size=4)


@given(segments, st.text("ab./", max_size=10))
def test_any_pattern_is_read_or_refused(patterns: list[str], path: str) -> None:
    try:
        Ignore.parse("\n".join(patterns))(path)
    except DockerfileUnsupported as error:
        assert "[" in str(error)


@given(st.text("ab/", min_size=1, max_size=10).filter(lambda path: path.strip("/") == path and "//" not in path))
def test_a_path_matches_itself_and_all_below(path: str) -> None:
    ignore = Ignore.parse(path)
    assert ignore(path)
    assert ignore(f"{path}/x/y")
    assert not ignore(f"x/{path}")


def test_folders_give_what_is_in_them_and_files_themselves(folder: Path) -> None:
    assert names(take(folder, "COPY sub a.txt /x/")) == [
        "sub/c.txt",
        "sub/deep",
        "sub/deep/d.log",
        "sub/deep/e.txt",
        "a.txt",
    ]
    assert "other/f.log" in [name.removeprefix("./") for name in names(take(folder, "COPY . /x"))]


def test_wildcards_stay_in_their_segment(folder: Path) -> None:
    assert names(take(folder, "COPY *.txt /x/")) == ["a.txt", "b.txt"]
    assert names(take(folder, "COPY */*.txt /x/")) == ["c.txt"]
    assert names(take(folder, "COPY s?b/deep/[de].* /x/")) == ["d.log", "e.txt"]
    assert take(folder, "COPY nothing* /x/") == ()


def test_exceptions_bring_their_folders_along_and_no_others(folder: Path) -> None:
    (folder / ".dockerignore").write_text("**\n!sub/deep/e.txt\n")
    assert names(take(folder, "COPY . /x")) == ["./sub", "./sub/deep", "./sub/deep/e.txt"]
    assert names(take(folder, "COPY sub /x")) == ["sub/deep", "sub/deep/e.txt"]


def test_the_dockerfiles_own_ignore_file_comes_first(folder: Path) -> None:
    (folder / ".dockerignore").write_text("a.txt\n")
    (folder / "Dockerfile.dockerignore").write_text("b.txt\nDockerfile*\n.dockerignore\n")
    assert names(take(folder, "COPY *.txt /x/")) == ["a.txt"]


def test_what_is_missing_or_ignored_is_named(folder: Path) -> None:
    (folder / ".dockerignore").write_text("*.txt\n")
    with pytest.raises(LayerBuildError, match=r"line 2, COPY nope /x: 'nope' is not in the environment folder"):
        take(folder, "COPY nope /x")
    with pytest.raises(LayerBuildError, match=r"'a.txt' is left out by \.dockerignore"):
        take(folder, "COPY a.txt /x")


def test_links_travel_as_links_but_a_source_is_followed(folder: Path) -> None:
    (folder / "sub" / "out").symlink_to("/etc/passwd")
    (folder / "in").symlink_to("sub/deep")
    out = next(entry for source in take(folder, "COPY sub /x") for entry in source.entries if entry.rel == "out")
    assert (out.kind, out.digest) == ("link", "/etc/passwd")
    assert names(take(folder, "COPY in /x")) == ["in/d.log", "in/e.txt"]


@pytest.mark.parametrize("line", ["COPY secret /x", "COPY up/secret /x", "COPY folder/* /x/", "COPY folder/passwd /x"])
def test_no_source_leaves_the_folder(folder: Path, line: str) -> None:
    (folder.parent / "secret").write_text("secret")
    (folder / "secret").symlink_to(folder.parent / "secret")
    (folder / "up").symlink_to("..")
    (folder / "folder").symlink_to("/etc")
    if "*" in line:
        assert take(folder, line) == ()
    else:
        with pytest.raises(DockerfileUnsupported, match="leaves the environment folder"):
            take(folder, line)


def test_special_files_and_line_breaks_are_refused(folder: Path) -> None:
    (folder / "sub" / "a\nb").write_text("")
    with pytest.raises(DockerfileUnsupported, match="line break"):
        take(folder, "COPY sub /x")
    os.mkfifo(folder / "other" / "pipe")
    with pytest.raises(DockerfileUnsupported, match="neither a file, a folder nor a link"):
        take(folder, "COPY other /x")


def test_modes_and_content_are_known_but_not_times(folder: Path) -> None:
    (folder / "a.txt").chmod(0o750)
    first = take(folder, "COPY a.txt /x")
    assert first[0].entries[0].mode == 0o750
    os.utime(folder / "a.txt", (1, 1))
    assert take(folder, "COPY a.txt /x") == first
    assert take(folder, "COPY --chmod=644 a.txt /x")[0].entries[0].mode == 0o644
    (folder / "a.txt").write_text("changed")
    assert take(folder, "COPY a.txt /x") != first


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_archives_are_told_by_their_first_bytes(folder: Path, mode: str) -> None:
    with tarfile.open(folder / "archive", mode) as tar:  # type: ignore[call-overload]
        tar.addfile(tarfile.TarInfo("x"))
    flag = {"w": "", "w:gz": "z", "w:bz2": "j", "w:xz": "J"}[mode]
    assert take(folder, "ADD archive a.txt /x/")[0].archive == flag
    assert take(folder, "ADD archive a.txt /x/")[1].archive is None
    assert take(folder, "COPY archive /x/")[0].archive is None


def test_the_tar_holds_what_was_selected(folder: Path) -> None:
    (folder / "sub" / "link").symlink_to("c.txt")
    (source,) = take(folder, "COPY --chmod=700 sub /x")
    files = [(f"/x/{entry.rel}", entry) for entry in source.entries if entry.kind != "folder"]
    out = io.BytesIO()
    write_tar(out, [("/x", 0o755), ("/x/deep", 0o2750)], files, (7, 8))
    out.seek(0)
    with tarfile.open(fileobj=out) as tar:
        members = {member.name: member for member in tar.getmembers()}
        assert sorted(members) == ["x", "x/c.txt", "x/deep", "x/deep/d.log", "x/deep/e.txt", "x/link"]
        assert members["x/deep"].mode == 0o2750
        assert members["x/link"].linkname == "c.txt"
        file = tar.extractfile("x/c.txt")
        assert file is not None
        assert file.read() == b"sub/c.txt"
    assert {(member.uid, member.gid, member.mtime) for member in members.values()} == {(7, 8, TIME)}
    assert members["x/c.txt"].mode == 0o700


def test_a_file_that_shrank_since_is_an_error(folder: Path) -> None:
    (source,) = take(folder, "COPY sub /x")
    (folder / "sub" / "c.txt").write_text("")
    with pytest.raises(OSError, match="unexpected end"):
        write_tar(io.BytesIO(), [], [("/x", source.entries[0])], (0, 0))


PASSWD = "root:x:0:0:root:/root:/bin/bash\napp:x:1000:1001::/home/app:/bin/sh\nbroken\n"
GROUP = "root:x:0:\nstaff:x:50:app\n"


@pytest.mark.parametrize(
    ("spec", "ids"),
    [
        ("app", (1000, 1001)),
        ("app:staff", (1000, 50)),
        ("app:7", (1000, 7)),
        ("5", (5, 5)),
        ("5:staff", (5, 50)),
        ("0", (0, 0)),
    ],
)
def test_owners_by_name_and_number(spec: str, ids: tuple[int, int]) -> None:
    assert owner_ids(spec, PASSWD, GROUP) == ids


@pytest.mark.parametrize(
    ("spec", "why"), [("nobody", "no user 'nobody'"), ("app:crew", "no group 'crew'"), ("", "no user ''")]
)
def test_unknown_owners_are_named(spec: str, why: str) -> None:
    with pytest.raises(LookupError, match=why):
        owner_ids(spec, PASSWD, GROUP)
