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
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import harbor_assets
from harbor_assets.sandboxes.process import limits as limiting
from harbor_assets.sandboxes.process import mask, nat, net, pipes
from harbor_assets.sandboxes.process.certificates import certificate_variables
from harbor_assets.sandboxes.process.inside import keeper as keeping
from harbor_assets.sandboxes.process.inside.init import receive
from harbor_assets.sandboxes.process.inside.keeper import OWNER_FILE
from harbor_assets.sandboxes.process.limits import Cgroups, Limits, Memory
from harbor_assets.sandboxes.process.nameservers import Relay, resolver
from harbor_assets.sandboxes.process.owner import Owner
from harbor_assets.sandboxes.process.pipes import OnChunk, Output, to_the_end
from harbor_assets.sandboxes.process.rights import privileged

TIMED_OUT = 124  # as timeout(1)
CAP = 64 << 20  # bytes of each output stream kept
GRACE_SECONDS = 0.3  # for output on its way when a command has ended; a background child may hold the pipe for ever
STOP_SECONDS = 20.0  # for what should take milliseconds, before harder means
SHM_MB = 64  # as Docker


class SandboxLost(Exception):
    """The sandbox died under a command, or was asked for something after it had ended."""


class SandboxStartError(Exception):
    """The sandbox could not be made as asked; the message says what the machine refused."""


