"""The layer that hides what of the shown folders is nobody's business.

What is shown is an allow list (`shown`); every other top folder is an empty one of our own. Inside the shown ones this
layer hides the folders of HIDDEN, and whatever the machine itself does not let every user read.
"""

import hashlib
import os
import secrets
import stat
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harbor_assets.sandboxes.process.inside.keeper import remove_tree
from harbor_assets.sandboxes.process.nameservers import resolv_conf
from harbor_assets.sandboxes.process.rights import privileged
from harbor_assets.sandboxes.process.shown import SHOWN, Split, mounts_below, shown_folders, split_for

# The empty folders of "/", with their modes.
SKELETON = {
    "root": 0o700,
    "home": 0o755,
    "tmp": 0o1777,
    "run": 0o755,
    "run/lock": 0o1777,
    "mnt": 0o755,
    "media": 0o755,
    "srv": 0o755,
    "boot": 0o755,
    "proc": 0o555,
    "sys": 0o555,
    "dev": 0o755,
}

# Shown as empty folders. Some of it is public on the machine, but says what else runs there.
HIDDEN = {
    "etc/cni": 0o755,
    "etc/containerd": 0o755,
    "etc/docker": 0o755,
    "etc/kubernetes": 0o755,
    "etc/rancher": 0o755,
    "etc/ssh": 0o755,
    "var/backups": 0o755,
    "var/crash": 0o1777,
    "var/lib/buildkit": 0o755,
    "var/lib/cloud": 0o755,
    "var/lib/containerd": 0o755,
    "var/lib/containers": 0o755,
    "var/lib/docker": 0o755,
    "var/lib/kubelet": 0o755,
    "var/lib/lxc": 0o755,
    "var/lib/lxd": 0o755,
    "var/lib/rancher": 0o755,
    "var/lock": 0o1777,
    "var/log": 0o755,
    "var/mail": 0o2775,
    "var/run": 0o755,
    "var/snap": 0o755,
    "var/spool": 0o755,
    "var/tmp": 0o1777,
}

# How deep a folder is searched for what not everybody may read: /var/lib/postgresql/15/main is at four.
_SEARCHED = {"etc": 9, "var": 4, "opt": 3}
_BIG = frozenset({"/var/lib/dpkg/info", "/var/lib/apt/lists"})  # thousands of public files
# Unreadable to others, and needed: sudo's rules, and what `useradd` and `su` work on (with every password locked).
_NEEDED = frozenset({"/etc/sudoers", "/etc/sudoers.d", "/etc/shadow", "/etc/gshadow"})

_FRESH_SECONDS = 60  # the search takes some 50 ms; a secret that appears on the machine is hidden a minute later
_UNUSED_SECONDS = 7 * 24 * 3600  # no sandbox lives as long: a run's budget is three days at most
_SMALL = 1 << 20  # bytes of a file that is copied
_lock = threading.Lock()
_known: dict[tuple[Path, tuple[str, ...]], tuple[float, "Mask"]] = {}


@dataclass(frozen=True, slots=True)
class Mask:
    """A lower layer, and how the shown folders are split beside it."""

    path: Path
    split: Split


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a mask holds. Equal plans make equal masks."""

    privileged: bool  # who owns it
    top: tuple[tuple[str, str | None], ...]  # name, where it points if it is a link
    empty: tuple[tuple[str, int, int, int], ...]  # relative path, mode, uid, gid
    absent: tuple[str, ...]
    folders: tuple[tuple[str, int], ...]  # relative path, mode; of split folders: where the subfolders are mounted
    links: tuple[tuple[str, str], ...]  # relative path, where it points
    files: tuple[tuple[str, str, int, int], ...]  # relative path, text, mode, gid

    @property
    def key(self) -> str:
        return hashlib.sha256(repr((1, self)).encode(errors="surrogateescape")).hexdigest()[:16]


def current_mask(home: Path) -> Mask:
    """The mask that fits the machine as it is now: made if there is none, kept in `home` by its content.

    Raises OSError.
    """
    home = home.absolute()
    mounts = mounts_below()
    with _lock:
        made, mask = _known.get((home, mounts), (0.0, None))
        if mask is None or time.monotonic() - made > _FRESH_SECONDS or not mask.path.exists():
            plan, split = _plan(mounts)
            mask = Mask(home / "masks" / plan.key, split)
            if not mask.path.exists():
                _make(plan, mask.path)
            _known[home, mounts] = time.monotonic(), mask
        os.utime(mask.path)  # in use: `prune` leaves it
        return mask


def prune(home: Path) -> list[str]:
    """Remove masks that nothing has used for a week, and half-made ones. Returns their names."""
    gone = []
    folder = home / "masks"
    if folder.is_dir():
        for path in folder.iterdir():
            age = time.time() - path.lstat().st_mtime
            if age > (_UNUSED_SECONDS if not path.name.startswith(".") else 3600):
                remove_tree(str(path))
                gone.append(path.name)
    return gone


def _plan(mounts: tuple[str, ...]) -> tuple[_Plan, Split]:
    empty: dict[str, tuple[int, int, int]] = {}
    absent: list[str] = []
    for name, mode in HIDDEN.items():
        path = Path("/", name)
        if path.is_dir() and path.resolve() == path:
            state = path.stat()
            empty[name] = (mode, state.st_uid, state.st_gid)
    for top in set(_SEARCHED) & set(shown_folders()):
        for path, state in _private(f"/{top}", _SEARCHED[top]):
            name = path[1:]
            if any(name.startswith(f"{hidden}/") for hidden in HIDDEN):
                continue
            if stat.S_ISDIR(state.st_mode):
                empty[name] = (stat.S_IMODE(state.st_mode), state.st_uid, state.st_gid)
            else:
                absent.append(name)
    split = split_for(mounts, empty)
    folders, links, files = _contents(split.folders)
    plan = _Plan(
        privileged=privileged(),
        top=tuple((n, str(Path("/", n).readlink()) if Path("/", n).is_symlink() else None) for n in SHOWN if _there(n)),
        empty=tuple((name, *rest) for name, rest in sorted(empty.items())),
        absent=tuple(sorted(absent)),
        folders=tuple(folders),
        links=tuple(links),
        files=(*files, *_files()),
    )
    return plan, split


def _contents(
    split: tuple[str, ...],
) -> tuple[list[tuple[str, int]], list[tuple[str, str]], list[tuple[str, str, int, int]]]:
    """What split folders hold besides their subfolders: (where those go, links, small public files)."""
    folders, links, files = [], [], []
    for name in split:
        for entry in sorted(os.scandir(f"/{name}"), key=lambda e: e.name):
            state = entry.stat(follow_symlinks=False)
            path = entry.path[1:]
            if entry.is_symlink():
                links.append((path, str(Path(entry.path).readlink())))
            elif entry.is_dir():
                folders.append((path, stat.S_IMODE(state.st_mode)))
            elif entry.is_file() and state.st_mode & 0o4 and state.st_size <= _SMALL:
                text = Path(entry.path).read_text(errors="surrogateescape")
                files.append((path, text, stat.S_IMODE(state.st_mode), state.st_gid))
    return folders, links, files


def _there(name: str) -> bool:
    path = Path("/", name)
    return path.is_symlink() or path.is_dir()


def _private(folder: str, depth: int) -> Iterator[tuple[str, os.stat_result]]:
    """What not every user may read. Links and special files are left alone: they hold nothing."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.path in _NEEDED:
            continue
        try:
            state = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISDIR(state.st_mode):
            if state.st_mode & 0o5 != 0o5:
                yield entry.path, state
            elif depth > 1 and entry.path not in _BIG:
                yield from _private(entry.path, depth - 1)
        elif stat.S_ISREG(state.st_mode) and not state.st_mode & 0o4:
            yield entry.path, state


