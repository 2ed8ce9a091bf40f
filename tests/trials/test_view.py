"""Harbor's own viewer opens the trial folders of a downloaded bundle."""

import shutil
from pathlib import Path

from harbor.viewer.server import create_app
from starlette.testclient import TestClient

from harbor_assets.domain.plans import job_name, trial_id
from harbor_assets.engine.account import evidence_path
from tests.fakes.accounts import RUN_ID, make_plan
from tests.suites import make, wild
from tests.trials.conftest import RunTrial


def test_harbors_viewer_shows_our_trials(run_trial: RunTrial, tmp_path: Path) -> None:
    plan = make_plan(["plain", "steps"])
    for task, folder in zip(plan.tasks, (make.make_task(tmp_path, "plain"), wild.steps_by_mean(tmp_path)), strict=True):
        kept = tmp_path / "bundle" / evidence_path(RUN_ID, task, 1)
        shutil.copytree(run_trial(folder).folder, kept)
    app = create_app(tmp_path / "bundle" / "evidence" / "harbor", mode="jobs")
    with TestClient(app, base_url="http://127.0.0.1") as viewer:
        listed = viewer.get("/api/jobs").json()["items"]
        assert {job["name"] for job in listed} == {job_name(RUN_ID, 0), job_name(RUN_ID, 1)}
        for task, reward in zip(plan.tasks, (1.0, 0.75), strict=True):
            place = f"/api/jobs/{job_name(RUN_ID, task.index)}/trials"
            assert [trial["name"] for trial in viewer.get(place).json()["items"]] == [trial_id(task, 1)]
            found = viewer.get(f"{place}/{trial_id(task, 1)}").json()
            assert found["verifier_result"]["rewards"] == {"reward": reward}
