"""The package digest is Harbor's, byte for byte."""

from pathlib import Path

import pytest
from harbor.publisher.packager import Packager
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain.errors import Refused
from harbor_assets.sources.packager import package_digest
from harbor_assets.sources.scan import scan
from tests.suites.make import make_task

SEGMENTS = st.sampled_from(
    [
        "a",
        "a.pyc",
        ".pyc",
        "__pycache__",
        "__pycache__x",
        ".DS_Store",
        "x.swp",
        ".swo",
        "b~",
        "~",
        "~b",
        "A",
        "ä",
        "tests",
    ]
)
TOPS = st.sampled_from(["environment", "tests", "solution", "steps", "other", "README.md", "trajectory.json", "x.txt"])


@given(st.lists(st.tuples(TOPS, st.lists(SEGMENTS, max_size=3)), max_size=8))
def test_equal_to_harbors_own(tmp_path_factory: pytest.TempPathFactory, paths: list[tuple[str, list[str]]]):
    task = make_task(tmp_path_factory.mktemp("suite"), "t")
    for number, (top, segments) in enumerate(paths):
        file = task.joinpath(top, *segments)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(str(number))
        except (NotADirectoryError, FileExistsError, IsADirectoryError):
            continue
    try:
        expected = Packager.compute_content_hash(task)[0]
    except OSError:
        return  # a file where Harbor wants a folder, or the other way round: such a task is invalid
    assert package_digest(scan(task)) == expected


@pytest.mark.parametrize("ignore", [".gitignore", "tests/.harborignore"])
def test_ignore_files_are_heeded_as_harbor_does(tmp_path: Path, ignore: str):
    task = make_task(tmp_path, "t", files={ignore: "*.log\n", "tests/a.log": "x", "tests/b.pyc": "y"})
    assert package_digest(scan(task)) == Packager.compute_content_hash(task)[0]
    before = package_digest(scan(task))
    (task / "tests" / "a.log").write_text("ignored")
    assert package_digest(scan(task)) == before


def test_links_are_followed_as_harbor_does(tmp_path: Path):
    task = make_task(tmp_path, "t", files={"other/x": "linked"})
    (task / "tests" / "file").symlink_to("../other/x")
    (task / "tests" / "folder").symlink_to("../other")
    assert package_digest(scan(task)) == Packager.compute_content_hash(task)[0]


def test_an_ignore_file_that_is_no_text_is_refused(tmp_path: Path):
    task = make_task(tmp_path, "t", files={".gitignore": b"\xff\xfe"})
    with pytest.raises(Refused, match="ignore files"):
        package_digest(scan(task))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path):
    task = make_task(tmp_path, "t")
    seen = scan(task)
    (task / "tests" / "test.sh").unlink()
    with pytest.raises(Refused, match=r"tests/test\.sh cannot be read"):
        package_digest(seen)
