"""Nothing is left behind: who owns a container, and what removes it when the owner is gone.

Three nets, one under the other. A watcher process ends with its worker's pipe, whatever killed the worker, and removes
what the worker had. The next command finds the lock of a dead owner free and does the same (`reap`). And a container
ends by itself at its deadline.
"""

import atexit
import contextlib
import fcntl
import hashlib
import os
import secrets
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from harbor_assets.domain.errors import ServiceUnavailable
from harbor_assets.sandboxes.engines.cli import KINDS, Engine
from harbor_assets.sandboxes.engines.container import LABEL, LABEL_HOME, LABEL_OWNER

# A container that was being made when its worker died may appear a moment later: so it looks three times.
_WATCH = """
read -r word; [ "$word" = done ] && exit
n=0
while [ $n -lt 3 ]; do
  ids=$("$1" ps -aq --filter "label=$2") || exit
  [ -n "$ids" ] && "$1" rm -f -v $ids
  ids=$("$1" network ls -q --filter "label=$2") && [ -n "$ids" ] && "$1" network rm $ids
  n=$((n + 1))
  sleep 1
done
rm -f "$3"
"""
_PATIENCE_SECONDS = 60.0


class Guard:
    """The containers of this process on one engine. Made once for each home and engine; see `guard`."""

    def __init__(self, home: Path, engine: Engine) -> None:
        self.owner = secrets.token_hex(8)
        self.labels = {LABEL: "sandbox", LABEL_HOME: home_label(home), LABEL_OWNER: self.owner}
        self._path = guard_folder(home) / f"{engine.kind}-{self.owner}"
        self._lock = _held(self._path)
        self._watcher = subprocess.Popen(
            ["sh", "-c", _WATCH, "sh", engine.command, f"{LABEL_OWNER}={self.owner}", str(self._path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # what ends us by our group must not end it
            cwd="/",
        )
        self._pid, self._left = os.getpid(), 0
        atexit.register(self._done)

    def began(self) -> None:
        """A container is about to be made."""
        self._left += 1

    def ended(self) -> None:
        """It is known to be removed."""
        self._left -= 1

    def _done(self) -> None:
        """At the end of the process: with nothing left there is nothing to watch."""
        if os.getpid() != self._pid or self._left or self._watcher.stdin is None:
            return
        with contextlib.suppress(OSError):
            self._watcher.stdin.write(b"done\n")
            self._watcher.stdin.close()
            self._path.unlink(missing_ok=True)


def guard_folder(home: Path) -> Path:
    """Where the locks of owners lie; made by `guard` and `alone`."""
    return home.absolute() / "engines"


_guards: dict[tuple[Path, str], Guard] = {}


def guard(home: Path, engine: Engine) -> Guard:
    """The guard of this process."""
    key = (home.absolute(), engine.command)
    found = _guards.get(key)
    if found is None or found._pid != os.getpid():
        found = _guards[key] = Guard(home.absolute(), engine)
    return found


def home_label(home: Path) -> str:
    """Which home a container belongs to: an engine may serve several, of several machines."""
    return hashlib.sha256(f"{socket.gethostname()}:{home.absolute()}".encode()).hexdigest()[:16]


def reap(home: Path) -> list[str]:
    """Remove containers and networks of dead workers of this home; returns what was removed.

    Costs nothing where no worker died. What an engine that does not answer may hold is left for the next call.
    """
    gone: list[str] = []
    with contextlib.suppress(FileNotFoundError):
        for path in sorted(guard_folder(home).iterdir()):
            kind, _, owner = path.name.partition("-")
            if kind in KINDS and owner:
                with _if_dead(path) as dead, contextlib.suppress(ServiceUnavailable):
                    if dead:
                        gone += _remove(Engine(kind), owner)
                        path.unlink(missing_ok=True)
    return gone


def _remove(engine: Engine, owner: str) -> Iterator[str]:
    mine = ("--filter", f"label={LABEL_OWNER}={owner}")
    for what, listing, removing in (
        ("container", ("ps", "-a", *mine, "--format", "{{.Names}}"), ("rm", "-f", "-v")),
        ("network", ("network", "ls", *mine, "--format", "{{.Name}}"), ("network", "rm")),
    ):
        listed = engine.call(*listing)
        if listed.code:
            raise ServiceUnavailable(f"{engine.kind} does not answer: {listed.said}")
        for name in listed.text.split():
            removed = engine.call(*removing, name, seconds=_PATIENCE_SECONDS)
            if removed.code and not removed.no_such:
                raise ServiceUnavailable(f"the {what} {name} could not be removed: {removed.said}")
            yield f"{engine.kind} {what} {name}"


@contextlib.contextmanager
def _if_dead(path: Path) -> Iterator[bool]:
    """Whether nobody holds that file; nobody else reaps it meanwhile."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield False
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(fd)


def _held(path: Path) -> int:
    """The descriptor of a new locked file: it appears under its name only when it is held."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}")
    fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    new.rename(path)
    return fd


@contextlib.contextmanager
def alone(home: Path, name: str) -> Iterator[None]:
    """One process of this home at a time, for what must not be done twice."""
    folder = guard_folder(home)
    folder.mkdir(parents=True, exist_ok=True)
    fd = os.open(folder / f".{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
