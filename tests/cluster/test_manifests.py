import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.cluster import manifests
from harbor_assets.cluster.manifests import (
    WorkerPods,
    other_config,
    run_worker_config,
    step_config,
    step_job_name,
    task_index,
)

RUN = "run-0123456789abcdef"
PODS = WorkerPods(trial_service_account="trial-worker")


@given(st.integers(0, 99_999))
def test_a_trial_step_names_its_task_as_the_bundle_does(index: int) -> None:
    key = f"trial_results.trial[t{index:05d}]"
    assert task_index(key) == index
    assert step_job_name(RUN, key) == f"{RUN}-task-{index}"
    assert len(step_job_name(RUN, key, attempt=9)) <= 52  # a Job's pods add a suffix of 11 to at most 63


def test_the_other_steps_have_names_of_their_own() -> None:
    assert step_job_name(RUN, "trial_results.plan") == f"{RUN}-plan"
    assert step_job_name(RUN, "trial_results.plan", 2) == f"{RUN}-plan-r2"
    with pytest.raises(ValueError, match="no Job name"):
        step_job_name(RUN, "Trial Results/x")


def test_only_trial_steps_get_a_token_and_know_their_job() -> None:
    trial = step_config(RUN, "trial_results.trial[t00003]", PODS, timeout_seconds=60)
    plan = step_config(RUN, "trial_results.plan", PODS, timeout_seconds=60)
    assert trial["pod_spec_config"]["automount_service_account_token"] is True
    assert plan["pod_spec_config"]["automount_service_account_token"] is False
    assert [e["name"] for e in trial["container_config"]["env"]] == ["HARBOR_JOB_NAME", "HARBOR_JOB_UID"]
    assert plan["container_config"]["env"] == []
    for config in (trial, plan):
        for where in ("job_metadata", "pod_template_spec_metadata"):
            assert config[where]["labels"]["harbor/run-id"] == RUN
            assert config[where]["labels"]["app.kubernetes.io/part-of"] == "harbor-assets"
        assert config["job_spec_config"]["backoff_limit"] == 0
        assert config["job_spec_config"]["active_deadline_seconds"] > 60
    assert trial["job_metadata"]["labels"]["harbor/task"] == "3"


def test_the_owner_is_the_job_that_the_process_runs_in() -> None:
    environ = {"HARBOR_JOB_NAME": f"{RUN}-task-3", "HARBOR_JOB_UID": "u-1"}
    assert manifests.owner(environ) == {
        "api_version": "batch/v1",
        "kind": "Job",
        "name": f"{RUN}-task-3",
        "uid": "u-1",
    }
    assert manifests.owner({}) is None


def test_what_every_dagster_process_loads_imports_no_kubernetes() -> None:
    code = (
        "import sys; import harbor_assets.run_launcher, harbor_assets.cluster.executor; "
        "from harbor_assets.cluster.executor import kubernetes_executor; "
        "from harbor_assets.definitions import defs; defs.resolve_job_def('evaluate'); "
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'kubernetes', 'dagster_k8s', 'harbor', 'sqlalchemy'}))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={"HARBOR_ASSETS_EXECUTOR": "kubernetes", "PATH": "/usr/bin:/bin", "HOME": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_a_job_of_no_run_is_part_of_the_deployment_but_of_no_runs_leftovers() -> None:
    """Only what is part of the deployment reaches its database; what has a run's label goes with that run."""
    marks = other_config()["pod_template_spec_metadata"]["labels"]
    assert marks == other_config()["job_metadata"]["labels"] == {"app.kubernetes.io/part-of": "harbor-assets"}
    assert run_worker_config("run-1")["pod_template_spec_metadata"]["labels"].items() > marks.items()
