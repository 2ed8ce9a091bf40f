"""Pid 1 of a sandbox: makes its namespaces and its view, then starts commands until the worker is gone.

When it ends, for whatever reason, the kernel kills everything inside.
"""

import _signal as signal  # pyright: ignore[reportMissingImports]
import _socket
import fcntl
import marshal
import os
import resource
import select
import struct
import time

from harbor_assets.sandboxes.process.inside import calls, seccomp, view
from harbor_assets.sandboxes.process.inside.command import CANNOT_RUN, kill_below, supervise, tell

MESSAGE_MAX = 1 << 16  # bytes of one control message; bodies of commands come over a socket of their own
MAX_FDS = 8
TOLD = 0  # a supervisor that exits has told how its command ended
_SIOCSIFFLAGS, _IFF_UP, _IFF_RUNNING = 0x8914, 0x1, 0x40


class Init:
    """The state of pid 1: its control socket, its networks and the supervisors it started."""

    def __init__(self, config: dict, control: _socket.socket, worker: int, cgroups: list[int]) -> None:
        self.config, self.control, self.worker, self.cgroups = config, control, worker, cgroups
        self.privileged: bool = config["privileged"]
        self.own_network = -1
        self.host_network = -1  # root only, while a public phase has to use the machine's own
        self.poll = select.poll()
        # supervisor -> (a copy of its control socket, a pipe with its command's pid)
        self.supervised: dict[int, tuple[int, int]] = {}
        # Commands whose supervisor was killed, by `kill -9 -1` say: init is their parent then. pid -> control socket
        self.adopted: dict[int, int] = {}

    def run(self) -> None:
        """Set up and serve. Ends by `os._exit`. Raises OSError if the sandbox cannot be made."""
        no_disk = self._set_up()
        _send(self.control, ("ready", no_disk), [self.own_network])
        # No handler of ours: the C one writes the signal's number to the pipe, and the poll below wakes up.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        wake, wake_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        for fd in (self.control.fileno(), self.worker, wake):
            self.poll.register(fd, select.POLLIN)
        while True:
            ready = {fd for fd, _ in self.poll.poll()}
            if self.worker in ready:
                os._exit(1)
            if wake in ready:
                os.read(wake, 4096)
                self._reap()
            for pid in [pid for pid, fd in self.adopted.items() if fd in ready]:
                self._end_adopted(pid)
            if self.control.fileno() in ready:
                self._serve()

    def _set_up(self) -> str:
        os.unshare(os.CLONE_NEWNS | os.CLONE_NEWIPC | os.CLONE_NEWUTS)
        calls.set_title("sandbox")
        if self.privileged:
            calls.set_dumpable(False)  # the task cannot trace this process or follow /proc/1/root
            os.unshare(os.CLONE_NEWNET)
            _bring_up_lo()
            no_disk = view.build(self.config)
            self.own_network = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        else:
            no_disk = self._set_up_by_child()
            calls.set_dumpable(False)
            _limit_processes(self.config["pids"])
        null = os.open("/dev/null", os.O_RDWR)  # from here on no descriptor of a file of the machine; 2 is in memory
        for fd in (0, 1):
            os.dup2(null, fd)
        os.close(null)
        _socket.sethostname("sandbox")
        calls.new_session_keyring()
        seccomp.install()
        if _read_start("/proc/sys/kernel/core_pattern", 1) == b"|":
            # A core dump would go to a program on the machine; the kernel takes a limit of 1 as "do not" (core(5)).
            resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
        return no_disk

    def _set_up_by_child(self) -> str:
        """As an ordinary user init stays in the machine's network namespace, which it could not enter again: a public
        phase needs it. A child makes the other one, and builds the view there (mounts are shared; sysfs shows the
        network namespace of who mounts it)."""
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            try:
                os.unshare(os.CLONE_NEWNET)
                _bring_up_lo()
                no_disk = view.build(self.config)
                _send(theirs, ("built", no_disk), [os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)])
            except BaseException as e:
                _send(theirs, ("error", str(e)), [])
            os._exit(0)
        theirs.close()
        (kind, text), fds = receive(ours)
        os.waitpid(pid, 0)
        if kind == "error":
            raise OSError(text)
        os.chdir("/")
        for path in ("/proc/1/net", "/proc/1/task/1/net"):  # the machine's connections
            try:
                calls.mount("tmpfs", path, "tmpfs", calls.RDONLY, "size=0")
            except OSError:
                pass
        self.own_network = fds[0]
        return text

    def _serve(self) -> None:
        message, fds = receive(self.control)
        match message:
            case ():
                os._exit(0)
            case ("exec", size):
                self._start(size, fds)
            case ("kill",):
                self._kill_everything()
                self._answer(None)
            case ("host-network", on):
                if on:
                    self.host_network = fds.pop() if fds else -1
                else:
                    self._leave_host_network()
                self._answer(None)
            case ("space",):
                space = os.statvfs("/")
                self._answer((space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize))
        for fd in fds:
            os.close(fd)

    def _answer(self, value: object) -> None:
        _send(self.control, ("done", value), [])

    def _start(self, size: int, fds: list[int]) -> None:
        pids, announce = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        pid = os.fork()
        if pid:
            os.close(announce)
            self.supervised[pid] = os.dup(fds[0]), pids
            return
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self.control.close()
            for fd in (*(fd for pair in self.supervised.values() for fd in pair), *self.adopted.values()):
                os.close(fd)
            body = b""
            while len(body) < size and (part := os.read(fds[0], size - len(body))):  # a kill may follow at once
                body += part
            request = marshal.loads(body)  # noqa: S302 -- from the worker, never from the task
            self._join_network(request["host_network"])
            # The worker's /dev/null must not get in either: fchmod on it changes the machine's. So it sends none.
            streams = fds[1:] if len(fds) == 4 else [os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC), *fds[1:]]
            supervise({**request, "privileged": self.privileged}, fds[0], streams, self.cgroups, announce)
        except BaseException as e:
            os.write(fds[-1], f"sandbox: {e}\n".encode(errors="replace"))
            tell(fds[0], CANNOT_RUN)
        finally:
            os._exit(TOLD)

    def _join_network(self, host: bool) -> None:
        if self.privileged and host:
            os.setns(self.host_network, os.CLONE_NEWNET)
        elif not self.privileged and not host:
            os.setns(self.own_network, os.CLONE_NEWNET)

    def _leave_host_network(self) -> None:
        """A process in the machine's network namespace cannot be cut off from it: it ends."""
        if self.host_network != -1:
            os.close(self.host_network)
            self.host_network = -1
        own = os.fstat(self.own_network).st_ino
        while True:
            found = False
            for name in os.listdir("/proc"):
                if not name.isdigit() or int(name) == 1 or int(name) in self.supervised:
                    continue
                try:
                    if os.stat(f"/proc/{name}/ns/net").st_ino != own:
                        os.kill(int(name), signal.SIGKILL)
                        found = True
                except OSError:
                    continue
            self._reap()
            if not found:
                return
            time.sleep(0.001)

    def _reap(self, flags: int = os.WNOHANG) -> None:
        ended: dict[int, int] = {}
        try:
            while (found := os.waitpid(-1, flags))[0]:
                ended[found[0]] = found[1]
        except ChildProcessError:
            pass
        for pid, status in ended.items():
            if pid in self.supervised:
                self._after_supervisor(*self.supervised.pop(pid), status, ended)
        for pid, status in ended.items():
            if pid in self.adopted:
                self._tell_last(self.adopted.pop(pid), os.waitstatus_to_exitcode(status))

    def _after_supervisor(self, control: int, pids: int, status: int, ended: dict[int, int]) -> None:
        """A supervisor that was killed cannot tell how its command ends: this process does."""
        try:
            pid = struct.unpack("i", os.read(pids, 4))[0]
        except (OSError, struct.error):
            pid = 0
        os.close(pids)
        if os.WIFEXITED(status):
            os.close(control)
        elif pid in ended:
            self._tell_last(control, os.waitstatus_to_exitcode(ended[pid]))
        elif pid and os.path.exists(f"/proc/{pid}"):
            self.adopted[pid] = control
            self.poll.register(control, select.POLLIN)
        else:
            self._tell_last(control, -signal.SIGKILL)

    def _end_adopted(self, pid: int) -> None:
        """The worker wants the command to end: as far as it can still be told what belongs to it."""
        self.poll.unregister(self.adopted[pid])
        kill_below(pid)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def _tell_last(self, control: int, code: int) -> None:
        tell(control, code)
        try:
            self.poll.unregister(control)
        except KeyError:
            pass
        os.close(control)

    def _kill_everything(self) -> None:
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._reap(0)


