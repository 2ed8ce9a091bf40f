"""How a run's Jobs are named, labelled, sized and secured. Pure: plain dicts in, plain dicts out."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harbor_assets.domain.plans import job_name

PART_OF = {"app.kubernetes.io/part-of": "harbor-assets"}
RUN_LABEL = "harbor/run-id"
TASK_LABEL = "harbor/task"
ROLE_LABEL, SETTLING = "harbor/role", "settle"  # of the Job that merges an ended run
COMPONENT_LABEL, SANDBOX = "app.kubernetes.io/component", "sandbox"  # as sandboxes/kubernetes marks its pods
RUN_WORKER, STEP_WORKER = "run_worker", "step_worker"  # components, as dagster-k8s marks its pods
RUN_TAG = "harbor/run_id"  # of a Dagster run; as in assets/runs.py, which this layer cannot import
TIMEOUT_TAG = "harbor/timeout_seconds"

# The Job's own uid and name, for who makes something that must not outlive it.
JOB_NAME_VARIABLE, JOB_UID_VARIABLE = "HARBOR_JOB_NAME", "HARBOR_JOB_UID"

STOP_GRACE_SECONDS = 60  # a stopped trial removes its sandbox and uploads its folder first
DEADLINE_GRACE_SECONDS = 900  # beyond the run's own deadline, which the worker keeps by itself: for teardown and upload
_TTL_SECONDS = 24 * 3600  # a net below the settle step and the reaper, which delete long before
_SETTLED_TTL_SECONDS = 10  # long enough for Dagster's last look at its worker, short enough to leave nothing behind
SETTLE_DEADLINE_SECONDS = 3600  # 10,000 trials take a minute from a folder; an object store may be fifty times slower
_STEP = re.compile(r"(?:.*\.)?(?:trial\[t(?P<index>\d+)\]|(?P<name>[a-z_]+))$")

# A step process peaks at 114 MB before Harbor is imported and near 300 MB with it; its start is a burst of 1.3 CPU
# seconds, then it waits. The plan step imports no Harbor.
TRIAL_RESOURCES: dict[str, Any] = {"requests": {"cpu": "50m", "memory": "320Mi"}, "limits": {"memory": "1Gi"}}
STEP_RESOURCES: dict[str, Any] = {"requests": {"cpu": "50m", "memory": "160Mi"}, "limits": {"memory": "512Mi"}}
# 171 MB at 30 steps and no growth from 12 to 30.
RUN_WORKER_RESOURCES: dict[str, Any] = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}


@dataclass(frozen=True, slots=True)
class WorkerPods:
    """What a deployment sets for task workers: the service account of trial steps, and what replaces their sizes."""

    trial_service_account: str
    trial_resources: Mapping[str, Any] = field(default_factory=lambda: TRIAL_RESOURCES)
    step_resources: Mapping[str, Any] = field(default_factory=lambda: STEP_RESOURCES)


def task_index(step_key: str) -> int | None:
    """The task's index of a trial step (`trial_results.trial[t00007]` is 7), None for the other steps."""
    found = _STEP.match(step_key)
    return int(found["index"]) if found and found["index"] else None


def step_job_name(run_id: str, step_key: str, attempt: int = 0) -> str:
    """`<run-id>-task-<i>` or `<run-id>-plan`, with `-r<n>` for the n-th retry of the step.

    Raises ValueError for a step key that is none of ours.
    """
    found = _STEP.match(step_key)
    if not found:
        raise ValueError(f"no Job name for step {step_key!r}")
    index = task_index(step_key)
    name = f"{run_id}-{found['name'].replace('_', '-')}" if index is None else job_name(run_id, index)
    return f"{name}-r{attempt}" if attempt else name


def labels(run_id: str, index: int | None = None) -> dict[str, str]:
    """Labels of everything that belongs to a run, or to one task of it."""
    return {**PART_OF, RUN_LABEL: run_id, **({} if index is None else {TASK_LABEL: str(index)})}


def of_run(run_id: str) -> str:
    """The label selector of what runs a run. What settles it is left out: it goes by itself soon after its end."""
    return f"{RUN_LABEL}={run_id},{ROLE_LABEL}!={SETTLING}"


def of_runs() -> str:
    """The same for all runs."""
    return f"{RUN_LABEL},{ROLE_LABEL}!={SETTLING}"


