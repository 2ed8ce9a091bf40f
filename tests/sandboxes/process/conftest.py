"""A home on the machine's own disk, a way to run coroutines, and a look at what a test left on the machine."""

import asyncio
import os
import socket
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from harbor_assets.sandboxes.process.inside.keeper import remove_tree
from harbor_assets.sandboxes.process.limits import Limits
from harbor_assets.sandboxes.process.sandbox import ExecResult, Sandbox


@pytest.fixture(scope="session")
def home() -> Iterator[Path]:
    """One home for all tests, so that the mask is made once. Not tmp_path: pytest keeps those, whiteouts and all."""
    path = Path(tempfile.mkdtemp(prefix="sandbox-tests-"))
    path.chmod(0o755)
    yield path
    assert list((path / "sandboxes").glob("*")) == []
    remove_tree(str(path))


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    before = machine()
    yield
    assert traces_of(os.getpid()) == []
    # A run of somebody else on this machine may need the same table: it goes when the last one has ended.
    until = time.monotonic() + 30
    while machine() != before and not before[1] and time.monotonic() < until:
        if any(name.startswith("harbor") for _, name in socket.if_nameindex()):
            return
        time.sleep(0.1)
    assert before[1] or machine() == before


def traces_of(pid: int) -> list[str]:
    """What the machine shows of a worker's sandboxes: processes, mounts, interfaces, cgroups, loop devices."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
            command = path.with_name("cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == pid and b"keeper" in command:
            found.append(f"process {path.parent.name}")
    for path in Path("/sys/class/net").glob("harbor*/ifalias"):
        if path.read_text().startswith(f"{pid}-"):
            found.append(f"interface {path.parent.name}")
    found += [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/harbor-{pid}-*")]
    found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if "sandbox-tests-" in line]
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        if "sandbox-tests-" in path.read_text():
            found.append(f"loop device {path}")
    return found


def machine() -> tuple[str, list[str]]:
    """What all sandboxes of the machine share: forwarding, and the note that it was changed."""
    return Path("/proc/sys/net/ipv4/ip_forward").read_text(), [str(p) for p in Path("/run").glob("harbor-assets*")]


def run[T](work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


@asynccontextmanager
async def sandbox(home: Path, layers: Sequence[Path] = (), limits: Limits | None = None, name: str | None = None):
    """A started sandbox, stopped at the end."""
    box = Sandbox(home / "sandboxes" / (name or f"t-{os.urandom(4).hex()}"), layers, home=home, limits=limits)
    await box.start()
    try:
        yield box
    finally:
        await box.stop()


async def sh(box: Sandbox, script: str, **how: Any) -> ExecResult:
    """Run a script with bash."""
    return await box.exec(["bash", "-c", script], **how)


@pytest.fixture
def inside(home: Path) -> Callable[..., ExecResult]:
    """Run one script in a sandbox of its own."""

    def call(script: str, *, limits: Limits | None = None, **how: Any) -> ExecResult:
        async def work() -> ExecResult:
            async with sandbox(home, limits=limits) as box:
                return await sh(box, script, **how)

        return run(work())

    return call
