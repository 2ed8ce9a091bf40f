"""Contexts: which service a command talks to, and what a remote command leaves on this machine."""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harbor_assets.access import AccessFileAuthenticator, add_token
from harbor_assets.domain.access import Role
from harbor_assets.interfaces.api.app import create_app
from harbor_assets.interfaces.cli import progress
from harbor_assets.interfaces.contexts import Contexts, contexts_file
from harbor_assets.interfaces.sdk import http
from harbor_assets.sdk import Evaluator
from tests.cli.conftest import Cli
from tests.interfaces.backends import World
from tests.interfaces.served import free_port, served


@pytest.fixture
def url(w: World) -> Iterator[str]:
    with served(create_app(w.backend)) as base:
        yield base


def test_contexts_are_saved_chosen_shown_and_removed(bare: Cli):
    assert bare("context", "show").out == "local: the home of this machine (default)\n"
    assert bare("context", "add", "lab", "--base-url", "http://lab.example:8000/").code == 0
    assert bare("context", "use", "lab").out == "Commands talk to http://lab.example:8000\n"
    assert bare("context", "show", "--json").json == {
        "name": "lab",
        "base_url": "http://lab.example:8000",
        "from": "context use",
    }
    assert [(c["name"], c["current"]) for c in bare("context", "list", "--json").json["data"]] == [
        ("local", False),
        ("lab", True),
    ]
    assert "home of this machine again" in bare("context", "remove", "lab").out
    assert bare("context", "show").out.startswith("local:")


def test_wrong_names_and_urls_are_refused(bare: Cli):
    assert bare("context", "add", "Lab", "--base-url", "http://x").code == 2
    assert bare("context", "add", "local", "--base-url", "http://x").code == 2
    assert bare("context", "add", "lab", "--base-url", "lab.example").code == 2
    bare("context", "add", "laboratory", "--base-url", "http://x")
    said = bare("context", "use", "labratory")
    assert (said.code, "did you mean laboratory?" in said.err) == (2, True)
    assert bare("context", "remove", "local").code == 2


def test_the_file_is_for_its_owner_alone_and_never_half(bare: Cli, monkeypatch: pytest.MonkeyPatch):
    bare("context", "add", "a", "--base-url", "http://a")
    path = contexts_file()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()

    def killed(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", killed)
    said = bare("context", "add", "b", "--base-url", "http://b")
    assert (said.code, "No space left" in said.err) == (2, True)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]  # noqa: PTH208
    path.write_text("[]")
    assert "does not hold contexts" in bare("context", "list").err


