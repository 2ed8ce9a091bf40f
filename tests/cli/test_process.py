"""The command line as a process of its own: pipes that close, disks that are full, locales that know little."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.suites import make

COMMAND = [sys.executable, "-m", "harbor_assets"]


def start(*words: str | Path, stdout: int | None = subprocess.PIPE, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *map(str, words)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        errors="surrogateescape",
        env={**os.environ, **env},
    )


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return make.make_suite(tmp_path / "suite", 2)


def test_a_reader_that_goes_away_ends_the_command_quietly(suite: Path):
    process = start("runs", "submit", "--harbor-dir", suite, "--list-tasks")
    assert process.stdout
    process.stdout.close()
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_output_that_cannot_be_written_is_a_fault_and_no_traceback(suite: Path):
    with Path("/dev/full").open("w") as full:
        process = start("runs", "submit", "--harbor-dir", suite, "--list-tasks", stdout=full.fileno())
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "No space left on device" in err
    assert "Traceback" not in err


def test_a_poor_locale_is_no_error(tmp_path: Path):
    make.make_task(tmp_path / "suite", "street", native_id="org/straße")
    process = start(
        "runs", "submit", "--harbor-dir", tmp_path / "suite", "--list-tasks",
        LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING="ascii",
    )  # fmt: skip
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2  # no task of the suite is valid
    assert "Invalid street: task.toml: task.name = 'org/stra\\xdfe'" in err


INTERRUPTED_IMPORT = """
import os, runpy, signal, sys

class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupted())
sys.argv = ["harbor-assets", "ui"]
runpy.run_module("harbor_assets", run_name="__main__")
"""


def test_ctrl_c_before_the_command_line_is_there_is_no_traceback():
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")  # 130 to a shell


def test_a_catalog_that_is_none_is_told_once():
    home = Path(os.environ["HARBOR_ASSETS_HOME"])
    home.mkdir(parents=True, exist_ok=True)
    (home / "catalog.db").write_text("not a database")
    process = start("runs", "list")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert err.count("cannot be used: file is not a database") == 1


def test_ctrl_c_while_a_suite_is_read_starts_nothing(tmp_path: Path):
    suite = make.make_suite(tmp_path / "suite", 400)
    process = start("runs", "submit", "--harbor-dir", suite, "--sandbox", "process", "--wait")
    home = Path(os.environ["HARBOR_ASSETS_HOME"])
    until = time.monotonic() + 30
    while not (home / "cache" / "suites.db").exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "nothing was started" in err
    assert "Traceback" not in err
    assert not list((home / "logs").iterdir())
