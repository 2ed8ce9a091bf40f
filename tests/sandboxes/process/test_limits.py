"""Limits hold, and a task's own limit is told from other deaths."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from harbor_assets.sandboxes.process import limits as limiting
from harbor_assets.sandboxes.process.limits import Cgroups, Limits, Memory
from harbor_assets.sandboxes.process.owner import Owner
from harbor_assets.sandboxes.process.sandbox import ExecResult

from .conftest import run, sandbox, sh

Inside = Callable[..., ExecResult]
pytestmark = pytest.mark.req_root


def _needs(box_cgroups: Cgroups, limit: str) -> None:
    if limit not in box_cgroups.held:
        pytest.skip(f"this machine cannot limit it: {box_cgroups.missing}")


def test_memory(home: Path) -> None:
    async def work() -> tuple[ExecResult, Memory, Memory, ExecResult]:
        async with sandbox(home, limits=Limits(memory_mb=64)) as box:
            _needs(box.cgroups, "memory")
            killed = await sh(box, "kill -9 $$")  # a death that is not the limit's
            before = box.memory()
            done = await sh(box, "tail /dev/zero")
            return done, before, box.memory(), killed

    done, before, after, killed = run(work())
    assert (killed.code, before.own_kills) == (-9, 0)
    assert done.code in (-9, 137)
    assert after.own_kills >= 1
    assert after.foreign_kills == 0
    assert after.peak_bytes is not None
    assert 32 << 20 < after.peak_bytes <= 65 << 20


def test_shared_memory_counts(home: Path) -> None:
    async def work() -> int:
        async with sandbox(home, limits=Limits(memory_mb=32)) as box:
            _needs(box.cgroups, "memory")
            await sh(box, "head -c 60M /dev/zero > /dev/shm/x")
            return box.memory().own_kills

    assert run(work()) >= 1


def test_processes(home: Path) -> None:
    async def work() -> tuple[ExecResult, ExecResult]:
        async with sandbox(home, limits=Limits(pids=20)) as box:
            _needs(box.cgroups, "pids")
            done = await sh(box, "for i in $(seq 60); do sleep 50 & done; wait", timeout=3)
            await box.kill_all()
            return done, await sh(box, "echo still here")

    done, after = run(work())
    assert b"fork" in done.stderr
    assert after.stdout == b"still here\n"


def test_cpu(home: Path) -> None:
    async def work() -> tuple[float, float]:
        async with sandbox(home, limits=Limits(cpus=0.2)) as box:
            _needs(box.cgroups, "cpu")
            script = (
                "import time\nw = time.monotonic()\nwhile time.monotonic() - w < 1: pass\nprint(time.process_time())"
            )
            done = await box.exec(["python3", "-c", script])
            return float(done.stdout), 0.2

    used, quota = run(work())
    assert used < quota * 2  # of one second on the wall


def test_disk(home: Path) -> None:
    async def work() -> tuple[ExecResult, int, int]:
        async with sandbox(home, limits=Limits(storage_mb=64)) as box:
            _needs(box.cgroups, "storage")
            done = await sh(
                box, "head -c 100M /dev/zero > /big; df -m / | tail -1; : > /big; echo fits > /small && cat /small"
            )
            return done, *(await box.space())

    done, size, free = run(work())
    assert b"No space left" in done.stderr
    assert done.stdout.endswith(b"fits\n")
    assert 32 << 20 < size <= 64 << 20
    assert free > 0


def test_disk_of_the_machine_is_not_filled_by_the_image(home: Path) -> None:
    async def work() -> int:
        async with sandbox(home, limits=Limits(storage_mb=4096)) as box:
            _needs(box.cgroups, "storage")
            return (box.folder / "disk.img").stat().st_blocks * 512

    assert run(work()) < 128 << 20


def test_what_cannot_be_limited_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiting, "_bases", dict)
    monkeypatch.setattr(limiting.shutil, "which", lambda *_, **__: None)

    async def work() -> Cgroups:
        async with sandbox(home, limits=Limits(cpus=1, memory_mb=64, storage_mb=64, pids=10)) as box:
            assert (await sh(box, "true")).code == 0
            return box.cgroups

    found = run(work())
    assert found.held == ()
    assert [reason.split(":")[0] for reason in found.missing] == ["memory", "pids", "cpu", "storage"]


@pytest.fixture
def unified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of cgroup v2 in a plain folder: what is written and read, not what the kernel does."""
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (tmp_path / "cgroup.subtree_control").write_text("")
    monkeypatch.setattr(limiting, "_ROOT", tmp_path)
    return tmp_path


def test_version_2(unified: Path) -> None:
    owner = Owner(os.getpid(), 1, 2)
    made = limiting.make(Limits(cpus=1.5, memory_mb=64, pids=10), owner, "x")
    folder = unified / f"harbor-{owner}-x"
    assert made == Cgroups((folder,), ("memory", "pids", "cpu"), ())
    assert (folder / "memory.max").read_text() == str(64 << 20)
    assert (folder / "pids.max").read_text() == "10"
    assert (folder / "cpu.max").read_text() == "150000 100000"


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ("low 0\noom 0\noom_kill 0\n", Memory(0, 0, 7)),
        ("low 0\noom 2\noom_kill 3\n", Memory(3, 0, 7)),
        ("low 0\noom 0\noom_kill 3\n", Memory(0, 3, 7)),  # the machine ran out, not the sandbox
    ],
)
def test_memory_counters_of_version_2(tmp_path: Path, events: str, expected: Memory) -> None:
    (tmp_path / "memory.events").write_text(events)
    (tmp_path / "memory.peak").write_text("7\n")
    assert limiting.memory_state([tmp_path]) == expected


@pytest.mark.parametrize(
    ("kills", "peak", "expected"),
    [
        (0, 64 << 20, Memory(0, 0, 64 << 20)),
        (2, 63 << 20, Memory(2, 0, 63 << 20)),
        (2, 20 << 20, Memory(0, 2, 20 << 20)),
    ],
)
def test_memory_counters_of_version_1(tmp_path: Path, kills: int, peak: int, expected: Memory) -> None:
    (tmp_path / "memory.oom_control").write_text(f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n")
    (tmp_path / "memory.limit_in_bytes").write_text(f"{64 << 20}\n")
    (tmp_path / "memory.max_usage_in_bytes").write_text(f"{peak}\n")
    assert limiting.memory_state([tmp_path]) == expected
