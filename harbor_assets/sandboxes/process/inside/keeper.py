"""The process between worker and sandbox: it starts init, waits, and removes what a sandbox has on the machine.

It works after the worker was killed too. Started by `BOOT`, with the configuration on standard input.
"""

import _signal as signal  # pyright: ignore[reportMissingImports]
import _socket
import errno
import marshal
import os
import select
import time

from harbor_assets.sandboxes.process.inside import calls
from harbor_assets.sandboxes.process.inside.init import Init

OWNER_FILE = "owner.json"  # in a sandbox's folder; locked while worker, keeper or init live

# argv: the folder that holds the package, the descriptor of the control socket
BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from harbor_assets.sandboxes.process.inside import keeper; keeper.main(int(sys.argv[2]))"
)


def main(fd: int) -> None:
    """Keep one sandbox until it is gone.

    Configuration (marshal): `folder`, `name`, `worker` (pid), `view`, `privileged`, `disk`, `shm_mb`, `cgroups`
    (folders), `keep` (leave the folder while the worker lives), `lock` (descriptor of the locked owner file).
    """
    with open(0, "rb", closefd=False) as f:
        config = marshal.load(f)  # noqa: S302 -- from the worker
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.umask(0o022)
    control = _socket.socket(fileno=fd)
    os.set_inheritable(fd, False)
    os.set_inheritable(config["lock"], False)  # stays open here and in init: the lock is theirs too
    worker = os.pidfd_open(os.getppid())
    if os.getppid() != config["worker"]:
        os._exit(1)  # the worker died in between; the next command removes the folder
    cgroups = [os.open(f"{folder}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC) for folder in config["cgroups"]]
    calls.set_title(f"harbor-assets: keeper of {config['name']}")
    _note(config["folder"], os.getpid())
    if not config["privileged"]:
        enter_user_namespace()
    os.unshare(os.CLONE_NEWPID)
    pid = os.fork()
    if pid == 0:
        try:
            Init(config, control, worker, cgroups).run()
        except BaseException as e:
            number = e.errno if isinstance(e, OSError) else None
            text = e.strerror if isinstance(e, OSError) and e.strerror else f"{type(e).__name__}: {e}"
            control.send(marshal.dumps(("error", text, number)))
        os._exit(70)  # EX_SOFTWARE, sysexits.h
    _note(config["folder"], pid)
    control.send(marshal.dumps(("pid", pid)))
    control.close()
    os.waitpid(pid, 0)  # returns when everything inside is dead
    for folder in config["cgroups"]:
        _remove_cgroup(folder)
    if not config["keep"] or _is_dead(worker):
        remove_tree(config["folder"])


def remove_tree(folder: str) -> None:
    """Remove a folder of untrusted content: of any depth, with folders nobody may enter, without following links.

    Subfolders are moved up and emptied one by one, so neither recursion nor the length of a path limits it. Others may
    be at it too (keeper, worker and `reap` of another command), or may have been killed at it: names are one's own.
    What cannot be removed is left; the caller looks.
    """
    own, counter, again = f"{folder}/~{os.urandom(6).hex()}-", 0, 100
    todo = [folder]
    while todo:
        here = todo[-1]
        inner = []
        try:
            os.chmod(here, 0o700)
            with os.scandir(here) as entries:
                for entry in entries:
                    try:
                        if not entry.is_dir(follow_symlinks=False):
                            os.unlink(entry.path)
                        elif here == folder:
                            inner.append(entry.path)
                        else:
                            counter += 1
                            os.chmod(entry.path, 0o700)  # an ordinary user cannot move it else: an overlay's has 000
                            os.rename(entry.path, f"{own}{counter}")
                            inner.append(f"{own}{counter}")
                    except FileNotFoundError:
                        continue
            if not inner:
                os.rmdir(here)
        except FileNotFoundError:
            pass
        except OSError as e:
            again -= 1
            if e.errno != errno.ENOTEMPTY or not again:
                return
            continue  # somebody else moved something up into it
        if inner:
            todo += inner
        else:
            todo.pop()


def enter_user_namespace() -> None:
    """Become root of a user namespace that has one id: our own."""
    uid, gid = os.getuid(), os.getgid()
    os.unshare(os.CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as f:
            f.write(text)


def _note(folder: str, pid: int) -> None:
    """Tell a later `reap` whom to kill if this process hangs: pid and start time, a line each."""
    with open(f"/proc/{pid}/stat", "rb") as f:
        start = f.read().rsplit(b")", 1)[1].split()[19].decode()
    with open(f"{folder}/processes", "a") as f:
        f.write(f"{pid} {start}\n")


def _remove_cgroup(folder: str) -> None:
    for _ in range(200):  # 2 s: a dead process leaves its cgroup a little later
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.01)


def _is_dead(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))