def test_the_command_line_wins_over_the_environment_and_that_over_the_choice(
    cli: Cli, url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(http, "RETRY_PAUSES", ())
    Contexts().add("dead", f"http://127.0.0.1:{free_port()}").add("alive", url).use("dead").save()
    assert cli("runs", "list").code == 1
    assert cli("runs", "list", "--base-url", url).code == 0
    monkeypatch.setenv("HARBOR_ASSETS_CONTEXT", "alive")
    assert cli("runs", "list").code == 0
    monkeypatch.setenv("HARBOR_ASSETS_CONTEXT", "local")
    assert cli("runs", "list").code == 0
    monkeypatch.setenv("HARBOR_ASSETS_CONTEXT", "gone")
    assert "There is no context 'gone'" in cli("runs", "list").err


def test_a_suite_is_published_and_submitted_to_a_service_and_no_home_is_made(
    cli: Cli, w: World, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from harbor_assets.examples import hello_world

    home = tmp_path / "untouched"
    monkeypatch.setenv("HARBOR_ASSETS_HOME", str(home))
    words = ("--harbor-dir", hello_world(), "--base-url", url)
    said = cli("runs", "submit", *words)
    assert said.code == 0, said.err
    assert f"--base-url {url}" in said.out  # the commands it prints go to the same place
    [stored] = [key for key in w.artifacts.objects if key.startswith("filesets/")]
    assert stored.endswith("/task_archive")
    run_id = w.executions.started[0]
    w.end(run_id, 1.0)
    w.merge(run_id)
    assert cli("runs", "status", run_id, "--watch", "--base-url", url).code == 0
    assert cli("runs", "download", run_id, "--output", tmp_path, "--base-url", url).code == 0
    assert {path.name for path in home.iterdir()} <= {"cache"}


def test_watching_rides_out_an_outage_and_says_so_once(
    w: World, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    from harbor_assets.domain.errors import ServiceUnavailable
    from harbor_assets.interfaces.sdk.runs import Runs

    monkeypatch.setattr(progress, "OUTAGE_PAUSE_SECONDS", 0.01)
    real, left = Runs.status, [5]

    def flaky(self: Runs, run_id: str) -> object:
        if left[0]:
            left[0] -= 1
            raise ServiceUnavailable("No service answers at URL")
        return real(self, run_id)

    run_id = cli("runs", "submit", "--taskset", w.publish("a"), "--json").json["run"]["id"]
    w.end(run_id, 1.0)
    w.merge(run_id)
    monkeypatch.setattr(Runs, "status", flaky)
    with served(create_app(w.backend)) as url:
        said = cli("runs", "status", run_id, "--watch", "--base-url", url)
        assert said.code == 0
        assert said.err.count("No service answers") == 1
        assert "The service answers again" in said.err
        left[0] = 10**9
        monkeypatch.setattr(progress, "OUTAGE_SECONDS", 0.05)
        assert cli("runs", "status", run_id, "--watch", "--base-url", url).code == 1


def test_a_submission_whose_answer_is_lost_says_how_to_find_out_and_is_one_run(
    cli: Cli, w: World, url: str, monkeypatch: pytest.MonkeyPatch
):
    from harbor_assets.domain.errors import ServiceUnavailable
    from harbor_assets.interfaces.sdk.runs import Runs

    real = Runs.submit_request

    def lost(self: Runs, *words: Any, **more: Any) -> object:
        real(self, *words, **more)
        raise ServiceUnavailable("The connection broke off")

    submit = ("runs", "submit", "--taskset", w.publish("a"), "--base-url", url)
    monkeypatch.setattr(Runs, "submit_request", lost)
    said = cli(*submit)
    assert said.code == 1
    key = re.search(r"--idempotency-key (\S+)", said.err)
    assert key
    monkeypatch.setattr(Runs, "submit_request", real)
    again = cli(*submit, "--idempotency-key", key[1])
    assert again.code == 0
    assert len(w.executions.started) == 1
    assert w.executions.started[0] in again.out


def test_a_context_names_the_file_of_its_token_and_holds_no_token(
    cli: Cli, w: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Against the real guard, with a token that may only read."""
    access = tmp_path / "access.toml"
    token = add_token(access, "me", {"default": Role.READER})
    file = tmp_path / "token"
    w.publish("a")
    with served(create_app(w.backend, authenticator=AccessFileAuthenticator(access))) as url:
        assert "cannot be read" in cli("context", "add", "lab", "--base-url", url, "--token-file", file).err
        file.write_text(token + "\n")
        said = cli("context", "add", "lab", "--base-url", url, "--token-file", file)
        assert said.out.startswith(f"Saved context lab: {url} (token: {file})")
        assert token not in contexts_file().read_text()
        assert str(file) in cli("context", "list").out
        cli("context", "use", "lab")
        assert cli("tasks", "list", "--json").json["data"][0]["name"] == "a"
        said = cli("tasks", "delete", "a", "--yes")
        assert (said.code, "writer" in said.err) == (2, True)
        said = cli("tasks", "list", "--base-url", url)  # another service, for all that is known
        assert (said.code, "HARBOR_ASSETS_TOKEN" in said.err) == (2, True)
        monkeypatch.setenv("HARBOR_ASSETS_TOKEN", token)
        assert cli("tasks", "list", "--base-url", url).code == 0
        monkeypatch.setenv("HARBOR_ASSETS_TOKEN", "another")
        said = cli("tasks", "list")  # the environment counts before the file
        assert (said.code, "not known" in said.err) == (2, True)
        monkeypatch.delenv("HARBOR_ASSETS_TOKEN")
        file.write_text("two words")
        said = cli("tasks", "list")
    assert said.code == 2
    assert f"The token in {file} must be printable ASCII without spaces; it is not sent" in said.err
    assert "two words" not in said.err


def test_the_sdk_goes_where_the_command_line_goes(cli: Cli, w: World, url: str, tmp_path: Path):
    w.publish("a")
    cli("context", "add", "lab", "--base-url", url)
    cli("context", "use", "lab")
    with Evaluator.from_config() as evaluator:
        assert evaluator.base_url == url
        assert evaluator.tasks.retrieve("a").name == "a"
    cli("context", "use", "local")
    with Evaluator.from_config(workspace="other") as evaluator:
        assert (evaluator.base_url, evaluator.workspace) == (None, "other")