def _files() -> Iterator[tuple[str, str, int, int]]:
    yield "etc/hostname", "sandbox\n", 0o644, 0
    yield "etc/hosts", _hosts(), 0o644, 0
    yield "etc/machine-id", "0" * 31 + "1\n", 0o444, 0
    yield "etc/resolv.conf", resolv_conf(), 0o644, 0
    for name in ("shadow", "gshadow"):
        try:
            path = Path("/etc", name)
            rows = [line.split(":") for line in path.read_text(errors="replace").splitlines() if ":" in line]
            state = path.stat()
        except OSError:
            continue
        text = "".join(":".join([row[0], "*", *row[2:]]) + "\n" for row in rows)
        yield f"etc/{name}", text, stat.S_IMODE(state.st_mode), state.st_gid


def _hosts() -> str:
    """The machine's own names for other machines (a mirror, say), without those for itself."""
    lines = ["127.0.0.1 localhost sandbox", "::1 localhost"]
    try:
        text = Path("/etc/hosts").read_text(errors="replace")[: 1 << 20]
    except OSError:
        text = ""
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if len(words) > 1 and not words[0].startswith(("127.", "::1", "fe00", "ff0")):
            lines.append(" ".join(words))
    return "\n".join(lines) + "\n"


def _make(plan: _Plan, target: Path) -> None:
    new = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        new.mkdir(parents=True)
        _fill(plan, new)
        new.rename(target)
    except OSError:
        remove_tree(str(new))
        if not target.exists():  # else another process was first
            raise


def _fill(plan: _Plan, new: Path) -> None:
    root = new / "ROOT"
    for name, mode in SKELETON.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name).chmod(mode)
    for name, link in plan.top:
        if link is None:
            (root / name).mkdir()
            (root / name).chmod(0o755)
        else:
            (root / name).symlink_to(link)
    shown = shown_folders()
    opaque = f"{'trusted' if privileged() else 'user'}.overlay.opaque"
    for name, mode, uid, gid in plan.empty:
        if name.split("/")[0] in shown:
            path = _parents(new, name)
            path.mkdir(exist_ok=True)
            os.setxattr(path, opaque, b"y")
            _own(path, mode, uid, gid)
    for name, mode in plan.folders:
        path = _parents(new, name)
        if not path.exists():
            path.mkdir()
            path.chmod(mode)
    for name, link in plan.links:
        _parents(new, name).symlink_to(link)
    for name in plan.absent:
        os.mknod(_parents(new, name), stat.S_IFCHR, os.makedev(0, 0))  # a whiteout
    for name, text, mode, gid in plan.files:
        path = _parents(new, name)
        path.write_text(text, errors="surrogateescape")
        _own(path, mode, 0, gid)
    if (new / "var/log").is_dir():
        (new / "var/log/apt").mkdir()  # apt writes its log there and does not make it
        (new / "var/log/apt").chmod(0o755)
    root.chmod(0o755)
    new.chmod(0o755)


def _parents(mask: Path, name: str) -> Path:
    """Make the folders above `name` as they are on the machine: an overlay shows the mask's mode and owner."""
    path = mask
    for part in Path(name).parts[:-1]:
        path = path / part
        if not path.exists():
            path.mkdir()
            state = Path("/", path.relative_to(mask)).stat()
            _own(path, stat.S_IMODE(state.st_mode), state.st_uid, state.st_gid)
    return mask / name


def _own(path: Path, mode: int, uid: int, gid: int) -> None:
    if privileged():
        os.chown(path, uid, gid)
    path.chmod(mode)
