# ruff: noqa: E501 - what a cluster says stands in one line
"""From Jobs, pods and events to what a run waits for. Objects are those a real cluster (1.34) gave, shortened."""

from typing import Any

import pytest

from harbor_assets.cluster.waiting import Seen, Standing, waits
from harbor_assets.domain.outcomes import Reason
from harbor_assets.domain.waiting import MESSAGE_MAX, Wait, WaitReason
from harbor_assets.engine.account import Lost

RUN = "run-0123456789abcdef"
STARTED = Standing(slots=8)


def labels(component: str, task: int | None = 3, **more: str) -> dict[str, str]:
    mine = {} if task is None else {"harbor/task": str(task)}
    return {"app.kubernetes.io/component": component, "harbor/run-id": RUN, **mine, **more}


def job(component: str = "step_worker", task: int | None = 3, **more: str) -> dict[str, Any]:
    name = f"{RUN}-{component}-{task}"
    return {"metadata": {"name": name, "uid": f"uid-{name}", "labels": labels(component, task, **more)}, "status": {}}


def pod(
    component: str = "step_worker", task: int | None = 3, *, role: str | None = None, **status: Any
) -> dict[str, Any]:
    more = {"harbor/role": role} if role else {}
    name = f"{RUN}-{component}-{task}"
    meta = {"name": f"{name}-x", "uid": f"pod-{component}-{task}", "labels": labels(component, task, **more)}
    return {"metadata": {**meta, "ownerReferences": [{"uid": f"uid-{name}"}]}, "status": status}


def event(about: str, reason: str, message: str, at: str = "2026-11-30T06:40:00Z") -> dict[str, Any]:
    return {
        "metadata": {"creationTimestamp": at},
        "involvedObject": {"uid": about},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "lastTimestamp": at,
    }


def held(reason: str, message: str = "") -> dict[str, Any]:
    return {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": reason, "message": message}}}]}


def unscheduled(message: str) -> dict[str, Any]:
    return {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}],
    }


RUNNING = {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}
FULL = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
QUOTA = 'Error creating: pods "x" is forbidden: exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2'
TOO_MUCH = 'Error creating: pods "x" is forbidden: exceeded quota: small, requested: requests.memory=320Mi, used: requests.memory=0, limited: requests.memory=64Mi'
POLICY = 'Error creating: pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'
PULL = 'Back-off pulling image "registry.test:5000/no@sha256:0": ErrImagePull: rpc error: code = NotFound desc = failed to pull and unpack image: registry.test:5000/no: not found'


def of(
    *pods: dict[str, Any], jobs: list[dict[str, Any]] | None = None, events: list[dict[str, Any]] | None = None
) -> Wait | None:
    seen = Seen([job()] if jobs is None else jobs, pods, events or ())
    return waits(seen, {3}, STARTED).tasks.get(3)


def test_who_is_at_work_waits_for_nothing() -> None:
    assert of(pod(**RUNNING)) is None
    assert of(pod(**RUNNING), pod("sandbox", role="agent", **RUNNING)) is None


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        (unscheduled(FULL), WaitReason.SCHEDULING, "no node takes the pod of {}: 0/1 nodes are available: 1 Insufficient cpu"),
        (held("ImagePullBackOff", PULL), WaitReason.IMAGE_PULL, "the image of {} cannot be pulled: ImagePullBackOff: Back-off pulling image"),
        (held("CreateContainerConfigError", 'secret "s" not found'), WaitReason.CANNOT_START, 'the container of {} cannot be made: CreateContainerConfigError: secret "s" not found'),
        (held("ContainerCreating"), WaitReason.STARTING, "{} is starting"),
        ({"phase": "Pending"}, WaitReason.STARTING, "{} is starting"),
    ],
)  # fmt: skip
def test_a_worker_and_its_sandbox_are_told_in_the_same_words(
    status: dict[str, Any], reason: WaitReason, words: str
) -> None:
    for whose, pods in (
        ("its worker", [pod(**status)]),
        ("its sandbox", [pod(**RUNNING), pod("sandbox", role="agent", **status)]),
        ("its verifier's sandbox", [pod(**RUNNING), pod("sandbox", role="verifier", **status)]),
    ):
        said = of(*pods)
        assert said is not None
        assert said.reason is reason
        assert said.message.startswith(words.format(whose))
        assert "preemption" not in said.message


def test_the_words_of_the_registry_are_taken_from_the_events_where_the_status_has_none() -> None:
    box = pod("sandbox", role="agent", **held("ImagePullBackOff", "Back-off pulling image"))
    events = [
        event(box["metadata"]["uid"], "Failed", 'Failed to pull image "x": registry.test:5000/x: not found'),
        event("other", "Failed", "of another pod"),
    ]
    said = of(pod(**RUNNING), box, events=events)
    assert said == Wait(
        reason=WaitReason.IMAGE_PULL,
        message='the image of its sandbox cannot be pulled: Failed: Failed to pull image "x": registry.test:5000/x: not found',
    )