def step_config(run_id: str, step_key: str, pods: WorkerPods, *, timeout_seconds: int) -> dict[str, Any]:
    """What dagster-k8s merges into a step's Job, as raw Kubernetes configuration in snake case.

    Only a trial step gets a token: it makes sandboxes. It never outlives the run's time by more than a teardown.
    """
    index = task_index(step_key)
    marks = {"labels": labels(run_id, index)}
    trial = index is not None
    return {
        "job_metadata": marks,
        "pod_template_spec_metadata": marks,
        "job_spec_config": {
            "ttl_seconds_after_finished": _TTL_SECONDS,
            "backoff_limit": 0,  # a lost trial is run again by the next execution, which knows of it
            "active_deadline_seconds": timeout_seconds + DEADLINE_GRACE_SECONDS,
        },
        "pod_spec_config": {
            "service_account_name": pods.trial_service_account,
            "automount_service_account_token": trial,
            "enable_service_links": False,
            "termination_grace_period_seconds": STOP_GRACE_SECONDS,
            "restart_policy": "Never",
        },
        "container_config": {
            **_LAST_WORDS,
            "resources": dict(pods.trial_resources if trial else pods.step_resources),
            "security_context": _RESTRICTED,
            "env": _OWNER_ENV if trial else [],
        },
    }


def run_worker_config(run_id: str) -> dict[str, Any]:
    """The same for the Job of a run worker."""
    marks = {"labels": labels(run_id)}
    return {
        "job_metadata": marks,
        "pod_template_spec_metadata": marks,
        "job_spec_config": {"ttl_seconds_after_finished": _TTL_SECONDS},
        "pod_spec_config": {"enable_service_links": False},
        "container_config": {**_LAST_WORDS, "resources": RUN_WORKER_RESOURCES, "security_context": _RESTRICTED},
    }


def other_config() -> dict[str, Any]:
    """The same for the Job of a Dagster run that belongs to no run yet, as one that submits one: only what is part of
    the deployment reaches the database."""
    marks = {"labels": PART_OF}
    return {
        "job_metadata": marks,
        "pod_template_spec_metadata": marks,
        "job_spec_config": {"ttl_seconds_after_finished": _TTL_SECONDS},
        "pod_spec_config": {"enable_service_links": False},
        "container_config": {**_LAST_WORDS, "resources": RUN_WORKER_RESOURCES, "security_context": _RESTRICTED},
    }


def settle_config(run_id: str) -> dict[str, Any]:
    """The same for the Job that settles a run: it asks nothing of the API server, so it gets no token."""
    marks = {"labels": {**labels(run_id), ROLE_LABEL: SETTLING}}
    return {
        "job_metadata": marks,
        "pod_template_spec_metadata": marks,
        "job_spec_config": {
            "ttl_seconds_after_finished": _SETTLED_TTL_SECONDS,
            "backoff_limit": 0,
            "active_deadline_seconds": SETTLE_DEADLINE_SECONDS,
        },
        "pod_spec_config": {"enable_service_links": False, "automount_service_account_token": False},
        "container_config": {"resources": RUN_WORKER_RESOURCES, "security_context": _RESTRICTED},
    }


def _from_label(name: str, label: str) -> dict[str, Any]:
    path = f"metadata.labels['{label}']"
    return {"name": name, "value_from": {"field_ref": {"field_path": path}}}


# The Job controller puts these labels on every pod it makes; the worker has no right to read Jobs.
_OWNER_ENV = [
    _from_label(JOB_NAME_VARIABLE, "batch.kubernetes.io/job-name"),
    _from_label(JOB_UID_VARIABLE, "batch.kubernetes.io/controller-uid"),
]
# Of a container that fails the kubelet keeps the end of its log in the pod's status: nobody needs a right to read logs.
_LAST_WORDS = {"termination_message_policy": "FallbackToLogsOnError"}
_RESTRICTED = {
    "allow_privilege_escalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccomp_profile": {"type": "RuntimeDefault"},
}


def own_pod(environ: Mapping[str, str]) -> str | None:
    """The pod of this process, if it is that of a trial step; the kubelet gives every container its pod's name."""
    return environ.get("HOSTNAME") if environ.get(JOB_NAME_VARIABLE) else None


def owner(environ: Mapping[str, str]) -> dict[str, str] | None:
    """The Job that this process runs in, as an owner reference for what it makes; None outside of a trial step."""
    name, uid = environ.get(JOB_NAME_VARIABLE), environ.get(JOB_UID_VARIABLE)
    return {"api_version": "batch/v1", "kind": "Job", "name": name, "uid": uid} if name and uid else None
