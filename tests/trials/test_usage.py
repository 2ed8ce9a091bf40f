"""Tokens and cost that only the agent's own trajectory knows, in real trials: row, trace and session say the same."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from harbor_assets.domain.endings import Ending
from harbor_assets.domain.outcomes import Measurements, Reason
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.domain.publication import Publication
from harbor_assets.domain.runs import Run
from harbor_assets.engine.bundle_rows import BundleRows
from harbor_assets.engine.trial_sessions import trial_session
from harbor_assets.engine.trial_traces import look
from harbor_assets.trials.usage import with_usage
from tests.fakes.accounts import START, make_plan, make_row
from tests.suites import make
from tests.trials.conftest import RunTrial

METRICS = {"prompt_tokens": 100, "completion_tokens": 25, "cached_tokens": 40, "cost_usd": 0.01}
STEP = {"step_id": 1, "source": "agent", "message": "Done.", "metrics": METRICS}
DOCUMENT = {"schema_version": "ATIF-v1.7", "agent": {"name": "a", "version": "1"}, "steps": [STEP, STEP, STEP]}
ENDING = Ending(Reason.GRADED, reward=1.0, measurements=Measurements(runtime_sec=2.0))


def left(folder: Path, data: bytes = json.dumps(DOCUMENT).encode()) -> Path:
    (folder / "agent").mkdir(parents=True)
    (folder / "agent/trajectory.json").write_bytes(data)
    return folder


def test_a_real_trials_row_trace_and_session_name_the_same_figures(run_trial: RunTrial, tmp_path: Path) -> None:
    solve = f"{make.SOLVE}\ncat > /logs/agent/trajectory.json <<'EOF'\n{json.dumps(DOCUMENT)}\nEOF"
    ended = run_trial(make.make_task(tmp_path, "frugal", solve=solve))
    used = ended.ending.measurements
    assert (used.prompt_tokens, used.completion_tokens, used.cache_read_tokens) == (300, 75, 120)
    assert used.cost_usd == pytest.approx(0.03)
    assert used.runtime_sec
    plan = make_plan(["x"])
    row = make_row(plan, 0, measurements=used)
    files = {str(p.relative_to(ended.folder)): p.stat().st_size for p in ended.folder.rglob("*") if p.is_file()}
    found = look(files, lambda path: (ended.folder / path).read_bytes()).trajectory
    run = Run(plan=plan, phase=RunPhase.RUNNING, result_state=ResultState.PENDING, created_at=START, started_at=START)
    where = Publication(experiment="e", evaluation="v", dataset="d", dataset_version="1", agent_name="a")
    session = trial_session(run, row, BundleRows.of(plan, [row]), where, found).session
    assert (session.prompt_tokens, session.completion_tokens, session.cached_tokens, session.cost_usd) == (
        used.prompt_tokens,
        used.completion_tokens,
        used.cache_read_tokens,
        used.cost_usd,
    )


def test_what_harbor_knows_is_not_changed_and_nothing_is_added_to_it(tmp_path: Path) -> None:
    own = Measurements(prompt_tokens=7, completion_tokens=0)
    found = with_usage(replace(ENDING, measurements=own), left(tmp_path / "t")).measurements
    assert (found.prompt_tokens, found.completion_tokens, found.cost_usd) == (7, 0, pytest.approx(0.03))


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[" * 100_000, b'{"schema_version": "ATIF-v1", "steps": [5]}', b"\xff\xfe"],
)
def test_a_hostile_trajectory_changes_nothing(tmp_path: Path, data: bytes) -> None:
    assert with_usage(ENDING, left(tmp_path / "t", data)) == ENDING


def test_only_plain_files_inside_the_folder_are_read(tmp_path: Path) -> None:
    outside = left(tmp_path / "outside")
    for name, make_it in (
        ("link", lambda at: at.symlink_to(outside / "agent/trajectory.json")),
        ("pipe", os.mkfifo),
        ("folder", Path.mkdir),
    ):
        (tmp_path / name / "agent").mkdir(parents=True)
        make_it(tmp_path / name / "agent/trajectory.json")
        assert with_usage(ENDING, tmp_path / name) == ENDING
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/agent").symlink_to(outside / "agent")
    assert with_usage(ENDING, tmp_path / "linked") == ENDING
    assert with_usage(ENDING, tmp_path / "gone") == ENDING
