"""A home whose disk is full: a run that lost its worker says so and waits, and ends rightly once there is space."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harbor_assets.local.dying import FAULT_VARIABLE
from tests.suites import make
from tests.worker.conftest import Home, eventually

DISK_MB = 64


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Home]:
    """A home on a disk of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(folder)], check=True)
    try:
        yield Home(folder / "home")
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(path: Path, *, but: int = 0) -> None:
    """Take all of the disk's space `but` some bytes."""
    disk = os.statvfs(path.parent)
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, disk.f_bfree * disk.f_frsize - but)


@pytest.mark.req_root
def test_a_run_waits_for_space_and_goes_on(small: Home, tmp_path: Path) -> None:
    suite = make.make_suite(tmp_path / "suite", 2)
    run_id = small.submit(suite, **{FAULT_VARIABLE: "started"})
    eventually(lambda: (small.folder / "logs" / f"{run_id}.log").exists() and small.worker(run_id) is None, "the death")
    filler = small.folder.parent / "filler"
    fill(filler, but=1 << 20)
    for _ in range(2):
        watched = small.run("runs", "status", run_id, "--watch")
        assert watched.code == 1, watched
        assert f"No space left below {small.folder}" in watched.err
        assert f"harbor-assets runs status {run_id} --watch" in watched.err
        assert "it goes on" not in watched.err
    fill(small.folder.parent / "rest")
    watched = small.run("runs", "status", run_id, "--watch")
    assert watched.code == 1, watched
    assert "No space left for the catalog" in watched.err
    (small.folder.parent / "rest").unlink()
    refused = small.run("runs", "submit", "--harbor-dir", suite, "--sandbox", "process")
    assert refused.code == 1, refused
    assert "No space left" in refused.err
    filler.unlink()
    watched = small.run("runs", "status", run_id, "--watch")
    assert watched.code == 0, watched
    assert small.outcomes(run_id) == ["scored", "scored"]
    assert small.status(run_id)["run"]["executions"] == 2
