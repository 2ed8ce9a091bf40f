"""How long the partitions page of `trial_results` takes in Chromium: with many past runs, and after retiring them.

    uv run python tests/bench/bench_pages.py [PARTITIONS [KEPT ...]]

Each figure is of a page opened anew, from asking for it until list and counts stand. In between, the policy that every
run's end applies (`events/retention.py`) is timed on its own.
"""

import itertools
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

from tests.chromium import CHROMIUM, browser

PARTITIONS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
KEPT = [int(argument) for argument in sys.argv[2:]] or [5_000]
TASKS, OPENED, PATIENCE = 100, 3, 180.0  # tasks of a run; times a page is opened; seconds for one


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


def figures(url: str, profile: Path) -> None:
    """Open the page with all keys, then with as many as each policy keeps."""
    with browser(profile, "--window-size=1400,900") as page:
        for count in (PARTITIONS, *KEPT):
            if count < PARTITIONS:
                print(retired(count))
            took = [page.opened(url, f"{count:,} Partitions Selected", PATIENCE) for _ in range(OPENED)]
            load = os.getloadavg()[0]
            print(f"{count:>6} partitions: {', '.join(f'{seconds:.1f}' for seconds in took)} s (load {load:.0f})")


def main() -> None:
    if CHROMIUM is None:
        sys.exit("needs Chromium")
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
                figures(url, Path(folder) / "profile")
            finally:
                ui.terminate()


if __name__ == "__main__":
    main()
