"""A run of 1,000 trials of which 3 are missing goes on: how long until the first of them begins.

    uv run python tests/bench/bench_resume.py            # 1,000 tasks, 3 missing, 3 rounds

Seconds from the start of `runs resume` to the begin of the first try, beside those from the start of `runs submit
--taskset REF --tasks 0,1,2` on the same taskset: a fresh run of three trials, of which nothing is published or uploaded
either. In between lie the command, a detached worker with Dagster, and the reading of 997 rows. Each resumed run was
submitted, its worker killed before its first trial, and 997 rows written as trials write them, without their files. At
the end it is checked that those rows are what they were, and that nothing but the three was run.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench_trials import COMMAND, suite

from harbor_assets.catalog import open_catalog
from harbor_assets.catalog.store import Catalog
from harbor_assets.domain.endings import Ending
from harbor_assets.domain.outcomes import Measurements, Reason, Try
from harbor_assets.engine.account import row
from harbor_assets.local.dying import FAULT_VARIABLE

PATIENCE_SECONDS = 300.0
POLL_SECONDS = 0.02


def command(home: Path, *words: str, **env: str) -> Any:
    """The JSON that a command answers."""
    done = subprocess.run(
        [*COMMAND, *words, "--json"],
        env={**os.environ, "HARBOR_ASSETS_HOME": str(home), **env},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{words}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def first_try(catalog: Catalog, run_id: str, before: int = 0) -> datetime:
    """When the first try began after those `before`."""
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        begun = sorted(start for starts in catalog.tries(run_id).values() for start, _ in starts)
        if len(begun) > before:
            return begun[before]
        time.sleep(POLL_SECONDS)
    sys.exit(f"no trial of {run_id} began within {PATIENCE_SECONDS:.0f} s")


def ended(catalog: Catalog, run_id: str) -> None:
    """Wait for the run's end."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not catalog.get_run(run_id).phase.terminal:
        if time.monotonic() > until:
            sys.exit(f"{run_id} did not end within {PATIENCE_SECONDS:.0f} s")
        time.sleep(0.2)


def half_done(home: Path, catalog: Catalog, ref: str, missing: int) -> str:
    """A run that lost its worker with all but `missing` of its trials scored."""
    submit = ("runs", "submit", "--taskset", ref, "--sandbox", "process")
    run_id = command(home, *submit, **{FAULT_VARIABLE: "started"})["run"]["id"]
    until = time.monotonic() + PATIENCE_SECONDS
    while catalog.get_run(run_id).executions < 1 and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(1.0)  # it kills itself in the same moment
    now, plan = datetime.now(UTC), catalog.get_run(run_id).plan
    spent = Measurements(runtime_sec=1.0)
    for task in plan.tasks[:-missing]:
        done = Ending(Reason.GRADED, reward=1.0, measurements=spent)
        catalog.add_outcome(row(plan, task, 1, done, tries=[Try(start=now, end=now)]))
    return run_id


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--missing", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-resume-") as scratch:
        home = Path(scratch, "home")
        source = suite(Path(scratch, "suite"), args.tasks)
        ref = command(home, "tasksets", "create", "--harbor-dir", str(source))["taskset_ref"]
        resumed, fresh = list[float](), list[float]()
        with open_catalog(f"sqlite:///{home / 'catalog.db'}") as catalog:
            for _ in range(args.rounds):
                begin = datetime.now(UTC)
                few = ",".join(map(str, range(args.missing)))
                words = ("runs", "submit", "--taskset", ref, "--tasks", few, "--sandbox", "process")
                run_id = command(home, *words)["run"]["id"]
                fresh.append((first_try(catalog, run_id) - begin).total_seconds())
                ended(catalog, run_id)

                run_id = half_done(home, catalog, ref, args.missing)
                kept = [outcome.model_dump_json() for outcome in catalog.outcomes(run_id)]
                begin = datetime.now(UTC)
                assert command(home, "runs", "resume", run_id)["started"]
                resumed.append((first_try(catalog, run_id) - begin).total_seconds())
                ended(catalog, run_id)
                rows = catalog.outcomes(run_id)
                assert [outcome.model_dump_json() for outcome in rows[: -args.missing]] == kept
                assert len(rows) == args.tasks
                assert len(catalog.tries(run_id)) == args.missing
                print(f"resumed {resumed[-1]:.2f} s, fresh {fresh[-1]:.2f} s", flush=True)
    middle, other = statistics.median(resumed), statistics.median(fresh)
    print(f"first of {args.missing} missing trials of {args.tasks}: {middle:.2f} s after `runs resume`")
    print(
        f"first trial of a fresh run of {args.missing}: {other:.2f} s after `runs submit`; ratio {middle / other:.2f}"
    )
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
