"""Twenty hello-world trials, four at a time: ours against Harbor's own runner, and what we cost beside a trial.

    uv run python tests/bench/bench_trials.py                # ours, and the same trials by Harbor's library alone
    uv run python tests/bench/bench_trials.py --podman       # and in podman, by us and by Harbor

The podman comparison needs podman, a `podman-compose` on PATH and a local image `debian:bookworm-slim`.

CPU counts everything the command started, the detached worker and the sandboxes too. The cost of a trial is the slope:
(20 trials - 1 trial) / 19, so that imports and the like stand apart. "Library alone" is `Trial.create` and
`trial.run()` in the same sandbox in one process, with no catalog, no Dagster, no evidence kept.
"""

import argparse
import ctypes
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import Sample

TASKS, AT_ONCE = 20, 4
PR_SET_CHILD_SUBREAPER = 36
COMMAND = [sys.executable, "-m", "harbor_assets"]
LIBRARY = """
import asyncio, sys
from pathlib import Path
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from harbor.trial.trial import Trial

async def main(root, out, home, n):
    gate = asyncio.Semaphore(n)
    env = EnvironmentConfig(import_path="harbor_assets.sandboxes.process.environment:ProcessEnvironment",
                            kwargs={"home": home})
    async def one(task):
        async with gate:
            config = TrialConfig(task=TaskConfig(path=task), trial_name=task.name, trials_dir=Path(out),
                                 agent=AgentConfig(name="oracle"), environment=env)
            result = await (await Trial.create(config)).run()
            assert result.verifier_result.rewards == {"reward": 1.0}, result.exception_info
    await asyncio.gather(*(one(p) for p in sorted(Path(root).iterdir())))

asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
"""


def suite(root: Path, tasks: int, *, public: bool = False) -> Path:
    """Copies of hello-world. `public`: with a network, since Harbor's podman class refuses what must have none."""
    from harbor_assets.examples import hello_world

    task = next(path.parent for path in hello_world().glob("*/task.toml"))
    for i in range(tasks):
        copy = root / f"hello-{i:02d}"
        shutil.copytree(task, copy)
        config = copy / "task.toml"
        text = config.read_text().replace("harbor/hello-world", f"bench/hello-{i:02d}")
        config.write_text(text.replace('"no-network"', '"public"') if public else text)
    return root


def timed(argv: list[str], env: dict[str, str]) -> tuple[Sample, str]:
    """Wall seconds until the command returns; CPU of it and of everything it left behind, which is waited for."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(argv, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    wall = time.monotonic() - start
    if done.returncode:
        sys.exit(f"{' '.join(argv)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Sample(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime), done.stdout


def ours(folder: Path, tasks: int, sandbox: str = "process") -> tuple[Sample, float]:
    env = {"HARBOR_ASSETS_HOME": str(folder / "home")}
    root = suite(folder / f"suite-{sandbox}-{tasks}", tasks, public=sandbox == "podman")
    argv = [*COMMAND, "runs", "submit", "--harbor-dir", str(root), "--sandbox", sandbox, "--wait", "--json"]
    argv += ["--n-concurrent", str(AT_ONCE)]
    sample, out = timed(argv, env)
    run_id = json.loads(out)["run"]["id"]
    _, listed = timed([*COMMAND, "runs", "tasks", run_id, "--json"], env)
    trials = sum(o["duration_sec"] or 0.0 for task in json.loads(listed)["data"] for o in task["outcomes"])
    return sample, trials


def library(folder: Path, tasks: int) -> Sample:
    root, home = suite(folder / f"library-{tasks}", tasks), folder / "library-home"
    home.mkdir(exist_ok=True)
    return timed([sys.executable, "-c", LIBRARY, str(root), str(folder / f"out-{tasks}"), str(home), str(AT_ONCE)], {})[
        0
    ]


def podman(folder: Path) -> Sample:
    root = suite(folder / "podman", TASKS, public=True)
    argv = [str(Path(sys.executable).with_name("harbor")), "run", "-p", str(root), "-a", "oracle", "-e", "podman"]
    return timed([*argv, "-n", str(AT_ONCE), "-o", str(folder / "jobs"), "-q", "-y"], {})[0]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--podman", action="store_true", help="also `harbor run -e podman`, which takes minutes")
    args = parser.parse_args()
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        sys.exit("this kernel has no subreapers: a detached worker's CPU cannot be counted")
    os.environ.update(HARBOR_TELEMETRY="0", LITELLM_LOCAL_MODEL_COST_MAP="True")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"{os.cpu_count()} cores; load average before: {os.getloadavg()[0]:.1f}")
        ours(folder, 2)  # warms files and the home
        one, one_trial = ours(folder, 1)
        many, trials = ours(folder, TASKS)
        bare_one, bare = library(folder, 1), library(folder, TASKS)
        ideal = trials / AT_ONCE
        print(f"ours, 1 trial: wall {one.wall:.2f} s, cpu {one.cpu:.2f} s; the trial itself {one_trial:.2f} s")
        print(f"ours, {TASKS} trials, {AT_ONCE} at a time: wall {many.wall:.2f} s, cpu {many.cpu:.2f} s")
        print(
            f"  sum of the trials {trials:.2f} s, over {AT_ONCE}: {ideal:.2f} s; beside them {many.wall - ideal:.2f} s"
        )
        per, bare_per = ((a.cpu - b.cpu) / (TASKS - 1) for a, b in ((many, one), (bare, bare_one)))
        print(f"cpu a trial: ours {per:.3f} s, library alone {bare_per:.3f} s, our cost {per - bare_per:.3f} s")
        print(f"library alone, {TASKS} trials: wall {bare.wall:.2f} s, cpu {bare.cpu:.2f} s")
        if args.podman:
            ours(folder, 1, "podman")  # builds the image
            own, own_trials = ours(folder, TASKS, "podman")
            print(f"ours in podman, {TASKS} trials: wall {own.wall:.1f} s, cpu {own.cpu:.1f} s")
            print(f"  sum of the trials {own_trials:.1f} s, over {AT_ONCE}: {own_trials / AT_ONCE:.1f} s")
            other = podman(folder)
            print(f"harbor run -e podman, {TASKS} trials: wall {other.wall:.1f} s, cpu {other.cpu:.1f} s")
            print(f"  to ours in podman {other.wall / own.wall:.1f}, to process {other.wall / many.wall:.1f}")


if __name__ == "__main__":
    main()
