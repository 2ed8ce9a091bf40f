"""What a sandbox may use: memory, processes and CPU by cgroups v1 or v2, disk by an image with its own file system.

Best effort: a machine that lets us make no cgroup runs the task without, and the sandbox says which limit is missing.
"""

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harbor_assets.sandboxes.process.owner import Owner
from harbor_assets.sandboxes.process.rights import privileged

PREFIX = "harbor-"  # of our cgroups: harbor-<owner>-<token>
PIDS = 4096  # threads count; a build with a JVM takes hundreds, a fork bomb anything
MIN_DISK_MB = 16  # what ext4 and an overlay's folders need before a task writes its first byte
_PERIOD_US = 100_000  # of the CPU quota: the kernel's default
_HUGE_PAGE = 2 << 20
_ROOT = Path("/sys/fs/cgroup")
_CONTROLLERS = ("memory", "pids", "cpu")


@dataclass(frozen=True, slots=True)
class Limits:
    """Cores, megabytes (2**20 bytes) and processes. None: no limit."""

    cpus: float | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    pids: int | None = PIDS


@dataclass(frozen=True, slots=True)
class Cgroups:
    """The folders of one sandbox, which of its limits are held, and why others could not be set."""

    folders: tuple[Path, ...] = ()
    held: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Memory:
    """What became of a sandbox's memory. `own_kills`: processes killed at the sandbox's own limit; `foreign_kills`:
    killed for want of memory while below it (the machine's, or that of a group around us). None: not known."""

    own_kills: int = 0
    foreign_kills: int = 0
    peak_bytes: int | None = None


def make(limits: Limits, owner: Owner, token: str) -> Cgroups:
    """Make the cgroups of a sandbox. Never raises: what fails is named in `missing`."""
    folders: list[Path] = []
    held: list[str] = []
    missing: list[str] = []
    wanted = {"memory": limits.memory_mb, "pids": limits.pids, "cpu": limits.cpus}
    bases = _bases()
    for controller in _CONTROLLERS:
        value = wanted[controller]
        if value is None:
            continue
        if not privileged() and controller == "pids":
            held.append(controller)  # by the kernel's limit for a user, which `inside/init.py` sets
            continue
        if not privileged():
            missing.append(f"{controller}: an ordinary user can make no cgroups")
            continue
        if controller not in bases:
            missing.append(f"{controller}: no such cgroup controller here")
            continue
        base, unified = bases[controller]
        try:
            if unified:
                (base / "cgroup.subtree_control").write_text(f"+{controller}")
            folder = base / f"{PREFIX}{owner}-{token}"
            folder.mkdir(exist_ok=True)
            if folder not in folders:
                folders.append(folder)
            _set(folder, controller, value, unified)
            held.append(controller)
        except OSError as e:
            missing.append(f"{controller}: {e.strerror or e}")
    return Cgroups(tuple(folders), tuple(held), tuple(missing))


def memory_state(folders: Sequence[Path]) -> Memory:
    """Read the counters. Call it while the sandbox lives."""
    kills, at_limit, peak = 0, False, None
    for folder in folders:
        if (folder / "memory.events").exists():
            events = _table(folder / "memory.events")
            kills, at_limit = events.get("oom_kill", 0), events.get("oom", 0) > 0
            peak = _number(folder / "memory.peak")
        elif (folder / "memory.oom_control").exists():
            kills = _table(folder / "memory.oom_control").get("oom_kill", 0)
            peak = _number(folder / "memory.max_usage_in_bytes")
            limit = _number(folder / "memory.limit_in_bytes")
            # Not memory.failcnt: kernels no longer count there. What is refused is at most one huge page.
            at_limit = peak is not None and limit is not None and peak + _HUGE_PAGE >= limit
    return Memory(kills if at_limit else 0, 0 if at_limit else kills, peak)


def remove(folders: Sequence[Path]) -> None:
    """Remove empty cgroups; those with processes in them are left."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def reap() -> list[str]:
    """Remove the cgroups of dead owners: of a worker killed between making them and starting its sandbox."""
    gone = []
    for folder in _ours():
        owner = Owner.parse(folder.name.removeprefix(PREFIX))
        if owner is not None and owner.dead:
            with contextlib.suppress(OSError):
                for pid in (folder / "cgroup.procs").read_text().split():
                    os.kill(int(pid), 9)
            with contextlib.suppress(OSError):
                folder.rmdir()
                gone.append(f"cgroup {folder.name}")
    return gone


def make_disk(image: Path, size_mb: int) -> str | None:
    """Make a sparse ext4 image. Returns why it cannot be done, or None. 20 ms."""
    if not privileged():
        return "storage: an ordinary user cannot mount an image"
    if not Path("/dev/loop-control").exists():
        return "storage: no loop devices (/dev/loop-control)"
    program = shutil.which("mkfs.ext4", path="/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin")
    if program is None:
        return "storage: mkfs.ext4 is not installed"
    with image.open("wb") as f:
        f.truncate(max(size_mb, MIN_DISK_MB) << 20)
    options = ["-q", "-F", "-O", "^has_journal", "-m", "0", "-E", "lazy_itable_init=1"]
    done = subprocess.run([program, *options, str(image)], capture_output=True, text=True, check=False)
    if done.returncode:
        return f"storage: {_last_line(done.stderr)}"
    return None


def _set(folder: Path, controller: str, value: float, unified: bool) -> None:
    if controller == "memory":
        size = str(int(value) << 20)
        (folder / ("memory.max" if unified else "memory.limit_in_bytes")).write_text(size)
        swap = folder / ("memory.swap.max" if unified else "memory.memsw.limit_in_bytes")
        if swap.exists():  # else the limit would only move the excess to the swap
            swap.write_text("0" if unified else size)
    elif controller == "pids":
        (folder / "pids.max").write_text(str(int(value)))
    elif unified:
        (folder / "cpu.max").write_text(f"{max(1000, round(value * _PERIOD_US))} {_PERIOD_US}")
    else:
        (folder / "cpu.cfs_quota_us").write_text(str(max(1000, round(value * _PERIOD_US))))  # 1 ms: the kernel's least


def _bases() -> dict[str, tuple[Path, bool]]:
    """controller -> (the folder we may make children in, whether it is v2).

    v2: the root, which alone may hold processes beside children. v1: our own place, so that limits around us hold.
    """
    found: dict[str, tuple[Path, bool]] = {}
    unified = _ROOT / "cgroup.controllers"
    if unified.exists():
        return {name: (_ROOT, True) for name in unified.read_text().split() if name in _CONTROLLERS}
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return {}
    for line in lines:
        _, names, path = line.split(":", 2)
        for controller in set(_CONTROLLERS) & set(names.split(",")):
            top = _ROOT / names
            own = top / path.strip("/")
            found[controller] = (own if own.is_dir() else top, False)
    return found


def _ours() -> Iterator[Path]:
    for base in {base for base, _ in _bases().values()}:
        with contextlib.suppress(OSError):
            yield from [Path(e.path) for e in os.scandir(base) if re.match(PREFIX + r"\d+-\d+-\d+-", e.name)]


def _table(path: Path) -> dict[str, int]:
    try:
        rows = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "mkfs.ext4 failed"
