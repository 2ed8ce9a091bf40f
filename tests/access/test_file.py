"""The access file as it lies on a disk: its mode, its changes, its mistakes, and what is written to it."""

import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harbor_assets.access import AccessFileAuthenticator, add_token, read_access
from harbor_assets.domain.access import Caller, Role, token_hash
from harbor_assets.domain.errors import Refused, ServiceUnavailable, Unauthenticated

WRITER = {"default": Role.WRITER}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "access.toml"


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_token_speaks_for_its_caller_and_the_file_does_not_hold_it(path: Path):
    token = add_token(path, "ci", WRITER)
    assert AccessFileAuthenticator(path).authenticate(token) == Caller("ci", WRITER)
    assert token not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_tokens_are_added_to_what_stands_there(path: Path):
    written(path, "# ours\n")
    granted = {"*": Role.ADMIN, "a.b": Role.READER, "ü": Role.READER}
    tokens = [
        add_token(
            path,
            name,
            {"*": Role.ADMIN, "a.b": Role.READER, "ü": Role.READER},
            expires=datetime(2030, 1, 1, tzinfo=UTC),
        )
        for name in ("one", "two")
    ]
    assert path.read_text().startswith("# ours\n")
    assert [entry.sha256 for entry in read_access(path).tokens] == [token_hash(token) for token in tokens]
    assert read_access(path).tokens[0].workspaces == granted
    with pytest.raises(Refused, match="named 'two' already"):
        add_token(path, "two", WRITER)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("name", ["", 'a"b', "a\nb", "x" * 256])
def test_a_name_that_could_break_the_file_is_refused(path: Path, name: str):
    with pytest.raises(Refused, match="not made"):
        add_token(path, name, WRITER)
    assert not path.exists()


@pytest.mark.parametrize("wrong", ["", "harbor_", "harbor_" + "x" * 43, "a.b.c", "ci"])
def test_what_is_no_token_of_the_file_is_not_accepted(path: Path, wrong: str):
    add_token(path, "ci", WRITER)
    with pytest.raises(Unauthenticated) as refused:
        AccessFileAuthenticator(path).authenticate(wrong)
    assert not wrong or wrong not in str(refused.value)


def test_an_expired_token_is_not_accepted(path: Path):
    now = datetime(2026, 1, 1, tzinfo=UTC)
    token = add_token(path, "ci", WRITER, expires=now)
    with pytest.raises(Unauthenticated, match="'ci' has expired"):
        AccessFileAuthenticator(path, clock=lambda: now).authenticate(token)
    assert AccessFileAuthenticator(path, clock=lambda: now - timedelta(seconds=1)).authenticate(token)


def test_a_change_counts_from_the_next_call_on(path: Path):
    first = add_token(path, "one", WRITER)
    access = AccessFileAuthenticator(path)
    second = add_token(path, "two", WRITER)
    assert access.authenticate(second).name == "two"
    path.write_text(path.read_text().partition("\n\n")[2])
    with pytest.raises(Unauthenticated):
        access.authenticate(first)
    assert access.authenticate(second).name == "two"


@pytest.mark.parametrize("breaking", ["tokens = [", None, 'tokens = "x"'])
def test_while_the_file_cannot_be_read_nobody_is_let_in(
    path: Path, breaking: str | None, caplog: pytest.LogCaptureFixture
):
    token = add_token(path, "ci", WRITER)
    access, good = AccessFileAuthenticator(path), path.read_text()
    path.unlink() if breaking is None else path.write_text(breaking)
    with pytest.raises(ServiceUnavailable, match="cannot read its access file"):
        access.authenticate(token)
    assert "nobody is let in" in caplog.text
    written(path, good)
    assert access.authenticate(token).name == "ci"


@pytest.mark.parametrize("mode", [0o644, 0o620, 0o602, 0o604, 0o777])
def test_a_file_that_others_reach_is_refused(path: Path, mode: int):
    written(path, "", mode)
    with pytest.raises(Refused, match="chmod 600"):
        read_access(path)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o440])
def test_a_group_may_read_it_as_that_of_a_mounted_secret_does(path: Path, mode: int):
    written(path, "", mode)
    assert read_access(path).tokens == []


@pytest.mark.req_root
def test_a_file_of_another_user_is_refused(path: Path):
    written(path, "")
    os.chown(path, 12345, 0)
    with pytest.raises(Refused, match="belongs to another user"):
        read_access(path)


def test_what_is_wrong_is_told_by_its_place_and_never_by_its_value(path: Path):
    written(
        path, '[[tokens]]\nname = "ci"\nsha256 = "my-password"\nworkspaces = {a = "owner"}\ntoken = "my-password"\n'
    )
    with pytest.raises(Refused) as refused:
        read_access(path)
    assert "tokens.0.sha256" in str(refused.value)
    assert "tokens.0.workspaces.a" in str(refused.value)
    assert "my-password" not in str(refused.value)


def test_a_file_that_is_missing_or_no_text_is_told(path: Path):
    with pytest.raises(Refused, match="cannot be read: No such file"):
        AccessFileAuthenticator(path)
    path.write_bytes(b"\xff")
    path.chmod(0o600)
    with pytest.raises(Refused, match="UTF-8"):
        read_access(path)


def test_keys_in_a_file_that_is_not_there_are_told_at_once(path: Path):
    written(path, '[[issuers]]\nissuer = "i"\naudience = "a"\njwks = "/nowhere/keys"\nroles = {t = {a = "reader"}}\n')
    with pytest.raises(Refused, match="there is no file /nowhere/keys"):
        read_access(path)
