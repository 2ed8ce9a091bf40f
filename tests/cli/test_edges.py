"""What people found at the edges of the command line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harbor_assets.interfaces.cli.output import Output, cut, width
from tests.cli.conftest import Cli
from tests.interfaces.backends import World
from tests.suites import make


def sh(command: str, home: Path) -> subprocess.CompletedProcess[str]:
    program = f"{sys.executable} -m harbor_assets"
    env = {**os.environ, "HARBOR_ASSETS_HOME": str(home)}
    return subprocess.run(
        ["sh", "-c", command.replace("HA", program)], env=env, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("value", ["0", "false", "off", ""])
def test_debug_that_is_off_prints_no_traceback(cli: Cli, monkeypatch: pytest.MonkeyPatch, value: str):
    monkeypatch.setenv("HARBOR_ASSETS_DEBUG", value)
    assert "Traceback" not in cli("runs", "status", "run-0").err
    monkeypatch.setenv("HARBOR_ASSETS_DEBUG", "1")
    assert "Traceback" in cli("runs", "status", "run-0").err


def test_a_closed_stdout_or_stderr_changes_no_exit_code(tmp_path: Path):
    closed = sh("HA config >&-", tmp_path / "h")
    assert (closed.returncode, closed.stderr) == (0, "")
    assert sh("HA runs submit 2>&-", tmp_path / "h").returncode == 2


@pytest.mark.parametrize("run_id", ["", ".", "../../etc", "a b"])
def test_what_is_no_run_id_is_said_to_be_none(cli: Cli, run_id: str):
    said = cli("runs", "status", run_id)
    assert said.code == 2
    assert f"'{run_id}' is no run's id" in said.err


def test_a_run_of_another_workspace_says_which(cli: Cli, w: World):
    assert cli("runs", "submit", "--taskset", w.publish("a")).code == 0
    said = cli("runs", "status", w.executions.started[0], "--workspace", "other")
    assert (said.code, "add --workspace default" in said.err) == (2, True)


@pytest.mark.parametrize("flag", ["--harbor-dir", "--taskset"])
def test_an_empty_source_is_no_source(cli: Cli, flag: str):
    said = cli("runs", "submit", flag, "")
    assert (said.code, f"{flag} is empty" in said.err) == (2, True)


def test_a_list_of_nothing_is_no_success(cli: Cli, tmp_path: Path):
    suite = make.make_suite(tmp_path / "geo", 1)
    for path in suite.rglob("task.toml"):
        path.write_text("broken [")
    said = cli("runs", "submit", "--harbor-dir", suite, "--list-tasks")
    assert (said.code, "Invalid" in said.err) == (2, True)


def test_a_table_is_cut_to_a_terminal_and_never_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    row = ("a" * 30, "b" * 30)
    Output().table(("A", "B"), [row])
    assert capsys.readouterr().out.splitlines()[1] == "  ".join(row)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    Output().table(("A", "B"), [row])
    line = capsys.readouterr().out.splitlines()[1]
    assert (width(line), line[-1]) == (40, "…")
    assert cut("日本語", 5) == "日本…"
    assert cut("abc", 3) == "abc"


def test_a_kubeconfig_can_be_named_at_the_command_line(bare: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    kubectl = tmp_path / "kubectl"
    kubectl.write_text("#!/bin/sh\nexit 1\n")
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("KUBECONFIG", "")  # so that it is put back
    said = bare("cluster", "uninstall", "--overlay", "test", "--yes", "--kubeconfig", tmp_path / "none")
    assert (said.code, said.out) == (2, "")
    assert f"KUBECONFIG names {tmp_path}/none, and there is no such file" in said.err


def test_a_value_of_the_wrong_kind_is_named(bare: Cli):
    said = bare("runs", "list", "--page", "1.5\x1b")
    assert said.code == 2
    assert said.err.rstrip().endswith("it is '1.5\\x1b'")
