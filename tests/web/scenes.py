"""Runs with everything a page can show: made through the service, ended by hand."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from harbor_assets.domain.outcomes import Measurements, Reason, Try
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.domain.plans import trial_id
from harbor_assets.domain.requests import RunRequest
from harbor_assets.domain.runs import Run
from harbor_assets.engine.account import evidence_path
from harbor_assets.engine.bundles import BundleMaker
from harbor_assets.engine.ranking import Rankings
from harbor_assets.leaderboard.parquet import ParquetTables
from harbor_assets.leaderboard.store import DuckDbLeaderboard
from harbor_assets.report import HtmlReport
from tests.interfaces.backends import World, outcome, world

START = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
TRAJECTORY = {
    "schema_version": "ATIF-v1.7",
    "session_id": "s",
    "agent": {"name": "terminus-2", "version": "1.2", "model_name": "a-model"},
    "steps": [
        {"step_id": 1, "source": "user", "message": "Make the failing test pass."},
        {
            "step_id": 2,
            "source": "agent",
            "message": "I look at the test first.",
            "reasoning_content": "An import error, perhaps.",
            "tool_calls": [{"tool_call_id": "a", "function_name": "bash", "arguments": {"command": "pytest -q"}}],
            "observation": {"results": [{"source_call_id": "a", "content": "\x1b[31m1 failed\x1b[0m in 0.02s"}]},
            "metrics": {"prompt_tokens": 1830, "cached_tokens": 900, "completion_tokens": 64, "cost_usd": 0.0065},
        },
    ],
}
FILES: Mapping[str, bytes] = {
    "trial.log": b"starting the sandbox\n",
    "agent/trajectory.json": json.dumps(TRAJECTORY).encode(),
    "verifier/test-stdout.txt": b"collected 3 items\n3 passed\n",
    "artifacts/page.html": b"<script>alert(1)</script>",
}


def submit(w: World, ref: str, workspace: str = "default", **target: Any) -> Run:
    """An accepted run of a taskset."""
    body = {"spec": {"tasks": {"taskset": ref}, "target": {"kind": "harbor", **target}}}
    return w.catalog.get_run(w.evaluations.submit(workspace, RunRequest.model_validate(body)).run.id)


def begin(w: World, run: Run) -> None:
    w.catalog.begin_execution(run.id)
    w.catalog.mark_started(run.id, START)


def end_trial(
    w: World, run: Run, index: int, ended: float | Reason, k: int = 1, files: Mapping[str, bytes] = FILES, **more: Any
) -> None:
    """An outcome with the folder that its trial left."""
    task = run.plan.task(index)
    folder = evidence_path(run.id, task, k)
    kept: dict[str, Any] = {
        "tries": (Try(start=START, end=START + timedelta(seconds=41.5), leftovers=folder, cost=0.0146),),
        "evidence": folder,
        "measurements": Measurements(prompt_tokens=4240, completion_tokens=115, cost_usd=0.0146, runtime_sec=38.2),
        **more,
    }
    row = outcome(run.id, task, ended, **kept)
    w.catalog.add_outcome(row.model_copy(update={"k": k, "trial_id": trial_id(task, k)}))
    w.put_bundle(run.id, {f"{folder}/{path}": data for path, data in files.items()})


def finish(w: World, run: Run, phase: RunPhase = RunPhase.COMPLETED) -> None:
    w.put_bundle(run.id, {"outcomes.json": b"{}", "summary.json": b"{}", "report.html": b"<!doctype html><p>report"})
    w.catalog.finish(run.id, phase, ResultState.READY, at=START + timedelta(minutes=3))


def ended_run(w: World, *ended: float | Reason, names: tuple[str, ...] = ("alpha", "beta", "gamma")) -> Run:
    """A run of one trial a task that has ended."""
    run = submit(w, w.publish(*names))
    begin(w, run)
    for index, how in enumerate(ended):
        end_trial(w, run, index, how)
    finish(w, run)
    return run


@contextmanager
def ranked_world(folder: Path) -> Iterator[World]:
    """A world that keeps a store of results."""
    with world(folder) as made:
        store = DuckDbLeaderboard(folder / "leaderboard.duckdb")
        made.rankings = Rankings(
            runs=made.catalog,
            artifacts=made.artifacts,
            store=store,
            scratch=folder / "scratch",
            staleness=made.backend.staleness,
            tasksets=made.catalog,
            experiments=made.catalog,
        )
        made.backend = replace(made.backend, rankings=made.rankings)
        yield made


def settle(w: World, folder: Path, run: Run, *ended: float | Reason, minute: int = 0, **more: Any) -> None:
    """End every trial of a run (one a task), write its real bundle, and put it into the store of results."""
    begin(w, run)
    for index, how in enumerate(ended):
        end_trial(w, run, index, how, **more)
    at = START + timedelta(minutes=3 + minute)
    maker = BundleMaker(
        tasks=w.catalog, artifacts=w.artifacts, tables=ParquetTables(), report=HtmlReport(), scratch=folder / "bundles"
    )
    maker.make(w.catalog.get_run(run.id), w.catalog.outcomes(run.id), phase=RunPhase.COMPLETED, ended_at=at)
    w.catalog.finish(run.id, RunPhase.COMPLETED, ResultState.READY, at=at)
    assert w.rankings is not None
    assert not w.rankings.settled(run.id).failed
