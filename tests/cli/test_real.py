"""One real run by real processes: quickstart, then what every other command says of it, and how little that imports."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harbor_assets.sdk import Evaluator, read_bundle

NOT_A_COMMANDS = {"dagster", "harbor", "duckdb", "jinja2", "kubernetes", "alembic", "uvicorn", "upath"}
NOT_A_WORKERS = {"fastapi", "starlette", "httpx", "typer", "kubernetes", "uvicorn", "dagster_k8s", "dagster_webserver"}
ROUTES = "harbor_assets.interfaces.api.routes."


def harbor_assets(home: Path, *words: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "harbor_assets", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=home.parent,
        env={**os.environ, "HARBOR_ASSETS_HOME": str(home), **env},
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quickstart") / "home"


@pytest.fixture(scope="module")
def run_id(home: Path) -> str:
    said = harbor_assets(home, "quickstart", "--json")
    assert said.returncode == 0, said.stderr
    assert "hello-world scored 1.0000" in said.stderr
    assert "Mean 1.0000 (scored 1 of 1 trial, 1 of 1 task)" in said.stderr
    (report,) = [line.removeprefix("Report: ") for line in said.stderr.splitlines() if line.startswith("Report: ")]
    assert Path(report).is_file()
    run = json.loads(said.stdout)["run"]
    assert (run["phase"], run["result_state"]) == ("completed", "ready")
    return run["id"]


def test_what_it_gave_is_shown_and_downloaded(home: Path, run_id: str):
    results = json.loads(harbor_assets(home, "runs", "results", run_id, "--json").stdout)
    assert results["outcomes"]["policies"]["scored_only"]["mean"] == 1.0
    assert results["summary"]["trial_count"] == 1
    assert "PASS" in harbor_assets(home, "runs", "logs", run_id, "--task", "0").stdout
    assert harbor_assets(home, "runs", "download", run_id).returncode == 0
    bundle = read_bundle(home.parent / run_id / "agent-eval-results")
    assert bundle.outcome_summary
    assert bundle.outcome_summary.policies.scored_only.mean == 1.0
    assert [trial.status for trial in bundle.trials] == ["completed"]


def imported(said: str) -> set[str]:
    """The modules that Python's own account of imports names."""
    return set(re.findall(r"^import time: +\d+ \| +\d+ \| +([\w.]+)$", said, re.MULTILINE))


@pytest.mark.parametrize(
    ("words", "parts", "more"), [(("runs", "list"), {"runs"}, set()), (("leaderboard",), {"leaderboard"}, {"duckdb"})]
)
def test_a_command_imports_its_own_part_of_the_api(
    home: Path, run_id: str, words: tuple[str, ...], parts: set[str], more: set[str]
):
    said = harbor_assets(home, *words, PYTHONPROFILEIMPORTTIME="1")
    modules = imported(said.stderr)
    assert {"fastapi", "sqlalchemy"} < modules
    assert {name.split(".")[0] for name in modules}.isdisjoint(NOT_A_COMMANDS - more)
    assert {name.removeprefix(ROUTES) for name in modules if name.startswith(ROUTES)} == parts


def test_the_same_again_from_the_stored_taskset(home: Path, run_id: str):
    status = json.loads(harbor_assets(home, "runs", "status", run_id, "--json").stdout)
    taskset = status["run"]["taskset_ref"]
    words = ("--taskset", taskset, "--agent", "nop", "--sandbox", "process", "--wait")
    said = harbor_assets(home, "runs", "submit", *words, PYTHONPROFILEIMPORTTIME="1")
    assert said.returncode == 0, said.stderr
    assert "Mean 0.0000 (scored 1 of 1 trial, 1 of 1 task)" in said.stdout
    again = re.search(r"Run (run-\w+) accepted", said.stdout)
    assert again
    modules = imported((home / "logs" / f"{again[1]}.log").read_text())
    assert {"dagster", "harbor"} < modules
    assert {name.split(".")[0] for name in modules}.isdisjoint(NOT_A_WORKERS)


def test_python_sees_the_same_runs(home: Path, run_id: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HARBOR_ASSETS_HOME", str(home))
    with Evaluator() as evaluator:
        assert run_id in [run.id for run in evaluator.runs.list()]
        assert evaluator.runs.results(run_id).account.counts["scored"] == 1  # type: ignore[index]
