"""Running Dagster's web server and daemon as children of one command, and stopping both together."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from harbor_assets.domain.errors import ServiceUnavailable
from harbor_assets.interfaces.cli.output import note
from harbor_assets.interfaces.cli.session import open_session
from harbor_assets.interfaces.cli.signals import remembered
from harbor_assets.local.instance import prepare_instance

# The same content as workspace.yaml of the repository; a test keeps the two equal. The location's name stands in every
# run the worker made: under another name the UI would not know them as its own, and would not offer to stop them.
WORKSPACE = """\
load_from:
  - python_module:
      module_name: harbor_assets.definitions
      location_name: harbor_assets
"""
STOP_SECONDS = 15.0  # both end their own code servers first, which takes some seconds
POLL_SECONDS = 0.2

type Child = tuple[str, subprocess.Popen[bytes]]


def serve(host: str, port: int) -> int:
    """Serve until interrupted (exit code 0) or until one of the two ends by itself (raises `ServiceUnavailable`)."""
    with open_session(local=True) as session:  # runs that lost their worker go on, as with every command
        settings = session.settings
    prepare_instance(settings)
    workspace = settings.dagster / "workspace.yaml"
    workspace.write_text(WORKSPACE, encoding="utf-8")
    python = (sys.executable, "-P", "-m")
    programs = {
        "dagster-webserver": (*python, "dagster_webserver", "-w", str(workspace), "-h", host, "-p", str(port)),
        "dagster-daemon": (*python, "dagster._daemon", "run", "-w", str(workspace)),
    }
    environment = {**os.environ, **settings.as_environ(), "DAGSTER_HOME": str(settings.dagster)}
    note(f"Dagster UI of {settings.home}: http://{host}:{port} (Ctrl-C stops it; runs go on)")
    children: list[Child] = []
    with remembered(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as asked:
        try:
            for name, program in programs.items():
                # A session each, so that Ctrl-C reaches them once, through us. They stand in the instance's folder: a
                # folder `resources` or `sensors` where the user stands must not be taken for ours.
                child = subprocess.Popen(program, env=environment, cwd=settings.dagster, start_new_session=True)
                children.append((name, child))
            while not asked():
                for name, child in children:
                    if child.poll() is not None:
                        raise ServiceUnavailable(f"{name} ended by itself with status {child.returncode}; see above")
                time.sleep(POLL_SECONDS)
        finally:
            _stop(children)
    return 0


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
