"""How long a person waits: `--help`, and `quickstart` in a home that was used before.

    uv run python tests/bench/bench_quickstart.py [RUNS]

CPU seconds of `quickstart` are the command's alone: the detached worker is nobody's child.
"""

import sys
import tempfile

from measure import line, run

RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 5
COMMAND = [sys.executable, "-m", "harbor_assets"]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        env = {"HARBOR_ASSETS_HOME": f"{folder}/home"}
        first = run([*COMMAND, "quickstart"], env)
        line("python -c pass", [run([sys.executable, "-c", "pass"]) for _ in range(RUNS)])
        line("harbor-assets --help", [run([*COMMAND, "--help"], env) for _ in range(RUNS)])
        line("harbor-assets quickstart, first in a home", [first])
        line("harbor-assets quickstart, again", [run([*COMMAND, "quickstart"], env) for _ in range(RUNS)])


if __name__ == "__main__":
    main()
