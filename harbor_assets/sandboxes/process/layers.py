"""The steps of a Dockerfile as layers below a sandbox's view: made once, kept by content, shared by all trials.

A layer's steps run in a sandbox over the earlier layers. What they wrote (the overlay's upper folder) is renamed to
`<home>/layers/<key>` when they have succeeded, so a layer is there in full or not at all. FROM is not honoured: the
machine stands in for the image, and the keys start from its fingerprint.
"""

import asyncio
import ctypes
import errno
import fcntl
import hashlib
import json
import os
import platform
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from harbor_assets.sandboxes.process import host
from harbor_assets.sandboxes.process.context import Context
from harbor_assets.sandboxes.process.dockerfile import DockerfileUnsupported, LayerBuildError, parse
from harbor_assets.sandboxes.process.inside.keeper import remove_tree
from harbor_assets.sandboxes.process.recipe import Copy, Recipe, Run, Workdir, recipe
from harbor_assets.sandboxes.process.rights import privileged
from harbor_assets.sandboxes.process.sandbox import Sandbox, SandboxDiskFull
from harbor_assets.sandboxes.process.steps import Job, Steps, failed

__all__ = ["BuiltLayers", "DockerfileUnsupported", "LayerBuildError", "PrunedLayer", "build", "prune"]

FORMAT = 1  # part of every key: raise it when a layer of the same steps would come out differently
FITS = 250  # layers: an overlay's options are one page, in which each has some 12 bytes (`l/249/libx32:`)
JUST_USED = 3600  # seconds: a layer may have been handed out and not be mounted yet; a start is given far less
_KEY = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class BuiltLayers:
    """What a sandbox needs to stand where the Dockerfile ends. `layers` are newest first, without the mask;
    `substituted` is what FROM asks for (None without a Dockerfile); `notes` say what was left out, for the trial."""

    layers: tuple[Path, ...] = ()
    cwd: str = "/"
    user: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    substituted: str | None = None


async def build(
    home: Path,
    environment_dir: Path,
    *,
    network: bool,
    log: Callable[[str], None],
    step_timeout: float | None = None,
) -> BuiltLayers:
    """Make those layers of `environment_dir/Dockerfile` that are missing; no file, no layers.

    `network`: RUN steps have one. `step_timeout` bounds each command, in seconds. Cancelling kills the step at hand and
    removes what it made. Raises `DockerfileUnsupported` before anything is run; `LayerBuildError`, `SandboxStartError`,
    `SandboxLost`, `SandboxDiskFull`.
    """
    context = Context.open(environment_dir)
    text = context.read("Dockerfile")
    if text is None:
        return BuiltLayers(notes=("no Dockerfile: the machine as it is",))
    plan, layers, notes = await asyncio.to_thread(_plan, text, context, network)
    made: list[Path] = []
    for number, layer in enumerate(layers, 1):
        place = f"layer {number} of {len(layers)}"
        folder = await _layer(home, layer, tuple(made), lambda line, place=place: log(f"{place}: {line}"), step_timeout)
        made.insert(0, folder)
    return BuiltLayers(tuple(made), plan.cwd, plan.user, plan.env, (*plan.notes, *notes), plan.base)


@dataclass(frozen=True, slots=True)
class _Layer:
    """Steps that become one layer, named by the chain of everything that decides its content."""

    jobs: tuple[Job, ...]
    network: bool
    key: str

    def __str__(self) -> str:
        return "; ".join(job.step.at.text for job in self.jobs)


def _plan(text: bytes, context: Context, network: bool) -> tuple[Recipe, list[_Layer], list[str]]:
    plan = recipe(parse(text), machine=platform.machine())
    jobs: list[Job] = []
    for step in plan.steps:
        try:
            jobs.append(Job(step, context.select(step)) if isinstance(step, Copy) else Job(step))
        except OSError as error:
            raise failed(step, f"the environment folder cannot be read ({error}).") from None
    notes = [f"{job.step.at.text}: matched no file" for job in jobs if isinstance(job.step, Copy) and not job.found]
    key = _hash([FORMAT, host.fingerprint(), privileged()])
    layers = []
    for group in _grouped(jobs):
        online = network and any(isinstance(job.step, Run) and job.step.network for job in group)
        key = _hash([key, online, *map(_identity, group)])
        layers.append(_Layer(tuple(group), online, key))
    return plan, layers, notes


