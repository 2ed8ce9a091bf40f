"""`ui` with stand-ins for Dagster's two programs: that both are started right, and that neither outlives it."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from harbor_assets.interfaces.cli import serving
from tests.cli.conftest import Cli

STUBBORN = """#!/bin/bash
trap '' INT
echo "$@" > "$LOG/$3"
echo "$DAGSTER_HOME $PWD" > "$LOG/home"
sleep 600 &
echo $! > "$LOG/$3.child"
wait
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOG", str(tmp_path))
    monkeypatch.setenv("DAGSTER_HOME", "")  # the command sets it: so that it is set back afterwards
    monkeypatch.setattr(serving, "STOP_SECONDS", 0.3)
    return tmp_path


def program(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "python"
    path.write_text(text)
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))


def test_both_run_on_the_home_and_ctrl_c_ends_both_with_their_children(
    w: object, cli: Cli, log: Path, monkeypatch: pytest.MonkeyPatch
):
    program(log, STUBBORN, monkeypatch)

    def interrupt() -> None:
        children = [log / "dagster_webserver.child", log / "dagster._daemon.child"]
        until = time.monotonic() + 30
        while not all(child.exists() and child.read_text() for child in children) and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    said = cli("ui", "--port", "3999")
    thread.join()
    assert said.code == 0
    assert "http://127.0.0.1:3999" in said.err
    instance = Path(os.environ["HARBOR_ASSETS_HOME"]) / "dagster"
    assert (log / "dagster_webserver").read_text().split() == [
        *("-P", "-m", "dagster_webserver", "-w", str(instance / "workspace.yaml")),
        *("-h", "127.0.0.1", "-p", "3999"),
    ]
    assert (log / "dagster._daemon").read_text().startswith("-P -m dagster._daemon run -w ")
    assert (log / "home").read_text().split() == [str(instance), str(instance)]
    for name in ("dagster_webserver", "dagster._daemon"):
        assert ended(int((log / f"{name}.child").read_text()))


def ended(pid: int) -> bool:
    """Within a second: a killed process takes a moment to die."""
    until = time.monotonic() + 1
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.01)
    return False


def test_one_that_ends_by_itself_ends_the_other(w: object, cli: Cli, log: Path, monkeypatch: pytest.MonkeyPatch):
    program(log, f'[ "$3" = dagster_webserver ] && exit 7\n{STUBBORN}'.replace("#!/bin/bash\n", ""), monkeypatch)
    (log / "python").write_text("#!/bin/bash\n" + (log / "python").read_text())
    said = cli("ui")
    assert said.code == 1
    assert "dagster-webserver ended by itself with status 7" in said.err
