"""Running Dagster's web server and daemon as children of one command, and stopping both together.

What the two say goes to a log file: on the terminal their notices would bury the one line that matters, the URL.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from harbor_assets.domain.errors import Refused, ServiceUnavailable
from harbor_assets.interfaces.addresses import loopback
from harbor_assets.interfaces.cli.edge import INTERRUPTED
from harbor_assets.interfaces.cli.listening import check_free
from harbor_assets.interfaces.cli.output import note
from harbor_assets.interfaces.cli.service import take_up_lost_runs
from harbor_assets.interfaces.cli.session import open_session
from harbor_assets.interfaces.cli.signals import remembered
from harbor_assets.local import locks
from harbor_assets.local.instance import open_instance
from harbor_assets.settings import Settings

# The same content as workspace.yaml of the repository; a test keeps the two equal. The location's name stands in every
# run the worker made: under another name the UI would not know them as its own, and would not offer to stop them.
WORKSPACE = """\
load_from:
  - python_module:
      module_name: harbor_assets.definitions
      location_name: harbor_assets
"""
LOCK = "ui"  # two daemons on one instance would run every sensor twice
LOG = "ui.log"
START_SECONDS = 120.0  # 4 s on an idle machine; a loaded one may take far longer, and says so in the log meanwhile
STOP_SECONDS = 15.0  # both end their own code servers first, which takes some seconds
POLL_SECONDS = 0.2
LINES_SHOWN = 15  # of the log, when one of the two fails

_PR_SET_PDEATHSIG = 1

type Child = tuple[str, subprocess.Popen[bytes]]


def serve(host: str, port: int, *, allow_remote: bool = False) -> int:
    """Serve until interrupted. Returns the exit code: 0, or 130 if interrupted before the pages answered.

    Raises `Refused` before anything is started: for an address that others reach unless that is allowed, a taken port,
    a home whose UI is served already. Raises `ServiceUnavailable` if one of the two ends by itself.
    """
    settings = Settings.load()
    if not loopback(host) and not (allow_remote or settings.allow_remote):
        raise Refused(
            f"{host} is an address that other machines reach, and Dagster's pages have no authentication: whoever "
            "reaches the port could start, cancel and read runs. Listen on 127.0.0.1, or say --insecure-no-auth where "
            "a firewall decides who reaches it"
        )
    with open_session(local=True):  # makes the home; runs that lost their worker go on, as with every command
        pass
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    with ExitStack() as stack:
        stack.enter_context(_only_one(settings, url))
        check_free(host, port, "ui")
        open_instance(settings).dispose()
        asked = stack.enter_context(remembered(signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        path = settings.logs / LOG
        log = stack.enter_context(path.open("wb"))
        note(f"Starting the Dagster UI of {settings.home} (log: {path})")
        children: list[Child] = []
        stack.callback(_stop, children)
        for name, words in _programs(settings, host, port).items():
            children.append((name, _start(words, settings, log)))
        if not _until_it_answers(host, port, lambda: asked() or _check(children, path)):
            return INTERRUPTED
        note(f"Dagster UI: {url} (Ctrl-C stops it; runs go on)")
        stack.enter_context(_lost_runs_go_on(settings))
        while not asked():
            _check(children, path)
            time.sleep(POLL_SECONDS)
    return 0


def ui_address(settings: Settings) -> str | None:
    """Where the Dagster UI of this home is served now; None if it is not, or nobody here knows."""
    if not locks.held(settings.locks, LOCK):
        return None
    said = (settings.locks / LOCK).read_text(encoding="utf-8", errors="replace")
    return said if said.startswith("http") else None


@contextmanager
def _only_one(settings: Settings, url: str) -> Iterator[None]:
    fd = locks.hold(settings.locks, LOCK)
    if fd is None:
        where = (settings.locks / LOCK).read_text(encoding="utf-8", errors="replace") or "another port"
        raise Refused(
            f"The Dagster UI of {settings.home} is being served already, at {where}; open that, or stop it first with "
            "Ctrl-C where it runs"
        )
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, url.encode(), 0)
        yield
    finally:
        os.close(fd)


def _programs(settings: Settings, host: str, port: int) -> dict[str, Sequence[str]]:
    workspace = settings.dagster / "workspace.yaml"
    workspace.write_text(WORKSPACE, encoding="utf-8")
    python = (sys.executable, "-P", "-m")
    return {
        "dagster-webserver": (*python, "dagster_webserver", "-w", str(workspace), "-h", host, "-p", str(port)),
        "dagster-daemon": (*python, "dagster._daemon", "run", "-w", str(workspace)),
    }


def _start(words: Sequence[str], settings: Settings, log: BinaryIO) -> subprocess.Popen[bytes]:
    libc, parent = ctypes.CDLL(None, use_errno=True), os.getpid()

    def die_with_us() -> None:
        # Told to end as by us if we are killed ourselves; both then end their code servers too.
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)

    # A session each, so that Ctrl-C reaches them once, through us. They stand in the instance's folder: a folder
    # `resources` or `sensors` where the user stands must not be taken for ours.
    return subprocess.Popen(
        words,
        env={**settings.for_worker(os.environ), "DAGSTER_HOME": str(settings.dagster)},
        cwd=settings.dagster,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        preexec_fn=die_with_us,
    )


def _check(children: Sequence[Child], log: Path) -> bool:
    for name, child in children:
        if child.poll() is not None:
            last = b"\n".join(log.read_bytes().splitlines()[-LINES_SHOWN:]).decode(errors="replace")
            raise ServiceUnavailable(f"{last}\n{name} ended by itself with status {child.returncode}; see {log}")
    return False


def _until_it_answers(host: str, port: int, given_up: Callable[[], bool]) -> bool:
    """Wait for the first answer; False if asked to stop before."""
    import http.client

    # What listens on every address is asked at the machine's own.
    asked_at = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 nothing is bound here
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if given_up():
            return False
        connection = http.client.HTTPConnection(asked_at, port, timeout=5)
        try:
            connection.request("GET", "/server_info")
            if connection.getresponse().status == http.HTTPStatus.OK:
                return True
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()
        time.sleep(POLL_SECONDS)
    raise ServiceUnavailable(f"Dagster's web server did not answer within {START_SECONDS:.0f} s; its log says why")


@contextmanager
def _lost_runs_go_on(settings: Settings) -> Iterator[None]:
    from harbor_assets.wiring import wire

    stop = threading.Event()
    keeper = threading.Thread(target=take_up_lost_runs, args=(wire(settings).evaluations, stop), daemon=True)
    keeper.start()
    try:
        yield
    finally:
        stop.set()
        keeper.join(STOP_SECONDS)


def _stop(children: Sequence[Child]) -> None:
    for _, child in children:
        child.send_signal(signal.SIGINT)
    until = time.monotonic() + STOP_SECONDS
    for name, child in children:
        with suppress(subprocess.TimeoutExpired):
            child.wait(max(0.0, until - time.monotonic()))
        if child.poll() is None:
            note(f"{name} did not stop within {STOP_SECONDS:.0f} s; it is killed")
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # its code server too, where it did not take that along
        child.wait()