def test_a_sandbox_without_a_pod_is_told_by_its_worker() -> None:
    worker = pod(**RUNNING)
    worker["metadata"]["annotations"] = {"harbor/waits-for": QUOTA.removeprefix("Error creating: ")}
    said = of(worker)
    assert said is not None
    assert said.reason is WaitReason.QUOTA
    assert said.message.startswith("a quota has no room for the pod of its sandbox: exceeded quota: few")


def test_a_volume_that_does_not_come_is_told() -> None:
    worker = pod(**held("ContainerCreating"))
    said = of(
        worker,
        events=[event(worker["metadata"]["uid"], "FailedMount", 'MountVolume.SetUp failed: secret "s" not found')],
    )
    assert said is not None
    assert (said.reason, said.message) == (
        WaitReason.STARTING,
        'its worker is starting: FailedMount: MountVolume.SetUp failed: secret "s" not found',
    )


@pytest.mark.parametrize(
    ("message", "reason", "words"),
    [
        (QUOTA, WaitReason.QUOTA, "a quota has no room for the pod of its worker: exceeded quota: few"),
        (TOO_MUCH, WaitReason.QUOTA, "the pod of its worker is larger than a quota: "),
        (POLICY, WaitReason.POLICY, "the cluster refuses the pod of its worker: violates PodSecurity"),
    ],
)  # fmt: skip
def test_a_job_whose_pod_is_refused(message: str, reason: WaitReason, words: str) -> None:
    about = job()["metadata"]["uid"]
    old = event(about, "FailedCreate", "Error creating: something before", at="2026-11-30T06:00:00Z")
    said = of(events=[event(about, "FailedCreate", message), old])
    assert said is not None
    assert said.reason is reason
    assert said.message.startswith(words)


def test_a_job_without_a_pod_or_a_word_is_about_to_start() -> None:
    said = of()
    assert said is not None
    assert (said.reason, said.message) == (WaitReason.STARTING, "the pod of its worker is about to be made")


def test_tasks_without_a_job_wait_for_a_slot_and_a_lost_worker_is_told() -> None:
    over = job(task=1) | {"status": {"failed": 1}}
    seen = Seen(
        [over, job(task=2)], [pod(task=2, **RUNNING)], lost={1: Lost(Reason.OUT_OF_MEMORY, "Job x failed: OOMKilled")}
    )
    found = waits(seen, {1, 2, 3}, Standing(slots=1))
    assert found.run is None
    assert {i: (said.reason, said.message) for i, said in found.tasks.items()} == {
        1: (WaitReason.LOST, "its worker is gone: Job x failed: OOMKilled"),
        3: (WaitReason.POOL_FULL, "waits for a slot: 1 of 1 are taken"),
    }
    assert waits(seen, {3}, Standing(slots=2)).tasks[3].reason is WaitReason.STARTING


def test_a_worker_that_ends_is_told_unless_it_ends_well() -> None:
    def over(code: int) -> dict[str, Any]:
        return {"phase": "Running", "containerStatuses": [{"state": {"terminated": {"reason": "x", "exitCode": code}}}]}

    assert of(pod(**over(0))) is None
    said = of(pod(**over(1)))
    assert said is not None
    assert said.reason is WaitReason.LOST


def test_a_run_in_the_queue_says_so_once() -> None:
    found = waits(Seen(), {0, 1}, Standing(slots=8, queued=True, others=10))
    assert found.run == Wait(reason=WaitReason.QUEUED, message="in the queue of runs; 10 others are being run")
    assert found.tasks == {}


@pytest.mark.parametrize(
    ("component", "more", "whose"),
    [("run_worker", {}, "the run worker"), ("step_worker", {}, "the first step"), ("run_worker", {"harbor/role": "settle"}, "the step that merges the results")],
)  # fmt: skip
def test_what_keeps_the_run_itself(component: str, more: dict[str, str], whose: str) -> None:
    own = job(component, None, **more)
    box = pod(component, None, **unscheduled(FULL))
    box["metadata"]["labels"] |= more
    found = waits(Seen([own], [box]), {0}, STARTED)
    assert found.run is not None
    assert found.run.message.startswith(f"no node takes the pod of {whose}: 0/1 nodes")
    assert found.tasks == {}
    refused = [event(own["metadata"]["uid"], "FailedCreate", QUOTA)]
    assert "exceeded quota" in str(waits(Seen([own], [], refused), {0}, STARTED).run)


def test_words_of_strangers_are_one_line_escaped_and_cut() -> None:
    said = of(pod(**held("ErrImagePull", "\x1b[31mred\nline " + "x" * 9999)))
    assert said is not None
    assert "\n" not in said.message
    assert "\x1b" not in said.message
    assert len(said.message) <= MESSAGE_MAX + 1
