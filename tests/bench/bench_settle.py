"""How long settling a run takes (account, merge, report, tables), and how much memory: small runs against a large one.

    uv run python tests/bench/bench_settle.py [TRIALS ...]

Each trial has a row in a real catalog and the files of a real trial in a real artifact store; ten attempts a task.
Peak memory is that of a process which does nothing but settle, beside one that only opens the same stores.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harbor_assets.domain.outcomes import Reason
from tests.fakes.accounts import FILES, make_plan, make_row

SIZES = [int(argument) for argument in sys.argv[1:]] or [10, 1_000, 10_000]
ATTEMPTS = 10
SETTLE = """
import json, resource, sys, time
from harbor_assets.wiring import local_services
services = local_services()
services.catalog.get_run(sys.argv[1])
opened = resource.getrusage(resource.RUSAGE_SELF)
start = time.monotonic()
settled = services.engine.settle(sys.argv[1])
wall, used = time.monotonic() - start, resource.getrusage(resource.RUSAGE_SELF)
assert settled.error is None, settled.error
print(json.dumps({
    "wall": wall,
    "cpu": used.ru_utime + used.ru_stime - opened.ru_utime - opened.ru_stime,
    "opened": opened.ru_maxrss / 1024,
    "peak": used.ru_maxrss / 1024,
}))
"""


def prepare(home: Path, run_id: str, trials: int) -> Path:
    """A run whose trials have all ended; returns its bundle's folder."""
    from harbor_assets.wiring import local_services

    os.environ["HARBOR_ASSETS_HOME"] = str(home)
    services = local_services()
    names = [f"task-{i:05d}" for i in range(max(1, trials // ATTEMPTS))]
    plan = make_plan(names, n_attempts=ATTEMPTS, run_id=run_id)
    services.catalog.add_run(plan, request_digest="0" * 64)
    bundle = home / "artifacts" / "runs" / run_id / "agent-eval-results"
    for task in plan.tasks:
        for k in range(1, ATTEMPTS + 1):
            ended = Reason.REWARD_MISSING if k == ATTEMPTS else float(k % 2)
            row = make_row(plan, task.index, k, ended)
            services.catalog.add_outcome(row)
            for path, size in FILES:
                file = bundle / str(row.evidence) / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(b"x" * min(size, 200))
    return bundle


def main() -> None:
    print(f"{os.cpu_count()} cores; load average before: {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        for n, trials in enumerate(SIZES):
            home, run_id = Path(folder) / "home", f"run-{n + 1:016x}"
            start = time.monotonic()
            bundle = prepare(home, run_id, trials)
            prepared = time.monotonic() - start
            done = subprocess.run([sys.executable, "-c", SETTLE, run_id], capture_output=True, text=True, check=True)
            told = json.loads(done.stdout.splitlines()[-1])
            report = (bundle / "report.html").stat().st_size / 1e6
            print(
                f"{trials:>6} trials   wall {told['wall']:6.2f} s   cpu {told['cpu']:6.2f} s   "
                f"peak {told['peak']:5.0f} MB (stores opened: {told['opened']:.0f} MB)   report {report:.1f} MB   "
                f"prepared in {prepared:.0f} s"
            )


if __name__ == "__main__":
    main()
