"""Real runs on this machine, through the command line, with real Harbor trials in the process sandbox."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

COMMAND = [sys.executable, "-m", "harbor_assets"]
PATIENCE_SECONDS = 45.0  # of a loaded machine; every wait ends as soon as what it waits for is there


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Home:
    """A home of its own, and the commands run on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {
            **os.environ,
            "HARBOR_ASSETS_HOME": str(folder),
            "HARBOR_ASSETS_WATCH_POLL_SECONDS": "0.1",
            "HARBOR_ASSETS_CANCEL_POLL_SECONDS": "0.1",
        }

    def run(self, *words: str | Path, **env: str) -> Said:
        command = subprocess.Popen(
            [*COMMAND, *map(str, words)],
            env={**self.env, "PYTHONFAULTHANDLER": "1", **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            out, err = command.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            command.send_signal(signal.SIGABRT)  # says where it hangs
            pytest.fail(f"{words} did not end: {command.communicate()[1]}")
        assert "Traceback" not in err, err
        return Said(command.returncode, out, err)

    def submit(self, suite: Path, *words: str, **env: str) -> str:
        said = self.run("runs", "submit", "--harbor-dir", suite, "--sandbox", "process", "--json", *words, **env)
        assert said.code == 0, said.err
        return said.json["run"]["id"]

    def status(self, run_id: str) -> dict[str, Any]:
        return self.run("runs", "status", run_id, "--json").json

    def outcomes(self, run_id: str) -> list[str]:
        tasks = self.run("runs", "tasks", run_id, "--json").json["data"]
        return [trial["outcome"] for task in tasks for trial in task["outcomes"]]

    def worker(self, run_id: str) -> int | None:
        """The pid of the run's worker, once it has written it; None while there is none."""
        lock = self.folder / "locks" / run_id
        try:
            pid = int(lock.read_text() or 0)
        except (OSError, ValueError):
            return None
        return pid if pid and alive(pid) else None

    def log(self, run_id: str) -> str:
        return (self.folder / "logs" / f"{run_id}.log").read_text()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def eventually[T](look: Callable[[], T], what: str = "") -> T:
    """What `look` gives once it is true; fails after a patience."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not (found := look()):
        assert time.monotonic() < until, f"did not happen: {what or look}"
        time.sleep(0.05)
    return found


def processes_naming(text: str) -> list[str]:
    """Command lines of living processes that hold `text`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if text in line and alive(int(entry.name)):
                found.append(line)
    return found


def partitions(home: Home, run_id: str) -> dict[str, list[str]]:
    """status -> keys of the run's partitions of `trial_results`, as Dagster's own pages compute it."""
    code = """
import asyncio, json, sys, warnings
warnings.simplefilter("ignore")
import dagster as dg
from dagster._core.loader import LoadingContextForTest
from dagster._core.storage.partition_status_cache import get_partition_subsets
from harbor_assets.partitions import RUN_TASKS
i = dg.DagsterInstance.get()
found = asyncio.run(get_partition_subsets(i, LoadingContextForTest(i), dg.AssetKey("trial_results"), i, RUN_TASKS))
keys = lambda s: sorted(k for k in (s.get_partition_keys() if s else []) if k.startswith(sys.argv[1]))
mine = i.get_runs(dg.RunsFilter(tags={"harbor/run_id": sys.argv[1]}))
runs = [[r.status.value, r.tags.get("harbor/execution"), r.tags.get("harbor/phase")] for r in mine]
print(json.dumps({**dict(zip(("ok", "failed", "in_progress"), map(keys, found))), "runs": runs}))
"""
    env = {**home.env, "DAGSTER_HOME": str(home.folder / "dagster")}
    done = subprocess.run([sys.executable, "-c", code, run_id], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")
