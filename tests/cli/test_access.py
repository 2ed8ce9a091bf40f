"""`access`: tokens made, listed and used, with a service that runs."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from harbor_assets.access import read_access
from harbor_assets.domain.access import Role, token_hash
from tests.cli.conftest import Cli
from tests.interfaces.served import free_port

TASKS = "/apis/evals/v2/workspaces/{}/tasks"


def test_a_token_is_printed_once_and_nothing_else_is_on_stdout(bare: Cli, tmp_path: Path):
    file = tmp_path / "access.toml"
    said = bare("access", "new", "ci", "--grant", "default=writer", "--grant", "*=reader", "--file", file)
    assert said.code == 0
    assert re.fullmatch(r"harbor_[A-Za-z0-9_-]{43}\n", said.out)
    [entry] = read_access(file).tokens
    assert entry.sha256 == token_hash(said.out.strip())
    assert entry.workspaces == {"default": Role.WRITER, "*": Role.READER}
    assert said.out.strip() not in said.err + file.read_text()


def test_the_list_shows_who_may_do_what_and_no_hash(bare: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "access.toml"
    monkeypatch.setenv("HARBOR_ASSETS_ACCESS", str(file))
    bare("access", "new", "ci", "--grant", "default=writer", "--expires", "2031-02-03")
    text, json = bare("access", "list"), bare("access", "list", "--json")
    assert "ci    default=writer  2031-02-03 00:00:00Z" in text.out
    assert json.json["data"] == [{"name": "ci", "workspaces": {"default": "writer"}, "expires": "2031-02-03T00:00:00Z"}]
    assert read_access(file).tokens[0].sha256 not in text.out + json.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("new", "ci", "--grant", "default"), "WORKSPACE=ROLE"),
        (("new", "ci", "--grant", "default=owner"), "reader, writer, admin"),
        (("new", "ci", "--grant", "a b=reader"), "a workspace's name"),
        (("new", "ci", "--grant", "a=reader", "--expires", "soon"), "2027-01-31"),
        (("new", "c/i", "--grant", "a=reader"), "name"),
        (("list",), "cannot be read"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(bare: Cli, tmp_path: Path, words: tuple[str, ...], says: str):
    said = bare("access", *words, "--file", tmp_path / "access.toml")
    assert (said.code, said.out) == (2, "")
    assert says in said.err
    assert not list(tmp_path.glob("access*"))


def test_without_a_file_it_asks_for_one(bare: Cli):
    assert "HARBOR_ASSETS_ACCESS" in bare("access", "list").err


def test_the_token_of_the_environment_is_never_shown(bare: Cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HARBOR_ASSETS_TOKEN", "harbor_hunter2")
    said, json = bare("config"), bare("config", "--json")
    assert "HARBOR_ASSETS_TOKEN" in said.out
    assert "hunter2" not in said.out + said.err + json.out + json.err
    monkeypatch.setenv("HARBOR_ASSETS_TOKEN", "hunter2 with blanks")
    refused = bare("runs", "list")
    assert refused.code == 2
    assert "hunter2" not in refused.err


def test_a_bad_access_file_is_told_before_anything_is_served(
    bare: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "access.toml"
    monkeypatch.setenv("HARBOR_ASSETS_ACCESS", str(file))
    assert bare("serve").code == 2
    file.write_text("")
    file.chmod(0o644)
    said = bare("serve", "--host", "0.0.0.0")
    assert (said.code, "chmod 600" in said.err) == (2, True)


def test_a_service_that_others_reach_takes_a_new_token_at_once(bare: Cli, tmp_path: Path):
    file, port = tmp_path / "access.toml", free_port()
    first = bare("access", "new", "one", "--grant", "default=writer", "--file", file).out.strip()
    program = [sys.executable, "-m", "harbor_assets", "serve", "--host", "0.0.0.0", "--port", str(port)]
    home = {"HARBOR_ASSETS_HOME": str(tmp_path / "home"), "HARBOR_ASSETS_ACCESS": str(file)}
    log = tmp_path / "log"
    with log.open("wb") as said, subprocess.Popen(program, env={**os.environ, **home}, stderr=said) as service:
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
                until = time.monotonic() + 60
                while True:
                    try:
                        assert client.get("/healthz").status_code == 200
                        break
                    except httpx.TransportError:
                        assert time.monotonic() < until
                        assert service.poll() is None
                        time.sleep(0.1)

                def status(token: str | None, workspace: str = "default") -> int:
                    headers = {"Authorization": f"Bearer {token}"} if token else {}
                    return client.get(TASKS.format(workspace), headers=headers).status_code

                assert [status(None), status(first), status(first, "other")] == [401, 200, 403]
                second = bare("access", "new", "two", "--grant", "*=reader", "--file", file).out.strip()
                assert [status(second), status(second, "other"), status("harbor_" + "x" * 43)] == [200, 200, 401]
                file.write_text("")
                assert [status(first), status(second)] == [401, 401]
        finally:
            service.kill()
    text = log.read_text()
    assert "Callers need a token" in text
    assert "was read again" in text
    assert not [token for token in (first, second) if token in text]
