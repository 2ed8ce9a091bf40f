"""Images written into task.toml files: what people wrote stays."""

from pathlib import Path

import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain.errors import Refused
from harbor_assets.sources.taskfile import change_table, read_text, write_text

IMAGE: dict[str, str | None] = {"docker_image": "r/x@sha256:1", "built_content_hash": "h", "image_sha256": "sha256:1"}
NONE: dict[str, str | None] = dict.fromkeys(IMAGE)
LINES = 'docker_image = "r/x@sha256:1"\nbuilt_content_hash = "h"\nimage_sha256 = "sha256:1"\n'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            '# mine\nversion = "1"\n\n[environment]  # env\ncpus = 1   # one\n\n\n# the verifier\n[verifier]\n'
            "x = 0x10\n",
            f'# mine\nversion = "1"\n\n[environment]  # env\ncpus = 1   # one\n{LINES}\n\n# the verifier\n[verifier]\n'
            "x = 0x10\n",
        ),
        ("[environment]\n# nothing yet\n\n[agent]\n", f"[environment]\n# nothing yet\n{LINES}\n[agent]\n"),
        ("[environment.env]\nA = 'b'\n", f"[environment]\n{LINES}\n[environment.env]\nA = 'b'\n"),
        ("[environment]\n\n[environment.env]\nA = 1\n", f"[environment]\n{LINES}\n[environment.env]\nA = 1\n"),
        ("[environment]\r\ncpus = 1\r\n\r\n[agent]\r\n", None),
        ("[[steps]]\nname = 'a'\n", f"[[steps]]\nname = 'a'\n\n[environment]\n{LINES}"),
        ("environment = {cpus = 1}\n", None),
        ("environment.cpus = 1\n[agent]\n", None),
        ("[environment]\ncpus = 1", None),
    ],
)
def test_keys_go_where_they_belong_and_nothing_else_moves(before: str, after: str | None) -> None:
    changed = change_table(before, ["environment"], IMAGE)
    assert after is None or changed == after
    assert tomli.loads(changed)["environment"].items() >= IMAGE.items()
    assert ("\r\n" in before) == ("\r\n" in changed)
    assert changed.count("\r\n") in (0, changed.count("\n"))
    assert change_table(changed, ["environment"], IMAGE) == changed
    if not before.startswith("environment."):  # tomlkit loses count of such keys, and it is refused
        back = tomli.loads(change_table(changed, ["environment"], NONE))
        assert back == {"environment": {}} | tomli.loads(before) or back == tomli.loads(before)


def test_what_is_there_is_replaced_in_its_place() -> None:
    before = "[environment]\ndocker_image = 'old'  # mine\ncpus = 1\nimage_sha256 = \"y\"\n"
    assert change_table(before, ["environment"], IMAGE) == (
        '[environment]\ndocker_image = "r/x@sha256:1"  # mine\ncpus = 1\nimage_sha256 = "sha256:1"\n'
        'built_content_hash = "h"\n'
    )


def test_a_verifiers_table_is_another_and_taking_out_makes_none() -> None:
    changed = change_table(
        "[environment]\ncpus = 1\n[verifier.environment]\ncpus = 2\n", ["verifier", "environment"], IMAGE
    )
    assert tomli.loads(changed)["environment"] == {"cpus": 1}
    assert tomli.loads(changed)["verifier"]["environment"]["docker_image"] == "r/x@sha256:1"
    assert change_table("x = 1\n", ["verifier", "environment"], NONE) == "x = 1\n"


@pytest.mark.parametrize("text", ["environment = 1\n", "[[environment]]\n", "not toml"])
def test_what_cannot_be_changed_is_said(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - tomli's own is one too
        change_table(text, ["environment"], IMAGE)


_keys = st.sampled_from(["cpus", "memory_mb", "docker_image", "image_sha256", "env", "x"])
_lines = st.one_of(
    st.sampled_from(["", "# a comment", "[agent]", "[environment]", "[verifier]", "[environment.env]", "[[steps]]"]),
    st.builds("{} = {}".format, _keys, st.sampled_from(["1", "'a'", '"b" # c', "[1,\n 2]", "{a = 1}"])),
)


@given(st.lists(_lines, max_size=12).map("\n".join), st.sampled_from(["", "\n"]))
def test_a_change_says_exactly_what_it_is_to_or_is_refused(text: str, end: str) -> None:
    try:
        before = tomli.loads(text + end)
        changed = change_table(text + end, ["environment"], IMAGE)
    except ValueError:
        return
    after = tomli.loads(changed)
    assert after.pop("environment").items() >= IMAGE.items()
    before.pop("environment", None)
    assert after == before
    assert {line for line in text.splitlines() if line.startswith("#")} <= set(changed.splitlines())


def test_a_file_keeps_its_mode_and_leaves_nothing_beside(tmp_path: Path) -> None:
    path = tmp_path / "task.toml"
    path.write_bytes("a = 1\r\n# ü\r\n".encode())
    path.chmod(0o640)
    write_text(path, read_text(path) + "b = 2\r\n")
    assert path.read_bytes() == "a = 1\r\n# ü\r\nb = 2\r\n".encode()
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(Refused, match="cannot be read"):
        read_text(tmp_path / "link")
