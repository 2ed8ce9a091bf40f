"""`ui` with stand-ins for Dagster's two programs: that both are started right, and that neither outlives it.

One test has the real ones.
"""

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harbor_assets.interfaces.cli import serving
from harbor_assets.settings import Settings
from tests.cli.conftest import Cli
from tests.worker.conftest import alive, eventually, processes_naming

STUBBORN = """#!/bin/bash
trap '' INT
echo "$@" > "$LOG/$3"
echo "$DAGSTER_HOME $PWD" > "$LOG/home"
[ "$3" = dagster_webserver ] && [ -z "$MUTE" ] && "$REAL" -c "$ANSWER" "$9" &
sleep 600 &
echo $! > "$LOG/$3.child"
wait
"""
ANSWER = """
import http.server, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/server_info" else 404)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""
REAL = sys.executable


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOG", str(tmp_path))
    monkeypatch.setenv("REAL", REAL)
    monkeypatch.setenv("ANSWER", ANSWER)
    monkeypatch.setenv("DAGSTER_HOME", "")  # the command sets it: so that it is set back afterwards
    monkeypatch.setattr(serving, "STOP_SECONDS", 0.3)
    return tmp_path


def program(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "python"
    path.write_text(text)
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def interrupted_when_both_run(log: Path) -> threading.Thread:
    def interrupt() -> None:
        children = [log / "dagster_webserver.child", log / "dagster._daemon.child"]
        until = time.monotonic() + 30
        while not all(child.exists() and child.read_text() for child in children) and time.monotonic() < until:
            time.sleep(0.01)
        ready = log / "ready"
        while not ready.exists() and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    return thread


def test_both_run_on_the_home_and_ctrl_c_ends_both_with_their_children(
    w: object, cli: Cli, log: Path, port: int, monkeypatch: pytest.MonkeyPatch
):
    program(log, STUBBORN, monkeypatch)
    monkeypatch.setattr(serving, "_check", lambda children, path: (log / "ready").touch() and False)
    thread = interrupted_when_both_run(log)
    said = cli("ui", "--port", str(port))
    thread.join()
    assert said.code in (0, 130)
    instance = Path(os.environ["HARBOR_ASSETS_HOME"]) / "dagster"
    assert (log / "dagster_webserver").read_text().split() == [
        *("-P", "-m", "dagster_webserver", "-w", str(instance / "workspace.yaml")),
        *("-h", "127.0.0.1", "-p", str(port)),
    ]
    assert (log / "dagster._daemon").read_text().startswith("-P -m dagster._daemon run -w ")
    assert (log / "home").read_text().split() == [str(instance), str(instance)]
    for name in ("dagster_webserver", "dagster._daemon"):
        assert ended(int((log / f"{name}.child").read_text()))


def test_the_url_comes_with_the_first_answer_and_ctrl_c_is_a_good_end(
    w: object, cli: Cli, log: Path, port: int, monkeypatch: pytest.MonkeyPatch
):
    program(log, STUBBORN, monkeypatch)
    real = serving._lost_runs_go_on
    monkeypatch.setattr(serving, "_lost_runs_go_on", lambda settings: (log / "ready").touch() or real(settings))
    thread = interrupted_when_both_run(log)
    said = cli("ui", "--port", str(port))
    thread.join()
    assert said.code == 0
    assert said.err.splitlines()[1] == f"Dagster UI: http://127.0.0.1:{port} (Ctrl-C stops it; runs go on)"


def test_ctrl_c_before_the_first_answer_says_no_url(
    w: object, cli: Cli, log: Path, port: int, monkeypatch: pytest.MonkeyPatch
):
    program(log, STUBBORN, monkeypatch)
    monkeypatch.setenv("MUTE", "1")
    (log / "ready").touch()
    thread = interrupted_when_both_run(log)
    said = cli("ui", "--port", str(port))
    thread.join()
    assert said.code == 130
    assert "http://" not in said.err


def ended(pid: int) -> bool:
    """Within a second: a killed process takes a moment to die."""
    until = time.monotonic() + 1
    while time.monotonic() < until and alive(pid):
        time.sleep(0.01)
    return not alive(pid)


def test_one_that_ends_by_itself_ends_the_other_and_shows_its_last_lines(
    w: object, cli: Cli, log: Path, port: int, monkeypatch: pytest.MonkeyPatch
):
    failing = '[ "$3" = dagster_webserver ] && echo the reason && exit 7\n'
    program(log, STUBBORN.replace("trap", failing + "trap", 1), monkeypatch)
    said = cli("ui", "--port", str(port))
    assert said.code == 1
    assert "the reason\ndagster-webserver ended by itself with status 7; see " in said.err


def test_a_taken_port_is_refused_before_anything_starts(
    w: object, cli: Cli, log: Path, monkeypatch: pytest.MonkeyPatch
):
    program(log, STUBBORN, monkeypatch)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        said = cli("ui", "--port", str(port))
    assert said.code == 2
    assert f"Port {port} of 127.0.0.1 is taken by another program; choose another: harbor-assets ui --port" in said.err
    assert not (log / "home").exists()


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("0.0.0.0", "say --insecure-no-auth"),
        ("no-such-host.invalid", "say --insecure-no-auth"),
    ],
)
def test_an_address_of_others_needs_a_word(w: object, cli: Cli, log: Path, host: str, why: str):
    said = cli("ui", "--host", host)
    assert said.code == 2
    assert why in said.err


def test_an_address_that_is_none_of_ours_is_refused(w: object, cli: Cli, log: Path):
    said = cli("ui", "--host", "192.0.2.1", "--insecure-no-auth")
    assert said.code == 2
    assert "192.0.2.1 is no address of this machine" in said.err


def test_a_home_is_served_once(w: object, cli: Cli, log: Path, port: int):
    settings = Settings.load()
    settings.prepare_home()
    assert serving.ui_address(settings) is None
    with serving._only_one(settings, "http://127.0.0.1:1"):
        assert serving.ui_address(settings) == "http://127.0.0.1:1"
        said = cli("ui", "--port", str(port))
    assert said.code == 2
    assert "served already, at http://127.0.0.1:1" in said.err


@pytest.fixture
def served(tmp_path: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    ui = subprocess.Popen(
        [REAL, "-m", "harbor_assets", "ui", "--port", str(port)],
        env={**os.environ, "HARBOR_ASSETS_HOME": str(tmp_path / "home")},
        stderr=subprocess.PIPE,
        text=True,
    )
    yield ui
    ui.kill()
    ui.communicate()


def test_the_real_ones_answer_without_noise_and_do_not_outlive_a_kill(
    served: subprocess.Popen[str], tmp_path: Path, port: int
):
    assert served.stderr is not None
    said = [served.stderr.readline(), served.stderr.readline()]
    assert said[0].startswith("Starting the Dagster UI of ")
    assert re.match(rf"Dagster UI: http://127.0.0.1:{port} ", said[1])
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/server_info")
    assert connection.getresponse().status == 200
    eventually(lambda: len(processes_naming(str(tmp_path / "home"))) >= 3, "a code server")
    served.kill()
    eventually(lambda: not processes_naming(str(tmp_path / "home")), "all of them ended")
    log = (tmp_path / "home" / "logs" / "ui.log").read_text()
    assert "Warning" not in log, log
    assert "Traceback" not in log, log
