"""How late a trial is to be seen in its Experiment, and what publishing costs.

    uv run python tests/bench/bench_publication.py [TASKS] [CONCURRENCY]

First a real run on this machine: hello-world tasks with `oracle` in the sandbox `process`, published as they end. The
delay is from the end of a trial's last try to the moment its session was stored. The same run without `--experiment`
stands beside it. Then 1,000 sessions with a trace of 60 spans each, put one by one, as CPU seconds for each.
"""

import json
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from measure import Sample, line, run

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
TASKS = int(sys.argv[1]) if len(sys.argv) > 1 else 40
AT_ONCE = int(sys.argv[2]) if len(sys.argv) > 2 else 4
COMMAND = [sys.executable, "-m", "harbor_assets"]
SESSIONS, STEPS = 1000, 20


def submit(env: dict[str, str], suite: Path, *more: str) -> tuple[str, Sample]:
    began = time.monotonic()
    argv = [
        *COMMAND,
        "runs",
        "submit",
        "--harbor-dir",
        str(suite),
        "--sandbox",
        "process",
        "-n",
        str(AT_ONCE),
        "--json",
    ]
    taken = run([*argv, "--wait", *more], env)
    print(f"  {' '.join(more) or 'published nowhere'}: {time.monotonic() - began:.1f} s")
    listed = subprocess.run([*COMMAND, "runs", "list", "--json"], env=env, capture_output=True, text=True, check=True)
    return json.loads(listed.stdout)["data"][0]["id"], taken


def make_experiment(home: Path) -> None:
    from harbor_assets.catalog import open_catalog
    from harbor_assets.domain.experiments import ExperimentInput

    with open_catalog(f"sqlite:///{home / 'catalog.db'}") as catalog:
        catalog.create_experiment("default", ExperimentInput(name="bench"))


def delays(home: Path, run_id: str) -> list[float]:
    """Seconds from each trial's end to its session."""
    from harbor_assets.catalog import open_catalog

    with open_catalog(f"sqlite:///{home / 'catalog.db'}") as catalog:
        rows = {f"{row.run_id}:{row.trial_id}": row for row in catalog.outcomes(run_id)}
        publication = catalog.get_run(run_id).plan.publication
        assert publication
        found: list[float] = []
        page = 1
        while items := catalog.list_sessions("default", publication.evaluation, page=page, page_size=1000).items:
            for session in items:
                end = rows[session.session_id].tries[-1].end
                assert end
                found.append((session.updated_at - end).total_seconds())
            page += 1
        return found


def trajectory() -> bytes:
    steps: list[object] = [{"step_id": 1, "source": "user", "message": "Fix it. " * 100}]
    for number in range(2, STEPS + 2):
        call = {"tool_call_id": "c", "function_name": "bash", "arguments": {"command": "pytest -q " + "x" * 200}}
        steps.append(
            {
                "step_id": number,
                "source": "agent",
                "message": "I look at the tests. " * 20,
                "metrics": {"prompt_tokens": 1000, "completion_tokens": 50, "cost_usd": 0.001},
                "tool_calls": [call, {**call, "tool_call_id": "d"}],
                "observation": {"results": [{"source_call_id": "c", "content": "ok\n" * 500}]},
            }
        )
    agent = {"name": "codex", "version": "1", "model_name": "m"}
    return json.dumps({"schema_version": "ATIF-v1.7", "agent": agent, "steps": steps}).encode()


def sessions(home: Path) -> None:
    """Put many sessions with traces, and read the figures of their evaluation."""
    from harbor_assets.catalog import open_catalog
    from harbor_assets.domain.experiments import ExperimentInput
    from harbor_assets.domain.phases import ResultState, RunPhase
    from harbor_assets.domain.publication import Publication
    from harbor_assets.domain.runs import Run, bundle_key
    from harbor_assets.engine.publication import Publisher
    from tests.fakes.accounts import make_plan, make_row
    from tests.fakes.artifacts import MemoryArtifacts

    artifacts, data = MemoryArtifacts(), trajectory()
    publication = Publication(experiment="e", evaluation="many", dataset="d", dataset_version="1", agent_name="codex")
    plan = make_plan([f"t{number}" for number in range(SESSIONS)], publication=publication)
    now = datetime.now(UTC)
    going = Run(plan=plan, phase=RunPhase.RUNNING, result_state=ResultState.PENDING, created_at=now, started_at=now)
    rows = [make_row(plan, index) for index in range(SESSIONS)]
    for row in rows:
        artifacts.put_bytes(f"{bundle_key(row.run_id)}/{row.evidence}/agent/trajectory.json", data)
    with open_catalog(f"sqlite:///{home / 'many.db'}") as catalog:
        catalog.create_experiment("default", ExperimentInput(name="e"))
        publisher = Publisher(catalog, artifacts)
        publisher.begin(plan)
        wall, cpu = time.monotonic(), time.process_time()
        published = publisher.publish_trials(going, rows)
        wall, cpu = time.monotonic() - wall, time.process_time() - cpu
        assert published.sessions == SESSIONS, published
        spans = len(catalog.session_spans("default", f"{plan.run_id}:{rows[0].trial_id}"))
        print(f"{SESSIONS} sessions of {spans} spans: {1000 * cpu / SESSIONS:.1f} ms CPU each, {wall:.1f} s wall")
        began = time.monotonic()
        figure = catalog.get_evaluation("default", "many").aggregate_scores["harbor_reward.reward"]
        print(f"figures of {figure.count} test cases: {time.monotonic() - began:.3f} s")
        size = (home / "many.db").stat().st_size
        print(
            f"catalog: {size / 1e6:.1f} MB, {size / SESSIONS / 1000:.1f} KB for each; "
            f"a trajectory has {len(data) / 1000:.0f} KB"
        )


def main() -> None:
    from tests.suites.make import make_suite

    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        env = {"HARBOR_ASSETS_HOME": str(home), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HARBOR_TELEMETRY": "0"}
        suite = Path(folder) / "suite"
        make_suite(suite, TASKS)
        submit(env, suite)  # the first of a home makes what the others find
        _, plain = submit(env, suite)
        make_experiment(home)
        run_id, published = submit(env, suite, "--experiment", "bench")
        late = sorted(delays(home, run_id))
        line("published nowhere", [plain])
        line("published", [published])
        p95 = late[min(len(late) - 1, round(0.95 * len(late)))]
        print(
            f"{len(late)} of {TASKS} trials, {AT_ONCE} at a time: seen after {statistics.median(late):.3f} s at the "
            f"median, p95 {p95:.3f} s, {late[-1]:.3f} s at most"
        )
        sessions(Path(folder))
    print(f"SQLite {sqlite3.sqlite_version}, Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
