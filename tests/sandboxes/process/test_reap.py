"""A worker killed at any moment: after the next command nothing of it is left, and live workers are unharmed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harbor_assets.sandboxes.process.owner import Owner, start_time
from harbor_assets.sandboxes.process.reap import reap

from .conftest import run, sandbox, sh, traces_of

MOMENTS = ["folder", "spawned", "started", "command"]
ROOT_MOMENTS = ["cgroups", "disk", "link", "network", "stopping"]


@contextmanager
def worker(home: Path, moment: str) -> Iterator[subprocess.Popen[str]]:
    """A worker that has come to `moment`. It is killed, and reaped by its parent, at the end."""
    program = [sys.executable, str(Path(__file__).with_name("worker.py")), str(home), moment]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def left(home: Path, pid: int) -> list[str]:
    return [*traces_of(pid), *(str(path) for path in (home / "sandboxes").glob("*"))]


def keepers_and_inits(home: Path) -> list[int]:
    texts = [path.read_text() for path in (home / "sandboxes").glob("w-*/processes")]
    return [int(line.split()[0]) for text in texts for line in text.splitlines()]


def ended(pids: list[int]) -> bool:
    """All dead: a process lets go of its files a moment earlier."""
    deadline = time.monotonic() + 2
    while any(start_time(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not any(start_time(pid) for pid in pids)


@pytest.mark.parametrize(
    "moment", [*MOMENTS, *(pytest.param(moment, marks=pytest.mark.req_root) for moment in ROOT_MOMENTS)]
)
def test_a_killed_worker_leaves_nothing(home: Path, moment: str) -> None:
    with worker(home, moment) as process:
        pid = process.pid
        assert left(home, pid)
        assert reap(home) == []  # it lives
        assert left(home, pid)
        others = keepers_and_inits(home)
        assert len(others) == (0 if moment in ("folder", "cgroups") else 2 if moment == "stopping" else len(others))
        process.kill()
        process.wait()
        reap(home)
        assert left(home, pid) == []
        assert ended(others)


def test_a_zombie_counts_as_dead(home: Path) -> None:
    """Under a pid 1 that does not reap, a killed worker stays one."""
    with worker(home, "started") as process:
        process.kill()
        deadline = time.monotonic() + 5
        while start_time(process.pid) is not None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert Path(f"/proc/{process.pid}").exists()  # nobody waited for it yet
        reap(home)
        assert left(home, process.pid) == []


def test_worker_keeper_and_init_killed_together(home: Path) -> None:
    with worker(home, "command") as process:
        pids = keepers_and_inits(home)
        assert len(pids) == 4
        for pid in (process.pid, *pids):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        gone = reap(home)
        assert sorted(name for name in gone if name.startswith("sandbox")) == ["sandbox w-0", "sandbox w-1"]
        assert left(home, process.pid) == []


def test_a_keeper_that_hangs_is_killed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harbor_assets.sandboxes.process.reap._PATIENCE_SECONDS", 0.2)
    with worker(home, "started") as process:
        pids = keepers_and_inits(home)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        process.kill()
        process.wait()
        reap(home)
        assert left(home, process.pid) == []
        assert ended(pids)


def test_live_sandboxes_are_left_alone(home: Path) -> None:
    async def work() -> bytes:
        async with sandbox(home) as box:
            assert reap(home) == []
            return (await sh(box, "echo alive")).stdout

    assert run(work()) == b"alive\n"


def test_a_home_without_sandboxes_costs_nothing(tmp_path: Path) -> None:
    assert reap(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
    began = time.perf_counter()
    for _ in range(10):
        reap(tmp_path)
    assert (time.perf_counter() - began) / 10 < 0.05


def test_what_cannot_be_read_is_left(home: Path) -> None:
    """An owner that says nothing certain: of another namespace, or of a newer version."""
    folder = home / "sandboxes" / "strange"
    for text in (json.dumps({"owner": "1-2-3"}), "{", "[]", json.dumps({"owner": "me"})):
        folder.mkdir(parents=True)
        (folder / "owner.json").write_text(text)
        assert reap(home) == []
        assert folder.exists()
        (folder / "owner.json").unlink()
        folder.rmdir()


def test_owners() -> None:
    me = Owner.me()
    assert Owner.parse(f"{me}-rest") == me
    assert not me.dead
    assert Owner(me.pid, me.start + 1, me.namespace).dead  # the number was given to another process
    assert not Owner(me.pid, me.start + 1, me.namespace + 1).dead
    assert Owner.parse("1-2") is None
    assert Owner.parse("a-b-c") is None
