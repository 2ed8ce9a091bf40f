"""The worker's side of one sandbox: start, commands, network, stop."""

import asyncio
import contextlib
import errno
import fcntl
import io
import json
import marshal
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import harbor_assets
from harbor_assets.sandboxes.errors import SandboxDiskFull, SandboxLost, SandboxStartError
from harbor_assets.sandboxes.output import CAP
from harbor_assets.sandboxes.process import limits as limiting
from harbor_assets.sandboxes.process.certificates import certificate_variables
from harbor_assets.sandboxes.process.channel import Channel
from harbor_assets.sandboxes.process.commands import Commands, ExecResult
from harbor_assets.sandboxes.process.connection import Connection
from harbor_assets.sandboxes.process.inside import keeper as keeping
from harbor_assets.sandboxes.process.inside.keeper import OWNER_FILE
from harbor_assets.sandboxes.process.limits import Cgroups, Limits, Memory
from harbor_assets.sandboxes.process.mask import current_mask
from harbor_assets.sandboxes.process.owner import Owner
from harbor_assets.sandboxes.process.pipes import OnChunk, to_the_end
from harbor_assets.sandboxes.process.rights import privileged
from harbor_assets.sandboxes.process.shown import Split, merge_split, view

__all__ = ["CAP", "ExecResult", "Sandbox", "SandboxDiskFull", "SandboxLost", "SandboxStartError"]

SHM_MB = 64  # as Docker
_STOP_SECONDS = 20.0  # for what takes milliseconds, before harder means