def receive(control: _socket.socket) -> tuple[tuple, list[int]]:
    """One control message and its descriptors; an empty tuple when the other end is gone."""
    data, extra, _, _ = control.recvmsg(
        MESSAGE_MAX, _socket.CMSG_SPACE(4 * MAX_FDS), getattr(_socket, "MSG_CMSG_CLOEXEC", 0)
    )
    fds: list[int] = []
    for level, kind, payload in extra:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            fds += struct.unpack(f"{len(payload) // 4}i", payload[: len(payload) // 4 * 4])
    return (marshal.loads(data) if data else ()), fds  # noqa: S302 -- from the worker, never from the task


def _send(control: _socket.socket, message: tuple, fds: list[int]) -> None:
    extra = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack(f"{len(fds)}i", *fds))] if fds else []
    control.sendmsg([marshal.dumps(message)], extra)


def _bring_up_lo() -> None:
    _write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")  # eth0 gets an IPv4 address behind NAT and no other
    with_socket = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    fcntl.ioctl(with_socket.fileno(), _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP | _IFF_RUNNING))
    with_socket.close()


def _limit_processes(limit: int | None) -> None:
    """For an ordinary user, who can make no cgroup. Kernels from 5.14 on count in this user namespace alone, older ones
    everything of the user. Who is root here alone cannot raise it again."""
    if limit is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w") as f:
            f.write(text)
    except OSError:
        pass  # no IPv6 here, or settings that are read-only


def _read_start(path: str, size: int) -> bytes:
    try:
        with open(path, "rb") as f:
            return f.read(size)
    except OSError:
        return b""