class SandboxDiskFull(Exception):
    """The disk that holds the sandbox is full: the machine's, not the task's own limit."""


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How a command ended. `code` is negative if a signal killed it, 124 after the timeout; `dropped` counts the bytes
    of both streams beyond the cap."""

    code: int
    stdout: bytes
    stderr: bytes
    dropped: int = 0
    timed_out: bool = False


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
        self._control: socket.socket | None = None
        self._asking = asyncio.Lock()
        self._keeper: asyncio.subprocess.Process | None = None
        self._init_pid: int | None = None
        self._namespace: int | None = None
        self._log: int | None = None
        self._lock: int | None = None
        self._link: net.Link | None = None
        self._relay: Relay | None = None
        self._used_nat = False
        self._on_host_network = False
        self._drained: set[io.FileIO] = set()
        self._made = False
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
        request = {
            "argv": [str(arg) for arg in argv],
            "cwd": cwd or "/",
            "env": {**certificate_variables(), **(env or {})},
            "user": 0 if user is None else user,
            "host_network": self._on_host_network,
        }
        outputs = Output("stdout", cap, sink), Output("stderr", cap)
        with contextlib.ExitStack() as stack:
            control, inner, feeding, reading = self._descriptors(stack, stdin is not None)
            with inner as given:
                body = marshal.dumps(request)
                await self._send(("exec", len(body)), given)
            loop = asyncio.get_running_loop()
            pumps = [loop.create_task(o.pump(pipe, on_chunk)) for o, pipe in zip(outputs, reading, strict=True)]
            tasks = list(pumps)
            if feeding is not None and stdin is not None:
                tasks.append(loop.create_task(pipes.feed(feeding, stdin)))
            try:
                code, timed_out = await self._outcome(control, body, timeout, tasks)
                await asyncio.wait(pumps, timeout=GRACE_SECONDS)
            finally:
                left = [pipe for pump, pipe in zip(pumps, reading, strict=True) if not pump.done()]
                for task in tasks:
                    task.cancel()
                ended = await asyncio.gather(*tasks, return_exceptions=True)
            for error in ended:
                if isinstance(error, Exception):
                    raise error
            for pipe in left:
                self._drain(pipe)  # a server that was left running must not die of its next line of log
            stack.pop_all()
            for end in (control, feeding, *reading):
                if end is not None and end not in self._drained:
                    end.close()
        dropped = sum(output.dropped for output in outputs)
        return ExecResult(code, bytes(outputs[0].kept), bytes(outputs[1].kept), dropped, timed_out)

    async def kill_all(self) -> None:
        """Kill every process inside, at once: a fork bomb cannot race it. Raises SandboxLost."""
        await self._ask(("kill",))

    async def attach_network(self) -> None:
        """Public network: an address of its own behind NAT, or the machine's network where that cannot be (`notes`
        says so then). Raises SandboxLost."""
        if self._link is not None or self._on_host_network:
            return
        if privileged():
            try:
                link = await to_the_end(asyncio.to_thread(self._attach))
            except nat.NatUnavailable as e:
                self._note(f"The public network is the machine's own, not an address behind NAT: {e}.")
            except OSError as e:
                raise SandboxLost(f"its network cannot be set up: {e}") from e
            else:
                if link.relay is not None:
                    self._relay = Relay(*link.relay, resolver().relayed)
                return
        await self._use_host_network()

    async def detach_network(self) -> None:
        """No network but `lo`. What is connected is cut. Raises SandboxLost."""
        await to_the_end(self._unlink())
        if self._on_host_network:
            self._on_host_network = False
            await self._ask(("host-network", False))

    @property
    def address_translated(self) -> bool:
        """True while the sandbox has an address of its own behind NAT."""
        return self._link is not None

    def memory(self) -> Memory:
        """The memory counters, while the sandbox lives."""
        return limiting.memory_state(self.cgroups.folders)

    async def space(self) -> tuple[int, int]:
        """(size, free) in bytes of the disk that the task writes to. Raises SandboxLost."""
        size, free = await self._ask(("space",))
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
        await self._spawn(image)
        await self._await_ready()

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
            for number, layer in enumerate([*self.layers, mask.current_mask(self.home)]):
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
        if self.limits.storage_mb is None:
            return None
        image = self.folder / "disk.img"
        problem = limiting.make_disk(image, self.limits.storage_mb)
        if problem is not None:
            self._lack(problem)
            return None
        self._hold("storage")
        return image

    async def _spawn(self, image: Path | None) -> None:
        assert self._lock is not None
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setblocking(False)
        config = {
            "folder": str(self.folder),
            "name": self.folder.name,
            "worker": os.getpid(),
            "view": mask.view(self.folder, [f"l/{number}" for number in range(len(self.layers) + 1)]),
            "privileged": privileged(),
            "disk": str(image) if image else None,
            "shm_mb": SHM_MB,
            "cgroups": [str(folder) for folder in self.cgroups.folders],
            "keep": self.keep_upper,
            "lock": self._lock,
        }
        self._log = os.memfd_create("sandbox-log")
        # By descriptor, not on the command line: the task can read that of pid 1.
        with theirs, io.FileIO(os.memfd_create("sandbox-config"), "r+b") as given:
            given.write(marshal.dumps(config))
            given.seek(0)
            self._keeper = await asyncio.create_subprocess_exec(
                # A virtual environment's interpreter would look for its pyvenv.cfg first.
                getattr(sys, "_base_executable", None) or sys.executable,
                *("-I", "-S", "-c", keeping.BOOT),
                str(Path(harbor_assets.__file__).parent.parent),
                str(theirs.fileno()),
                pass_fds=[theirs.fileno(), self._lock],
                start_new_session=True,  # Ctrl-C at the terminal is the worker's business
                stdin=given,
                stdout=subprocess.DEVNULL,
                stderr=self._log,
                env={},
                cwd="/",
            )

    async def _await_ready(self) -> None:
        assert self._control is not None
        while self._namespace is None or self._init_pid is None:
            match await self._receive():
                case ("pid", int(pid)), _:
                    self._init_pid = pid
                case ("ready", str(no_disk)), [namespace]:
                    self._namespace = namespace
                    if no_disk:
                        self._lack(f"storage: {no_disk}")
                case ("error", str(text), number), _:
                    raise self._refusal(OSError(number, text)) if number else SandboxStartError(text)
                case _:
                    raise SandboxStartError(f"the sandbox ended while it started. {self._logged()}")

    def _refusal(self, error: OSError) -> SandboxStartError | SandboxDiskFull:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return SandboxDiskFull(f"{self.home}: {error.strerror}. Free space there, then run again.")
        return SandboxStartError(f"{error.filename or self.folder}: {error.strerror or error}")

    # -- commands ----------------------------------------------------------------------------------------------------

    def _descriptors(
        self, stack: contextlib.ExitStack, with_stdin: bool
    ) -> tuple[socket.socket, contextlib.AbstractContextManager[list[int]], io.FileIO | None, list[io.FileIO]]:
        """(our control socket, the command's descriptors, our end of its stdin, our ends of its stdout and stderr)."""
        control, theirs = (stack.enter_context(end) for end in socket.socketpair())
        control.setblocking(False)
        inner: list[io.FileIO] = []
        feeding = None
        if with_stdin:
            reader, feeding = (stack.enter_context(end) for end in pipes.make())
            inner.append(reader)
        reading = []
        for _ in range(2):
            reader, writer = (stack.enter_context(end) for end in pipes.make())
            inner.append(writer)
            reading.append(reader)
        for end in (feeding, *reading):
            if end is not None:
                os.set_blocking(end.fileno(), False)

        @contextlib.contextmanager
        def given() -> Iterator[list[int]]:
            try:
                yield [theirs.fileno(), *(end.fileno() for end in inner)]
            finally:
                theirs.close()
                for end in inner:
                    end.close()

        return control, given(), feeding, reading

    async def _outcome(
        self, control: socket.socket, body: bytes, seconds: float | None, tasks: Sequence[asyncio.Task[None]]
    ) -> tuple[int, bool]:
        """(exit code, whether it timed out). If one of `tasks` fails, so does this."""
        loop = asyncio.get_running_loop()

        async def talk() -> bytes:
            await loop.sock_sendall(control, body)
            return await loop.sock_recv(control, 64)

        answer = loop.create_task(talk())
        waiting: set[asyncio.Task[Any]] = {answer, *tasks}
        deadline = None if seconds is None else loop.time() + seconds
        try:
            while not answer.done():
                left = None if deadline is None else max(0.0, deadline - loop.time())
                done, waiting = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                for task in done - {answer}:
                    task.result()
                if not done:
                    break
        except BaseException:
            await to_the_end(self._kill_command(control, answer))
            raise
        if not answer.done():
            await to_the_end(self._kill_command(control, answer))
            return TIMED_OUT, True
        try:
            code = answer.result()
        except OSError:
            code = b""
        if not code:
            raise SandboxLost(f"the sandbox died under a command. {self._logged()}")
        return int(code.partition(b"\n")[0]), False

    @staticmethod
    async def _kill_command(control: socket.socket, answer: asyncio.Task[bytes]) -> None:
        """Have a command's processes killed, and wait until they are."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await asyncio.get_running_loop().sock_sendall(control, b"k")
                await answer

    def _drain(self, pipe: io.FileIO) -> None:
        loop = asyncio.get_running_loop()

        def read() -> None:
            with contextlib.suppress(BlockingIOError):
                if not os.read(pipe.fileno(), pipes.CHUNK):
                    self._stop_draining(pipe)

        self._drained.add(pipe)
        loop.add_reader(pipe.fileno(), read)

    def _stop_draining(self, pipe: io.FileIO) -> None:
        asyncio.get_running_loop().remove_reader(pipe.fileno())
        self._drained.discard(pipe)
        pipe.close()

    # -- the line to init --------------------------------------------------------------------------------------------

    async def _send(self, message: tuple[Any, ...], fds: Sequence[int] = ()) -> None:
        if self._control is None or self._stopping is not None:
            raise SandboxLost("the sandbox is not running")
        data = marshal.dumps(message)
        while True:
            try:
                socket.send_fds(self._control, [data], list(fds))
            except BlockingIOError:
                await pipes.writable(self._control.fileno())
            except OSError as e:
                raise SandboxLost(f"the sandbox is gone ({e.strerror}). {self._logged()}") from e
            else:
                return

    async def _receive(self) -> tuple[tuple[Any, ...], list[int]]:
        """A message of keeper or init and its descriptors; an empty one when they are gone."""
        assert self._control is not None
        await pipes.readable(self._control.fileno())
        try:
            return receive(self._control)
        except OSError:
            return (), []

    async def _ask(self, message: tuple[Any, ...], fds: Sequence[int] = ()) -> Any:
        async with self._asking:
            await self._send(message, fds)
            match await self._receive():
                case ("done", value), _:
                    return value
                case _:
                    raise SandboxLost(f"the sandbox is gone. {self._logged()}")

    # -- network -----------------------------------------------------------------------------------------------------

    def _attach(self) -> net.Link:
        if self._namespace is None:
            raise OSError(errno.ESRCH, "the sandbox is not running")
        self._used_nat = True
        self._link = net.attach(self._namespace, self._owner, relay=bool(resolver().relayed))
        if self._link.relay_problem:
            self._note(self._link.relay_problem)
        return self._link

    async def _use_host_network(self) -> None:
        """Commands from now on run in the machine's network namespace. Init holds it only while it is in use."""
        if privileged():
            namespace = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                await self._ask(("host-network", True), [namespace])
            finally:
                os.close(namespace)
        else:
            await self._ask(("host-network", True))
        self._on_host_network = True

    async def _unlink(self) -> None:
        link, relay, self._link, self._relay = self._link, self._relay, None, None
        if relay is not None:
            await relay.close()
        if link is not None:
            await asyncio.to_thread(net.detach, link.name)

    # -- the end -----------------------------------------------------------------------------------------------------

    async def _stop(self) -> None:
        for pipe in tuple(self._drained):
            self._stop_draining(pipe)
        if self._control is not None:
            self._control.close()  # init exits, the kernel kills all inside, the keeper removes the rest
        await asyncio.gather(self._end_network(), self._await_keeper())
        for fd in (self._namespace, self._log, self._lock):
            if fd is not None:
                os.close(fd)
        self._control = self._namespace = self._log = self._lock = None
        await asyncio.to_thread(self._sweep)

    async def _end_network(self) -> None:
        try:
            await self._unlink()
            if self._used_nat:
                await asyncio.to_thread(nat.tidy)
        except OSError as e:
            self._note(f"The network could not be taken down: {e}. The next command tries again.")

    async def _await_keeper(self) -> None:
        keeper = self._keeper
        if keeper is None:
            return
        try:
            async with asyncio.timeout(STOP_SECONDS):
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
        if self._made and not self.keep_upper and self.folder.exists():
            keeping.remove_tree(str(self.folder))

    # -- words -------------------------------------------------------------------------------------------------------

    def _note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)

    def _hold(self, limit: str) -> None:
        self.cgroups = replace(self.cgroups, held=(*self.cgroups.held, limit))

    def _lack(self, reason: str) -> None:
        held = tuple(limit for limit in self.cgroups.held if not reason.startswith(f"{limit}:"))
        self.cgroups = replace(self.cgroups, held=held, missing=(*self.cgroups.missing, reason))

    def _logged(self) -> str:
        """The end of what keeper and init said on standard error."""
        if self._log is None:
            return ""
        size = os.fstat(self._log).st_size
        return os.pread(self._log, 2000, max(0, size - 2000)).decode(errors="replace").strip()
