"""The file system a task sees: one overlay for `/`, one per shown top folder, and proc, sys and dev of its own.

All mounts live in the sandbox's mount namespace: the kernel removes them with its last process, on any kill.
"""

import errno
import fcntl
import os
import stat
import struct

from harbor_assets.sandboxes.process.inside.calls import (
    BIND,
    NODEV,
    NOEXEC,
    NOSUID,
    PRIVATE,
    RDONLY,
    REC,
    REMOUNT,
    mount,
    pivot_to_here,
)

# name, major, minor: see the kernel's admin-guide/devices.txt
DEVICES = (("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0))
# Where a write changes the machine. `fs`, `irq`, `bus` and `acpi` carry settings too.
READ_ONLY = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi")
# What tells of the machine's memory, keys and kernel. Masks also keep a nested user namespace from a fresh proc: the
# kernel refuses one where the present one is covered (mount_too_revealing).
COVERED_FILES = ("kcore", "keys", "timer_list", "kallsyms", "kmsg", "vmallocinfo", "iomem", "ioports", "sched_debug")
COVERED_FOLDERS = ("/sys/firmware", "/sys/kernel", "/sys/fs/cgroup", "/sys/class/dmi", "/sys/devices/virtual/dmi")

_LOOP_CTL_GET_FREE, _LOOP_CONFIGURE, _AUTOCLEAR = 0x4C82, 0x4C0A, 4


def build(config: dict, own_network: bool = True) -> str:
    """Build the view and make it this process's root. Returns why the disk could not be limited, or "".

    `config`: `folder` (the sandbox's own), `view` ([(place below `/`, [lower folders, newest first])]), `privileged`,
    `disk` (image or None), `shm_mb`. The caller is in a mount namespace of its own. Raises OSError.
    """
    mount("", "/", "", REC | PRIVATE)
    os.chdir(config["folder"])  # paths below are relative: mount data is one page
    no_disk = _mount_disk(config["disk"]) if config["disk"] else ""
    for number, (place, lowers) in enumerate(config["view"]):
        _overlay(number, place, lowers, config["privileged"])
    root = config["folder"] + "/root"
    for name in ("proc", "sys", "dev"):
        os.makedirs(f"{root}/{name}", exist_ok=True)
    mount("proc", f"{root}/proc", "proc", NOSUID | NODEV | NOEXEC)
    if own_network:
        mount("sysfs", f"{root}/sys", "sysfs", RDONLY | NOSUID | NODEV | NOEXEC)
    _devices(f"{root}/dev", config["privileged"], config["shm_mb"])
    os.chdir(root)
    pivot_to_here()
    _protect()
    return no_disk


def _overlay(number: int, place: str, lowers: list[str], privileged: bool) -> None:
    # Not one overlay over "/": a lower layer that is an ancestor of an upper one is refused (ELOOP).
    if "/" in place:  # below a split folder, where its upper folder must not lie within that of another
        upper, work = f"rw/split/{number}/upper", f"rw/split/{number}/work"
        if not os.path.isdir(f"root/{place}"):
            return  # a layer has removed it
    else:
        upper, work = f"rw/upper/{place or 'ROOT'}", f"rw/work/{place or 'ROOT'}"
    os.makedirs(upper, exist_ok=True)
    os.makedirs(work, exist_ok=True)
    state = os.stat(lowers[0])  # what shows: a layer may have changed the folder itself
    os.chmod(upper, stat.S_IMODE(state.st_mode))
    if privileged:
        os.chown(upper, state.st_uid, state.st_gid)
    # volatile: nothing here outlives the sandbox, so apt need not wait for the disk. redirect_dir: without it `mv` of a
    # folder of the machine fails with EXDEV. metacopy off: a layer must hold whole files.
    options = "volatile,metacopy=off,redirect_dir=on" if privileged else "volatile,userxattr"
    mount(
        "overlay",
        f"root/{place}",
        "overlay",
        NODEV,
        f"lowerdir={':'.join(lowers)},upperdir={upper},workdir={work},{options}",
    )


def _mount_disk(image: str) -> str:
    """Bound what the task can write by a file system of its own. The loop device goes with the mount."""
    try:
        device = _loop_device(image)
        mount(device, "rw", "ext4", NODEV, "noinit_itable")  # else the kernel would fill the sparse image by and by
    except OSError as e:
        return str(e)
    return ""


def _loop_device(image: str) -> str:
    # struct loop_config: fd, block size, loop_info64 (232 bytes, flags at 52), 64 bytes reserved
    backing = os.open(image, os.O_RDWR | os.O_CLOEXEC)
    setup = struct.pack("II", backing, 0) + bytes(52) + struct.pack("I", _AUTOCLEAR) + bytes(176 + 64)
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    for _ in range(50):  # another process may take the free one first
        name = f"/dev/loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}"
        device = os.open(name, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.ioctl(device, _LOOP_CONFIGURE, setup)
        except BlockingIOError:
            pass
        except OSError as e:
            if e.errno != errno.EBUSY:
                raise
        else:
            return name  # `device` stays open until init ends or mounts it: closing the last one frees it (autoclear)
        os.close(device)
    raise OSError(errno.EBUSY, "no free loop device")


def _devices(dev: str, privileged: bool, shm_mb: int) -> None:
    mount("tmpfs", dev, "tmpfs", NOSUID | NOEXEC, "mode=755,size=64k")
    for name, major, minor in DEVICES:
        path = f"{dev}/{name}"
        if privileged:  # nodes of our own: chmod on a bound one changes the machine's
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(major, minor))
            os.chmod(path, 0o666)
        else:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC))
            mount(f"/dev/{name}", path, "", BIND)
    os.mkdir(f"{dev}/pts")
    os.mkdir(f"{dev}/shm")
    group = ",gid=5" if privileged else ""  # tty, the same number everywhere; not mapped for an ordinary user
    mount("devpts", f"{dev}/pts", "devpts", NOSUID | NOEXEC, f"newinstance,ptmxmode=0666,mode=620{group}")
    mount("tmpfs", f"{dev}/shm", "tmpfs", NOSUID | NODEV, f"mode=1777,size={shm_mb}m")
    for name, target in (
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "fd/0"),
        ("stdout", "fd/1"),
        ("stderr", "fd/2"),
    ):
        os.symlink(target, f"{dev}/{name}")


def _protect() -> None:
    for name in READ_ONLY:
        path = f"/proc/{name}"
        if os.path.exists(path):
            mount(path, path, "", BIND | REC)
            mount("", path, "", BIND | REMOUNT | RDONLY | NOSUID | NODEV | NOEXEC)
    for name in COVERED_FILES:
        if os.path.exists(f"/proc/{name}"):
            mount("/dev/null", f"/proc/{name}", "", BIND)
    for path in COVERED_FOLDERS:
        if os.path.isdir(path) and not os.path.islink(path):
            mount("tmpfs", path, "tmpfs", RDONLY, "size=0")
