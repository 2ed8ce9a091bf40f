"""Can this machine run the `process` sandbox, and which machine is it?"""

import hashlib
import os
import platform
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from harbor_assets.sandboxes.process import nat
from harbor_assets.sandboxes.process.owner import Owner
from harbor_assets.sandboxes.process.rights import SYS_ADMIN, has, in_user_namespace, privileged
from harbor_assets.sandboxes.process.shown import SHOWN, shown_folders

_PROBE_SECONDS = 20.0
_DPKG = "/var/lib/dpkg/status"
_PACKAGE_DATABASES = (
    _DPKG,
    "/usr/lib/sysimage/rpm/rpmdb.sqlite",
    "/var/lib/rpm/rpmdb.sqlite",
    "/var/lib/rpm/Packages",
    "/lib/apk/db/installed",
)
_PACKAGE_FOLDERS = ("/var/lib/pacman/local",)  # one subfolder per package, named <name>-<version>
_IDENTITY = ("/etc/os-release", "/etc/passwd", "/etc/group")  # users of the machine shift user ids inside


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether the sandbox works with a home, and how. `reason` and `next_step` are sentences, given if not `ok`.

    `shared_network`: a public network is the machine's own. Then ports of two tasks meet: run one trial at a time.
    """

    ok: bool
    mode: Literal["root", "user"]
    reason: str | None = None
    next_step: str | None = None
    notes: tuple[str, ...] = ()
    shared_network: bool = False


def check(home: Path) -> Availability:
    """Whether the `process` sandbox works on this machine with this home, tried by a mount; some 30 ms."""
    mode: Literal["root", "user"] = "root" if privileged() else "user"
    refusal = _refusal(home.absolute()) or _probe(home.absolute())
    if refusal is not None:
        return Availability(False, mode, *refusal)
    notes: list[str] = []
    shared = False
    if mode == "user":
        shared = True
        notes.append(
            "Without root: a public network is this machine's own, so trials run one at a time; no limits on memory, "
            "CPU and disk; tasks can neither install packages nor switch users."
        )
    elif (problem := nat.problem()) is not None:
        shared = True
        notes.append(f"A public network is this machine's own ({problem}), so trials run one at a time.")
    return Availability(True, mode, notes=tuple(notes), shared_network=shared)


def fingerprint() -> str:
    """64 hex digits that stand for this machine in place of an image: architecture, distribution, packages and users.

    Equal machines have equal fingerprints. Packages installed by other means than the distribution's are not in it.
    """
    return _fingerprint(tuple(_states()))


def _states() -> Iterator[tuple[str, int, int, int]]:
    for name in (*_IDENTITY, *_PACKAGE_DATABASES, *_PACKAGE_FOLDERS):
        try:
            state = Path(name).stat()
        except OSError:
            continue
        yield name, state.st_mtime_ns, state.st_size, state.st_ino


@lru_cache(maxsize=4)
def _fingerprint(states: tuple[tuple[str, int, int, int], ...]) -> str:
    digest = hashlib.sha256(f"1\n{platform.machine()}\n".encode())
    for name, *_ in states:
        path = Path(name)
        if path.is_dir():
            content = "\n".join(sorted(entry.name for entry in path.iterdir())).encode()
        elif name == _DPKG:
            content = "\n".join(sorted(_dpkg(path.read_text(errors="replace")))).encode()
        else:
            content = path.read_bytes()
        digest.update(f"{name}\n{hashlib.sha256(content).hexdigest()}\n".encode())
    return digest.hexdigest()


def _dpkg(status: str) -> Iterator[str]:
    """Installed packages with their versions. The file itself also tells when and why they were installed."""
    for paragraph in status.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and line[0] != " ")
        if fields.get("Status", "").endswith(" installed"):
            yield f"{fields.get('Package')}:{fields.get('Architecture')} {fields.get('Version')}"


def _refusal(home: Path) -> tuple[str, str] | None:
    """(why not, what to do) as far as it can be told without trying."""
    if sys.platform != "linux":
        return (
            f"The process sandbox is made of Linux namespaces; this is {platform.system()}.",
            "Run on Linux (a virtual machine will do), or choose a sandbox that uses containers.",
        )
    top = home.resolve().parts[1] if len(home.resolve().parts) > 1 else ""
    if top in SHOWN or not top:
        shown = ", ".join(f"/{name}" for name in shown_folders())
        return (
            f"The home {home} lies inside a folder that tasks are shown ({shown}).",
            "Set HARBOR_ASSETS_HOME to a folder outside of them, for example one below /home, /root or /srv.",
        )
    if os.geteuid() == 0 and not in_user_namespace() and not has(SYS_ADMIN):
        return (
            "This root may not mount file systems (no CAP_SYS_ADMIN): it is the root of a plain container.",
            "Run on the machine itself, start the container with --privileged and a volume for the home, "
            "or choose a sandbox that uses containers.",
        )
    for program in ("sh", "tar"):
        if not _shown(program):
            return (
                f"'{program}' of this machine does not lie in a folder that tasks are shown.",
                f"Install {program} below /usr or /bin.",
            )
    return None


def _shown(program: str) -> bool:
    for folder in ("/usr/local/bin", "/usr/bin", "/bin"):
        path = Path(folder, program)
        if path.exists() and path.resolve().parts[1] in SHOWN:
            return True
    return False


def _probe(home: Path) -> tuple[str, str] | None:
    """Try what a sandbox needs in a process of its own: namespaces and an overlay whose upper folder is in the home."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); "
        "from harbor_assets.sandboxes.process.inside import probe; probe.main(sys.argv[2], sys.argv[3] == 'root')"
    )
    package = str(Path(__file__).parents[3])
    try:
        folder = home / "sandboxes" / f".new-{Owner.me()}-{secrets.token_hex(4)}"  # as `reap` knows them
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", code, package, str(folder), "root" if privileged() else "user"],
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        return f"The process sandbox could not be tried: {e}.", f"Check that {home} can be written."
    if done.returncode == 0:
        return None
    step, _, error = done.stdout.strip().partition(": ")
    error = error or done.stderr.strip()[-300:]
    return _explain(step, error, home)


