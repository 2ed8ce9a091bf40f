"""Logs of trials as one stream: the same offsets before and after a trial's end, and no byte read twice."""

from datetime import UTC, datetime
from pathlib import Path

from harbor_assets.catalog import open_catalog
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.domain.runs import Run
from harbor_assets.engine.logs import CHUNK_BYTES
from harbor_assets.local.logs import LocalLogs
from tests.fakes.accounts import make_plan, make_row
from tests.fakes.artifacts import MemoryArtifacts


class Counting(MemoryArtifacts):
    opened = 0

    def open(self, key: str):
        self.opened += 1
        return super().open(key)


def everything(logs: LocalLogs, run: Run, task: int | None) -> str:
    text, offset = "", 0
    while True:
        chunk = logs.read(run, task, offset)
        text, offset = text + chunk.text, chunk.next_offset
        if chunk.done:
            return text


def test_a_long_log_comes_whole_and_each_chunk_is_one_read(tmp_path: Path) -> None:
    plan = make_plan(["alpha"])
    row = make_row(plan, 0)
    assert row.evidence
    artifacts = Counting()
    long = "ünïcödé " * 200_000
    folder = f"runs/{plan.run_id}/agent-eval-results/{row.evidence}"
    artifacts.put_bytes(f"{folder}/trial.log", b"began\n")
    artifacts.put_bytes(f"{folder}/verifier/test-stdout.txt", long.encode())
    with open_catalog(f"sqlite:///{tmp_path / 'c.db'}") as catalog:
        catalog.add_run(plan, request_digest="a" * 64)
        catalog.add_outcome(row)
        logs = LocalLogs(logs_folder=tmp_path, work_folder=tmp_path, runs=catalog, artifacts=artifacts)
        now = datetime.now(UTC)
        run = Run(plan=plan, phase=RunPhase.COMPLETED, result_state=ResultState.READY, created_at=now)
        text = everything(logs, run, 0)
    assert text.startswith(f"==> {row.trial_id}/trial.log\nbegan\n")
    assert long in text
    assert "\ufffd" not in text
    assert artifacts.opened <= len(long.encode()) // CHUNK_BYTES + 4