def _grouped(jobs: Sequence[Job]) -> list[list[Job]]:
    """Adjacent steps that only copy share a layer, as that needs one sandbox only; others share where too many are."""
    groups: list[list[Job]] = []
    for job in jobs:
        if groups and not isinstance(job.step, Run) and not isinstance(groups[-1][-1].step, Run):
            groups[-1].append(job)
        else:
            groups.append([job])
    each = max(1, -(-len(groups) // FITS))
    return [[job for group in groups[start : start + each] for job in group] for start in range(0, len(groups), each)]


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


def _identity(job: Job) -> list[object]:
    step = job.step
    if isinstance(step, Workdir):
        return ["WORKDIR", step.path, step.owner]
    if isinstance(step, Run):
        return ["RUN", step.argv, dict(step.env), step.user, step.cwd, step.network, step.script, step.folders]
    found = [
        [source.name, source.folder, source.archive, [[e.rel, e.kind, e.mode, e.digest] for e in source.entries]]
        for source in job.found
    ]
    return ["COPY", step.target, step.owner, step.mode, found]


async def _layer(
    home: Path, layer: _Layer, below: tuple[Path, ...], log: Callable[[str], None], step_timeout: float | None
) -> Path:
    base = home / "layers"
    base.mkdir(mode=0o700, parents=True, exist_ok=True)  # set-user-id files of a task must not be within reach
    target = base / layer.key
    async with _locked(base / f"{layer.key}.lock"):
        if target.is_dir():
            log(f"kept ({layer})")
            return target
        started = time.monotonic()
        folder = home / "sandboxes" / f"build-{layer.key[:12]}-{os.getpid()}-{secrets.token_hex(4)}"
        box = Sandbox(folder, below, home=home, keep_upper=True)
        try:
            await box.start()
            steps = Steps(box, folder, layer.network, step_timeout)
            for job in layer.jobs:
                await steps.do(job)
            await box.stop()
            await _to_the_end(asyncio.to_thread(_keep, box.upper, target, below))
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise SandboxDiskFull(f"{home}: {error.strerror}. Free space there, then run again.") from error
            raise
        finally:
            await box.stop()
            await _to_the_end(asyncio.to_thread(remove_tree, str(folder)))
        for note in box.notes:
            log(note)
        log(f"built in {time.monotonic() - started:.1f} s ({layer})")
        return target


async def _to_the_end[T](work: Awaitable[T]) -> T:
    """Clean-up that a cancel does not cut short; the cancel is raised afterwards."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _keep(upper: Path, target: Path, below: Sequence[Path]) -> None:
    """Make an upper folder a layer: drop tops that say nothing, get it to the disk, put it in its place."""
    for top in upper.iterdir():
        lower = next((layer / top.name for layer in below if (layer / top.name).is_dir()), Path("/", top.name))
        if top.name != "ROOT" and not any(top.iterdir()) and _alike(top, lower):
            top.rmdir()
    place = os.open(upper, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:  # the sandbox syncs nothing: a power cut after the rename would leave a layer of empty files
        ctypes.CDLL(None).syncfs(place)
    finally:
        os.close(place)
    upper.rename(target)


def _alike(top: Path, lower: Path) -> bool:
    ours, theirs = top.stat(), lower.stat()
    same_owner = (ours.st_uid, ours.st_gid) == (theirs.st_uid, theirs.st_gid) or not privileged()
    return same_owner and ours.st_mode == theirs.st_mode


@asynccontextmanager
async def _locked(path: Path) -> AsyncIterator[None]:
    """Hold a lock file and mark it as used now. Without a thread, which after a cancel would take the lock for good."""
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not _try_lock(lock):  # noqa: ASYNC110  other processes hold it too
                await asyncio.sleep(0.05)  # they hold it for seconds: a build is at work
            if not _still(lock, path):
                continue  # it was pruned while we waited
            os.utime(lock)
            yield
            return
        finally:
            os.close(lock)


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _still(lock: int, path: Path) -> bool:
    try:
        return os.fstat(lock).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False


@dataclass(frozen=True, slots=True)
class PrunedLayer:
    """A layer that was removed (or would be): its key, what it takes on disk, and how long nobody used it."""

    key: str
    bytes: int
    idle_days: float


def prune(home: Path, older_than_days: float, *, dry_run: bool = False) -> tuple[PrunedLayer, ...]:
    """Remove layers that no trial used for so long. Those of a living sandbox, of a build at work or of the last hour
    stay whatever is asked. Safe beside builds."""
    base = home / "layers"
    if not base.is_dir():
        return ()
    for left in base.glob(".gone-*"):  # of a prune that was killed
        remove_tree(str(left))
    in_use, gone = _in_use(home), []
    for folder in sorted(path for path in base.iterdir() if _KEY.fullmatch(path.name)):
        path = base / f"{folder.name}.lock"
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if folder.name in in_use or not _try_lock(lock) or not _still(lock, path):
                continue
            idle = time.time() - os.fstat(lock).st_mtime
            if idle < max(older_than_days * 86400, JUST_USED):
                continue
            gone.append(PrunedLayer(folder.name, _size(folder), idle / 86400))
            if not dry_run:
                aside = base / f".gone-{folder.name}-{os.getpid()}"
                folder.rename(aside)
                path.unlink()
                remove_tree(str(aside))
        finally:
            os.close(lock)
    return tuple(gone)


def _size(folder: Path) -> int:
    """Bytes on disk, links not followed."""
    return sum(
        os.lstat(os.path.join(place, name)).st_blocks * 512  # noqa: PTH118  os.walk gives strings
        for place, folders, files in os.walk(folder)
        for name in [*folders, *files]
    )


def _in_use(home: Path) -> set[str]:
    """Keys of the layers below any sandbox there is; each sandbox's folder has links to its layers."""
    return {os.path.basename(os.readlink(link)) for link in (home / "sandboxes").glob("*/l/*")}  # noqa: PTH115, PTH119