def _explain(step: str, error: str, home: Path) -> tuple[str, str]:
    if step == "user namespace":
        return (
            f"This machine gives ordinary users no user namespaces ({error}).{_forbidden_by()}",
            "Run as root, let an administrator allow them, or choose a sandbox that uses containers.",
        )
    if step == "overlay":
        old = "" if privileged() else f", and for ordinary users before Linux 5.11 (this is {platform.release()})"
        return (
            f"The kernel refuses an overlay whose upper folder is {home} ({error}): so it does for a container's own "
            f"file system, for NFS and the like{old}.",
            "Set HARBOR_ASSETS_HOME to a folder on a local disk, a tmpfs or a volume.",
        )
    if step == "attributes":
        return (
            f"The file system of {home} keeps no extended attributes ({error}), which overlays need.",
            "Set HARBOR_ASSETS_HOME to a folder on a local disk (ext4, xfs, btrfs).",
        )
    if step == "folder":
        return f"The home {home} cannot be written ({error}).", "Set HARBOR_ASSETS_HOME to a folder of yours."
    return (
        f"The kernel refuses what the process sandbox needs: {step or 'namespaces'} ({error}).",
        "Run on the machine itself rather than in a container, or choose a sandbox that uses containers.",
    )


def _forbidden_by() -> str:
    for name, value in (
        ("kernel.apparmor_restrict_unprivileged_userns", "1"),
        ("kernel.unprivileged_userns_clone", "0"),
        ("user.max_user_namespaces", "0"),
    ):
        try:
            if Path("/proc/sys", name.replace(".", "/")).read_text().strip() == value:
                return f" The setting is {name} = {value}."
        except OSError:
            continue
    return ""