class Sandbox:
    """One sandbox in `folder` (a child of `home/sandboxes`, where `reap(home)` looks), over `layers`, newest first.

    `limits` of None: none. With `keep_upper` what was written stays in `upper` after `stop()`, and the caller removes
    the folder. An instance belongs to one event loop and is started once.
    """

    def __init__(
        self,
        folder: Path,
        layers: Sequence[Path],
        *,
        home: Path,
        limits: Limits | None = None,
        keep_upper: bool = False,
    ) -> None:
        self.folder = folder.absolute()
        self.layers = [layer.absolute() for layer in layers]
        self.home = home.absolute()
        self.limits = limits or Limits(pids=None)
        self.keep_upper = keep_upper
        self.cgroups = Cgroups()
        self.notes: list[str] = []  # what could not be done as asked, in sentences
        self._owner = Owner.me()
        self._made = False  # the folder is ours
        self._split = Split()
        self._places: list[str] = []
        self._lock: int | None = None
        self._channel: Channel | None = None
        self._keeper: asyncio.subprocess.Process | None = None
        self._init_pid: int | None = None
        self._namespace: int | None = None
        self._commands: Commands | None = None
        self._connection: Connection | None = None
        self._stopping: asyncio.Task[None] | None = None

    @property
    def upper(self) -> Path:
        """What was written, one folder per top folder (`ROOT` for the rest). Stands still after `stop()`."""
        return self.folder / "rw" / "upper"

    async def start(self) -> None:
        """Make the sandbox; some 30 ms. Raises SandboxStartError or SandboxDiskFull; nothing is left behind then."""
        try:
            await to_the_end(self._start())
        except BaseException as e:
            self.keep_upper = False
            await self.stop()
            if isinstance(e, OSError):
                raise self._refusal(e) from e
            raise

    async def exec(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 -- ends in a kill inside, which a cancel scope cannot do
        stdin: bytes | BinaryIO | None = None,
        on_chunk: OnChunk | None = None,
        cap: int = CAP,
        sink: BinaryIO | None = None,
    ) -> ExecResult:
        """Run a command and wait for it. `cap` bounds each stream in bytes; `sink` takes stdout in place of memory.

        After `timeout` seconds, or if this call is cancelled, all processes of the command are killed, daemons too.
        What it leaves in the background otherwise lives until the sandbox stops, and its output is read and dropped.
        A command that cannot be started ends with 126 or 127 and a message on stderr. Raises SandboxLost.
        """
        commands, connection = self._running()
        request = {
            "argv": [str(arg) for arg in argv],
            "cwd": cwd or "/",
            "env": {**certificate_variables(), **(env or {})},
            "user": 0 if user is None else user,
            "host_network": connection.on_host_network,
        }
        return await commands.run(request, seconds=timeout, stdin=stdin, on_chunk=on_chunk, cap=cap, sink=sink)

    async def kill_all(self) -> None:
        """Kill every process inside, at once: a fork bomb cannot race it. Raises SandboxLost."""
        await self._line().ask(("kill",))

    async def attach_network(self) -> None:
        """Public network: an address of its own behind NAT, or the machine's network where that cannot be (`notes`
        says so then). Idempotent. Raises SandboxLost."""
        await self._running()[1].attach()

    async def detach_network(self) -> None:
        """No network but `lo`. What is connected is cut; a process on the machine's network cannot be cut off, and
        ends. Idempotent. Raises SandboxLost."""
        await self._running()[1].detach()

    @property
    def address_translated(self) -> bool:
        """True while the sandbox has an address of its own behind NAT."""
        return self._connection is not None and self._connection.translated

    def memory(self) -> Memory:
        """The memory counters, while the sandbox lives."""
        return limiting.memory_state(self.cgroups.folders)

    async def space(self) -> tuple[int, int]:
        """(size, free) in bytes of the disk that the task writes to. Raises SandboxLost."""
        size, free = await self._line().ask(("space",))
        return size, free

    async def stop(self) -> None:
        """End everything inside and remove what the sandbox had on the machine. Idempotent."""
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._stop())
        task = self._stopping
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            raise

    # -- starting ----------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        image = await asyncio.to_thread(self._prepare)
        self._channel = Channel()
        await self._spawn(self._channel, image)
        self._namespace = await self._await_ready(self._channel)
        self._commands = Commands(self._channel)
        self._connection = Connection(self._channel, self._namespace, self._owner, self._note)

    def _prepare(self) -> Path | None:
        """Folder and limits. The folder appears with its owner in it: a kill leaves nothing that nobody owns."""
        for layer in self.layers:
            if not layer.is_dir():
                raise SandboxStartError(f"The layer {layer} is not there.")
        if self.folder.exists():
            raise SandboxStartError(f"The folder {self.folder} is in use by another sandbox.")
        self.folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self.folder.parent / f".new-{self._owner}-{secrets.token_hex(4)}"
        new.mkdir(mode=0o700)
        try:
            for name in ("root", "rw", "l"):
                (new / name).mkdir()
            mask = current_mask(self.home)
            self._split = mask.split
            for number, layer in enumerate([*self.layers, mask.path]):
                (new / "l" / str(number)).symlink_to(layer)  # short names: mount data is one page
            (new / OWNER_FILE).write_text(json.dumps({"owner": str(self._owner)}))
            self._lock = os.open(new / OWNER_FILE, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            new.rename(self.folder)
            self._made = True
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
        self.cgroups = limiting.make(self.limits, self._owner, secrets.token_hex(6))
        return self._make_disk(self.limits.storage_mb) if self.limits.storage_mb is not None else None

    def _make_disk(self, size_mb: int) -> Path | None:
        image = self.folder / "disk.img"
        problem = limiting.make_disk(image, size_mb)
        if problem is not None:
            self._lack(problem)
            return None
        self.cgroups = replace(self.cgroups, held=(*self.cgroups.held, "storage"))
        return image

    async def _spawn(self, channel: Channel, image: Path | None) -> None:
        assert self._lock is not None
        places = view(self.folder, [f"l/{number}" for number in range(len(self.layers) + 1)], self._split)
        self._places = [place for place, _ in places]
        config = {
            "folder": str(self.folder),
            "name": self.folder.name,
            "worker": os.getpid(),
            "view": places,
            "privileged": privileged(),
            "pids": self.limits.pids,
            "disk": str(image) if image else None,
            "shm_mb": SHM_MB,
            "cgroups": [str(folder) for folder in self.cgroups.folders],
            "keep": self.keep_upper,
            "lock": self._lock,
        }
        # By descriptor, not on the command line: the task can read that of pid 1.
        with channel.theirs, io.FileIO(os.memfd_create("sandbox-config"), "r+b") as given:
            given.write(marshal.dumps(config))
            given.seek(0)
            self._keeper = await asyncio.create_subprocess_exec(
                # A virtual environment's interpreter would look for its pyvenv.cfg first.
                getattr(sys, "_base_executable", None) or sys.executable,
                *("-I", "-S", "-c", keeping.BOOT),
                str(Path(harbor_assets.__file__).parent.parent),
                str(channel.theirs.fileno()),
                pass_fds=[channel.theirs.fileno(), self._lock],
                start_new_session=True,  # Ctrl-C at the terminal is the worker's business
                stdin=given,
                stdout=subprocess.DEVNULL,
                stderr=channel.log,
                env={},
                cwd="/",
            )

    async def _await_ready(self, channel: Channel) -> int:
        """Wait for keeper and init; returns a descriptor of the sandbox's network namespace."""
        namespace: int | None = None
        while namespace is None or self._init_pid is None:
            match await channel.receive():
                case ("pid", int(pid)), _:
                    self._init_pid = pid
                case ("ready", str(no_disk)), [int(namespace)]:
                    if no_disk:
                        self._lack(f"storage: {no_disk}")
                case ("error", str(text), number), _:
                    raise self._refusal(OSError(number, text)) if number else SandboxStartError(text)
                case _:
                    raise SandboxStartError(f"the sandbox ended while it started. {channel.logged()}")
        return namespace

    def _refusal(self, error: OSError) -> SandboxStartError | SandboxDiskFull:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return SandboxDiskFull(f"{self.home}: {error.strerror}. Free space there, then run again.")
        return SandboxStartError(f"{error.filename or self.folder}: {error.strerror or error}")

    def _line(self) -> Channel:
        if self._channel is None or self._stopping is not None:
            raise SandboxLost("the sandbox is not running")
        return self._channel

    def _running(self) -> tuple[Commands, Connection]:
        if self._commands is None or self._connection is None or self._stopping is not None:
            raise SandboxLost("the sandbox is not running")
        return self._commands, self._connection

    # -- the end -----------------------------------------------------------------------------------------------------

    async def _stop(self) -> None:
        if self._commands is not None:
            self._commands.close()
        if self._channel is not None:
            self._channel.close()  # init exits, the kernel kills all inside, the keeper removes the rest
        await asyncio.gather(self._end_network(), self._await_keeper())
        if self._channel is not None:
            self._channel.close_log()
        for fd in (self._namespace, self._lock):
            if fd is not None:
                os.close(fd)
        self._namespace = self._lock = None
        await asyncio.to_thread(self._sweep)

    async def _end_network(self) -> None:
        if self._connection is not None:
            await self._connection.end()

    async def _await_keeper(self) -> None:
        keeper = self._keeper
        if keeper is None:
            return
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await keeper.wait()
        except TimeoutError:
            for pid in (self._init_pid, keeper.pid):
                if pid:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            await keeper.wait()

    def _sweep(self) -> None:
        """What the keeper would have removed, if it could not."""
        for _ in range(100):  # 1 s: a dead process leaves its cgroup a little later
            limiting.remove(self.cgroups.folders)
            if not any(folder.exists() for folder in self.cgroups.folders):
                break
            time.sleep(0.01)
        if not self._made or not self.folder.exists():
            return
        if self.keep_upper:
            merge_split(self.folder, self._places)
        else:
            keeping.remove_tree(str(self.folder))

    # -- words -------------------------------------------------------------------------------------------------------

    def _note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)

    def _lack(self, reason: str) -> None:
        held = tuple(limit for limit in self.cgroups.held if not reason.startswith(f"{limit}:"))
        self.cgroups = replace(self.cgroups, held=held, missing=(*self.cgroups.missing, reason))
