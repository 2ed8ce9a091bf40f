"""What the tests ask of a deployment, from inside of it: a line of JSON in, a line of JSON out, for as long as somebody
asks. Starting it costs some seconds of CPU."""

import asyncio
import json
import secrets
import subprocess
import sys
import traceback
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")

from harbor_assets.domain.plans import AgentSpec, PlannedTask, RunPlan, SandboxChoice  # noqa: E402
from harbor_assets.settings import Settings  # noqa: E402
from harbor_assets.wiring import wire  # noqa: E402

services = wire(Settings.load())


def publish(tasks: int) -> Any:
    root = Path("/tmp/suite")
    for i in range(tasks):
        folder = root / f"t{i:02d}"
        (folder / "environment").mkdir(parents=True, exist_ok=True)
        (folder / "tests").mkdir(exist_ok=True)
        (folder / "task.toml").write_text('version = "1.0"\n')
        (folder / "instruction.md").write_text("Sleep.\n")
        (folder / "environment" / "Dockerfile").write_text("FROM debian:bookworm-slim\n")
        (folder / "tests" / "test.sh").write_text("#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n")
    words = [sys.executable, "-m", "harbor_assets", "tasksets", "create", "--harbor-dir", str(root), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def submit(taskset: str, tasks: int, image: str | None = None, **options: Any) -> Any:
    """Scripted trials; with `image`, real ones in it, whether there is such an image or not."""
    script, changes = options.pop("script", {}), options
    workspace, rest = taskset.split("/", 1)
    members = services.catalog.get_pinned_tasks(services.catalog.get_taskset(workspace, *rest.split("#")).tasks)
    plan = RunPlan(
        run_id=f"run-{secrets.token_hex(8)}",
        workspace=workspace,
        owner="test",
        created_at=datetime.now(UTC),
        taskset_ref=taskset,
        tasks=tuple(
            PlannedTask(
                index=i,
                name=task.name,
                native_task_id=task.harbor.native_task_id,
                ref=task.ref,
                fileset_ref=task.harbor.source.fileset_ref,
                files_hash=task.harbor.source.files_hash,
                trial_key="0" * 64,
                images={"agent": image} if image else {},
            )
            for i, task in enumerate(sorted(members, key=lambda t: t.name)[:tasks])
        ),
        agent=AgentSpec(name="oracle") if image else AgentSpec(name="nop", kwargs=script),
        sandbox=SandboxChoice(kind="kubernetes" if image else "process", why="test"),
        harbor_version="0",
        harbor_assets_version="0",
        **changes,
    )
    services.catalog.add_run(plan, request_digest=secrets.token_hex(32))
    return {"run": plan.run_id, "started": services.executions.start(plan.run_id)}


def start(run: str) -> Any:
    return services.executions.start(run)


def materialised(asset: str) -> Any:
    import dagster as dg

    return sorted(services.cluster_executions.instance.get_materialized_partitions(dg.AssetKey(asset)))


def status(run: str) -> Any:
    it = services.catalog.get_run(run)
    rows = services.catalog.outcomes(run)
    return {
        "phase": it.phase,
        "state": it.result_state,
        "error": it.error,
        "executions": it.executions,
        "lost_workers": it.lost_workers,
        "outcomes": [
            {
                "index": r.index,
                "k": r.k,
                "outcome": r.outcome,
                "reason": r.reason,
                "message": r.message,
                "tries": len(r.tries),
                "evidence": r.evidence,
            }
            for r in rows
        ],
        "tries": [len(v) for v in services.catalog.tries(run).values()],
        "dagster": [
            {
                "id": r.run_id,
                "status": r.status.value,
                "execution": r.tags.get("harbor/execution"),
                "phase": r.tags.get("harbor/phase"),
            }
            for r in services.cluster_executions.executions(run)
        ],
    }


def partitions(run: str) -> Any:
    import dagster as dg
    from dagster._core.loader import LoadingContextForTest
    from dagster._core.storage.partition_status_cache import get_partition_subsets

    from harbor_assets.partitions import RUN_TASKS

    instance = services.cluster_executions.instance
    found = asyncio.run(
        get_partition_subsets(
            instance, LoadingContextForTest(instance), dg.AssetKey("trial_results"), instance, RUN_TASKS
        )
    )
    keys = [sorted(k for k in (s.get_partition_keys() if s else []) if k.startswith(run)) for s in found]
    bundle = instance.get_materialized_partitions(dg.AssetKey("merged_bundle"))
    return {**dict(zip(("ok", "failed", "in_progress"), keys, strict=True)), "bundle": run in bundle}


def events(run: str) -> Any:
    instance = services.cluster_executions.instance
    return [
        [e.timestamp, e.dagster_event.event_type_value, e.dagster_event.step_key, (e.dagster_event.message or "")[:300]]
        for r in services.cluster_executions.executions(run)
        for e in instance.all_logs(r.run_id)
        if e.dagster_event
    ]


def play(run: str, indexes: list[int]) -> Any:
    """These tasks' workers have scored their one trial: what each would have told catalog and Dagster."""
    import dagster as dg
    from dagster._core.execution.plan.objects import StepSuccessData
    from dagster._core.execution.plan.outputs import StepOutputData, StepOutputHandle

    from harbor_assets.domain.endings import Ending
    from harbor_assets.domain.outcomes import Reason
    from harbor_assets.engine.account import row

    plan, instance = services.catalog.get_run(run).plan, services.cluster_executions.instance
    (dagster_run,) = services.cluster_executions.unfinished(run)
    for index in indexes:
        services.catalog.add_try(run, index, 1, datetime.now(UTC), "played")
        services.catalog.add_outcome(row(plan, plan.task(index), 1, Ending(Reason.GRADED, reward=1.0)))
        key = f"trial_results.trial[t{index:05d}]"
        output = StepOutputData(step_output_handle=StepOutputHandle(key, "result"))
        for kind, data in (("STEP_START", None), ("STEP_OUTPUT", output), ("STEP_SUCCESS", StepSuccessData(1.0))):
            event = dg.DagsterEvent(kind, dagster_run.job_name, step_key=key, event_specific_data=data)
            instance.report_dagster_event(event, dagster_run.run_id)
    return len(indexes)


def bundle(run: str) -> Any:
    return [path for path, _ in services.artifacts.list(f"runs/{run}/agent-eval-results")]


def read(run: str, path: str) -> Any:
    """A file of the run's bundle."""
    with services.artifacts.open(f"runs/{run}/agent-eval-results/{path}") as file:
        return file.read().decode()


def serve() -> None:
    """Answer `[function, arguments]` with `{"answer": ...}` or `{"error": ...}`. What is printed on the way is not for
    whoever asks."""
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        function, arguments = json.loads(line)
        try:
            said = {"answer": globals()[function](**arguments)}
        except Exception:
            said = {"error": traceback.format_exc()}
        answers.write(json.dumps(said, default=str) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve()
