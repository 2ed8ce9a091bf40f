"""One command: a supervisor that owns everything the command starts, and the command itself with its rights reduced."""

import _signal as signal  # pyright: ignore[reportMissingImports]
import errno
import os
import select
import stat
import struct
import time

from harbor_assets.sandboxes.process.inside import calls

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# A distribution's Python refuses pip outside of a venv (PEP 668), that of an image does not: here it is a copy, too.
PIP = {"PIP_BREAK_SYSTEM_PACKAGES": "1"}
CANNOT_RUN, NOT_FOUND = 126, 127  # as shells do
LONG = 100_000  # bytes; the kernel takes 128 KiB for one argument (MAX_ARG_STRLEN)


def supervise(request: dict, control: int, streams: list[int], cgroups: list[int], announce: int) -> None:
    """Run a command and tell its exit code on `control`; a byte or the end of file there kills all of its descendants.

    What the command leaves in the background lives on below this process, which is its reaper until the sandbox ends.
    The command writes its pid to `announce`: a task may kill this process too.
    """
    calls.adopt_orphans()
    os.setsid()
    pid = os.fork()
    if pid == 0:
        _run(request, streams, cgroups, announce)
    for fd in {0, 1, 2, *streams}:
        os.close(fd)
    child = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(child, select.POLLIN)
    poll.register(control, select.POLLIN)
    ready = {fd for fd, _ in poll.poll()}
    if child not in ready:
        kill_below(os.getpid())
        tell(control, -signal.SIGKILL)
        return
    tell(control, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        pass


def kill_below(top: int) -> None:
    """Kill all processes below `top`, daemons that left their session included. Returns when none is left.

    Stopping them first makes it end under a fork bomb too: a stopped process does not fork.
    """
    stopped: set[int] = set()
    while True:
        below = _descendants(top)
        running = below - stopped
        for pid in running:
            _send(pid, signal.SIGSTOP)
        stopped |= running
        if running:
            continue
        for pid in below:
            _send(pid, signal.SIGKILL)
        if top == os.getpid():
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
        elif not below:
            return
        time.sleep(0.001)


def account(user: str | int, passwd: str, group: str) -> tuple[int, int, list[int], str, str]:
    """-> (uid, gid, all groups, home, login) of `name`, `uid`, `name:group` or `uid:gid`, as in a USER instruction.

    `passwd` and `group` are the texts of the files inside: the task may have changed them. A number needs no entry.
    Raises LookupError.
    """
    name, _, wanted = str(user).partition(":")
    users = [row.split(":") for row in passwd.split("\n") if row.count(":") >= 6]
    groups = [row.split(":") for row in group.split("\n") if row.count(":") >= 3]
    row = next((r for r in users if r[0] == name), None) or next((r for r in users if r[2] == name), None)
    if row is None and not name.isdigit():
        raise LookupError(f"no such user: {name}")
    uid, gid, home, login = (int(row[2]), int(row[3]), row[5] or "/", row[0]) if row else (int(name), 0, "/", name)
    if wanted:
        found = next((g for g in groups if wanted in (g[0], g[2])), None)
        if found is None and not wanted.isdigit():
            raise LookupError(f"no such group: {wanted}")
        gid = int(found[2]) if found else int(wanted)
    extra = [int(g[2]) for g in groups if login in g[3].split(",") and g[2].isdigit()]
    return uid, gid, sorted({gid, *extra}), home, login


def _run(request: dict, streams: list[int], cgroups: list[int], announce: int) -> None:
    code = CANNOT_RUN
    try:
        os.write(announce, struct.pack("i", os.getpid()))
        os.setsid()
        for number, fd in enumerate(streams):
            os.dup2(fd, number)
        argv, environment = _become(request, cgroups)
        code = NOT_FOUND
        _execute(argv, environment)
    except BaseException as e:
        if code == NOT_FOUND and not isinstance(e, FileNotFoundError):
            code = CANNOT_RUN
        os.write(2, f"sandbox: {e}\n".encode(errors="replace"))
    finally:
        os._exit(code)


def _become(request: dict, cgroups: list[int]) -> tuple[list[str], dict[str, str]]:
    for fd in cgroups:  # only the command joins: neither its memory limit nor its process limit can hit the supervisor
        os.write(fd, b"0")
    _write("/proc/self/oom_score_adj", b"0")
    uid, gid, groups, home, login = account(request["user"], _read("/etc/passwd"), _read("/etc/group"))
    environment = {"PATH": PATH, "HOME": home, "USER": login, "LANG": "C.UTF-8", **PIP, **request["env"]}
    os.umask(0o022)
    os.chdir(request["cwd"])
    for fd in (0, 1, 2):  # so that another user may open /dev/stdout; these are pipes of our own
        if request["privileged"] and stat.S_ISFIFO(os.fstat(fd).st_mode):
            os.fchown(fd, uid, -1)
    calls.limit_capabilities()
    if request["privileged"]:
        os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if uid == 0:
        calls.drop_capabilities()
    calls.set_dumpable(True)
    argv, kept = request["argv"], 3
    if len(argv) == 3 and argv[1] == "-c" and len(argv[2]) > LONG:
        argv, kept = [argv[0], "/proc/self/fd/3"], 4
        script = os.memfd_create("script", 0)
        with open(script, "wb", closefd=False) as f:
            f.write(os.fsencode(request["argv"][2]))
        os.lseek(script, 0, 0)
        if script != 3:
            os.dup2(script, 3)
    os.closerange(kept, 1 << 20)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)  # a worker under nohup ignores some, and that is inherited
    return argv, environment


def _execute(argv: list[str], environment: dict[str, str]) -> None:
    """exec by PATH. Not os.execvpe: it imports a module, and the interpreter's folder is not in this view."""
    error: OSError = FileNotFoundError(errno.ENOENT, "command not found", argv[0])
    folders = environment["PATH"].split(":") if "/" not in argv[0] else [""]
    for folder in folders:
        try:
            os.execve(f"{folder}/{argv[0]}" if folder else argv[0], argv, environment)  # noqa: S606 -- no shell wanted
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as e:
            error = e
    raise error


def _descendants(top: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as f:
                    parent = int(f.read().rsplit(b")", 1)[1].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(name))
    below: set[int] = set()
    todo = [top]
    while todo:
        found = children.get(todo.pop(), [])
        todo += found
        below.update(found)
    return below


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass


def tell(control: int, code: int) -> None:
    """Tell the worker how a command ended. It believes the first line."""
    try:
        os.write(control, b"%d\n" % code)
    except OSError:
        pass  # nobody listens any more


def _read(path: str) -> str:
    """At most 16 MB of a file. Not `open`: its text layer costs a millisecond in every new process."""
    parts: list[bytes] = []
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # the task may have made it a pipe
        while sum(map(len, parts)) < 1 << 24 and (part := os.read(fd, 1 << 20)):
            parts.append(part)
        os.close(fd)
    except OSError:
        pass
    return b"".join(parts).decode(errors="replace")


def _write(path: str, text: bytes) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        os.write(fd, text)
        os.close(fd)
    except OSError:
        pass  # some hosts refuse; the score is a wish
