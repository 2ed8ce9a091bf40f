"""How long publishing a suite takes: the first time, again without a change, after one change, and with `--rehash`.

    uv run python tests/bench/bench_publish.py [TASKS] [RUNS]

Beside it: Harbor's own loader and packager over the same tasks, which is what "unchanged" costs without a cache.
"""

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from measure import Sample, line, median, run

from tests.suites.make import make_suite

TASKS = int(sys.argv[1]) if len(sys.argv) > 1 else 500
RUNS = int(sys.argv[2]) if len(sys.argv) > 2 else 3
HARBOR = """
import sys, pathlib
from harbor.models.task.task import Task
from harbor.publisher.packager import Packager
for folder in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    assert Task.is_valid_dir(folder)
    Task(folder)
    Packager.compute_content_hash(folder)
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        suite = make_suite(Path(folder) / "suite", TASKS)
        time.sleep(2.5)  # files younger than two seconds are not cached, and nobody publishes that soon
        # An installed program has its bytecode; kept apart, so that nothing is written beside the sources.
        env = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": f"{folder}/bytecode"}

        def publish(source: Path, *flags: str) -> Sample:
            create = [sys.executable, "-m", "harbor_assets", "tasksets", "create", "--harbor-dir", str(source), *flags]
            return run(create, env | {"HARBOR_ASSETS_HOME": f"{folder}/home"})

        publish(make_suite(Path(folder) / "warm-up", 1))
        print(f"{TASKS} small tasks, {os.cpu_count()} cores; load average before: {os.getloadavg()[0]:.1f}")
        first = publish(suite)
        unchanged = [publish(suite) for _ in range(RUNS)]
        (suite / "task-000" / "instruction.md").write_text("Something else\n")
        one = publish(suite)
        harbor = run([sys.executable, "-c", HARBOR, str(suite)], env)
        line("first", [first])
        line("unchanged", unchanged)
        line("one task changed", [one])
        line("unchanged, --rehash", [publish(suite, "--rehash")])
        line("Harbor's loader and packager alone", [harbor])
        ratio("unchanged : first", unchanged, [first])
        ratio("unchanged : Harbor's loader and packager", unchanged, [harbor])


def ratio(name: str, ours: Sequence[Sample], other: Sequence[Sample]) -> None:
    print(f"{name:<52} 1 : {median(other).wall / median(ours).wall:.1f} (wall)")


if __name__ == "__main__":
    main()
