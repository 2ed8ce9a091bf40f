"""How long the partitions page of `trial_results` takes in Chromium: with many past runs, and after retiring them.

    uv run python tests/bench/bench_pages.py [PARTITIONS [KEPT ...]]

Each figure is of a page opened anew, from asking for it until list and counts stand. In between, the policy that every
run's end applies (`events/retention.py`) is timed on its own.
"""

import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

PARTITIONS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
KEPT = [int(argument) for argument in sys.argv[2:]] or [5_000]
TASKS, OPENED, PATIENCE = 100, 3, 180.0  # tasks of a run; times a page is opened; seconds for one
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--window-size=1400,900"]


def fill(home: Path) -> None:
    """Past runs of 100 tasks each, every second task materialised."""
    import dagster as dg

    from harbor_assets.partitions import RUN_TASKS, run_task_key

    with dg.DagsterInstance.get() as instance:
        runs = [f"run-{run:016x}" for run in range(PARTITIONS // TASKS)]
        keys = [run_task_key(run, index) for run in runs for index in range(TASKS)]
        for batch in itertools.batched(keys, 1000):
            instance.add_dynamic_partitions(str(RUN_TASKS.name), list(batch))
        for key in keys[:: max(2, len(keys) // 1000)]:  # an event costs 16 ms: a thousand stand for all
            instance.report_runless_asset_event(dg.AssetMaterialization("trial_results", partition=key))


def retired(keep: int) -> str:
    """Apply the policy; what it says, and seconds."""
    import dagster as dg

    from harbor_assets.events.retention import retire

    with dg.DagsterInstance.get() as instance:
        began = time.monotonic()
        done = retire(instance, keep=keep, active=(), lock=nullcontext)
        return f"{done}: {time.monotonic() - began:.2f} s"


class Browser:
    """Headless Chromium by its own protocol."""

    def __init__(self, socket: Any) -> None:
        self._socket, self._numbers = socket, itertools.count(1)

    def ask(self, method: str, **parameters: Any) -> Any:
        """One call; its result. Events meanwhile are dropped."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            told = json.loads(self._socket.recv())
            if told.get("id") == number:
                return told["result"]

    def opened(self, url: str, words: str) -> float:
        """Seconds until the page shows these words."""
        self.ask("Page.navigate", url="about:blank")
        began = time.monotonic()
        self.ask("Page.navigate", url=url)
        shows = f"document.body?.innerText.includes({json.dumps(words)})"
        while time.monotonic() - began < PATIENCE:
            if (self.ask("Runtime.evaluate", expression=shows))["result"].get("value"):
                return time.monotonic() - began
            time.sleep(0.05)
        sys.exit(f"{url} did not show {words!r} within {PATIENCE:.0f} s")


def figures(chromium: str, url: str, profile: Path) -> None:
    """Open the page with all keys, then with as many as each policy keeps."""
    argv = [chromium, *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-port=0", "about:blank"]
    browser = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        assert browser.stderr
        port = next(found[1] for line in browser.stderr if (found := re.search(r"ws://127.0.0.1:(\d+)/", line)))
        where = page_of(int(port))
        with connect(where, max_size=None, ping_interval=None) as connection:
            page = Browser(connection)
            for count in (PARTITIONS, *KEPT):
                if count < PARTITIONS:
                    print(retired(count))
                took = [page.opened(url, f"{count:,} Partitions Selected") for _ in range(OPENED)]
                load = os.getloadavg()[0]
                print(f"{count:>6} partitions: {', '.join(f'{seconds:.1f}' for seconds in took)} s (load {load:.0f})")
    finally:
        browser.terminate()
        browser.wait()


def page_of(port: int) -> str:
    """The address of the browser's one page."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as answer:
        return next(entry["webSocketDebuggerUrl"] for entry in json.load(answer) if entry["type"] == "page")


def main() -> None:
    chromium = shutil.which("chromium") or sys.exit("needs Chromium")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, socket.socket() as probe:
        home = Path(folder) / "home"
        os.environ.update(HARBOR_ASSETS_HOME=str(home), DAGSTER_HOME=str(home / "dagster"), HARBOR_TELEMETRY="0")
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        from harbor_assets.local.instance import prepare_instance
        from harbor_assets.settings import Settings

        settings = Settings.load()
        settings.prepare_home()
        prepare_instance(settings)
        fill(home)
        words = [sys.executable, "-m", "harbor_assets", "ui", "--port", str(port)]
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as ui:
            assert ui.stderr
            try:
                next(line for line in ui.stderr if line.startswith("Dagster UI: "))
                url = f"http://127.0.0.1:{port}/assets/trial_results?view=partitions"
                figures(chromium, url, Path(folder) / "profile")
            finally:
                ui.terminate()


if __name__ == "__main__":
    main()
