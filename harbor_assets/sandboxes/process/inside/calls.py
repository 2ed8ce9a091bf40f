"""The system calls that Python has no function for. Linux only; errors become OSError."""

import ctypes
import os
import struct

RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, REC = 1, 2, 4, 8, 32, 4096, 16384
PRIVATE = 1 << 18
DETACH = 2  # umount2: now for the name, later for who still holds it

# What root keeps inside: what apt, useradd, su, sudo, nginx, ping and strace need. Not mknod: root here is the
# machine's root and no user namespace stands between them.
KEPT_CAPABILITIES = sum(
    1 << number
    for number in (
        0,  # chown
        1,  # dac_override
        3,  # fowner
        4,  # fsetid
        5,  # kill
        6,  # setgid
        7,  # setuid
        8,  # setpcap
        10,  # net_bind_service
        13,  # net_raw
        18,  # sys_chroot
        29,  # audit_write
        31,  # setfcap
    )
)

_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER, _PR_CAP_AMBIENT = 4, 24, 36, 47
_AMBIENT_CLEAR_ALL = 4
_PR_SET_SECCOMP, _FILTER = 22, 2
_CAPABILITY_VERSION_3 = 0x20080522
_JOIN_SESSION_KEYRING = 1
_KEYCTL = {"x86_64": 250, "i386": 288, "i686": 288, "ppc64le": 271, "s390x": 280}  # all newer machines: 219

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *args: object) -> None:
    if getattr(_libc, name)(*args):
        number = ctypes.get_errno()
        shown = ", ".join(a.decode(errors="replace") for a in args if isinstance(a, bytes) and a)
        raise OSError(number, f"{name}({shown}): {os.strerror(number)}")


def mount(source: str, target: str, kind: str, flags: int = 0, data: str = "") -> None:
    """mount(2). `data` is limited to one page by the kernel."""
    _call("mount", source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode())


def detach(target: str) -> None:
    """Take a mount away; who still uses it keeps it."""
    _call("umount2", target.encode(), DETACH)


def pivot_to_here() -> None:
    """Make the working directory the root, and let go of the old one."""
    _call("pivot_root", b".", b".")
    _call("umount2", b".", DETACH)
    os.chdir("/")


def set_dumpable(yes: bool) -> None:
    """Whether others with our user id may trace this process and follow its links in /proc."""
    _libc.prctl(_PR_SET_DUMPABLE, int(yes), 0, 0, 0)


def adopt_orphans() -> None:
    """Orphans below this process come to it, not to pid 1."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def limit_capabilities() -> None:
    """Take everything but KEPT_CAPABILITIES from the bounding set, and the ambient set: no program gets more again."""
    for number in range(64):
        if not KEPT_CAPABILITIES >> number & 1 and _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) and number > 40:
            break  # the kernel knows no higher one
    _libc.prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)


def drop_capabilities() -> None:
    """Keep KEPT_CAPABILITIES, as a root that was limited; inheritable stays empty."""
    low, high = KEPT_CAPABILITIES & 0xFFFFFFFF, KEPT_CAPABILITIES >> 32
    head = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _call("capset", head, (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0))


def new_session_keyring() -> None:
    """Leave the session keyring of whoever started the worker. Best effort: some hosts forbid keyrings at all."""
    _libc.syscall(_KEYCTL.get(os.uname().machine, 219), _JOIN_SESSION_KEYRING, None)


def set_filter(length: int, address: int) -> None:
    """Install a seccomp filter of `length` instructions. Needs CAP_SYS_ADMIN, since programs may gain rights here."""
    program = struct.pack("HxxxxxxQ" if ctypes.sizeof(ctypes.c_void_p) == 8 else "HxxI", length, address)
    _libc.prctl(_PR_SET_SECCOMP, _FILTER, ctypes.c_char_p(program), 0, 0)


def set_title(title: str) -> None:
    """Overwrite this process's command line, so that neither the task nor `ps` reads paths from it."""
    with open("/proc/self/stat", "rb") as f:
        fields = f.read().rsplit(b")", 1)[1].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end, proc_pid_stat(5)
    text = title.encode()[: end - start - 1]
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, text, len(text))
