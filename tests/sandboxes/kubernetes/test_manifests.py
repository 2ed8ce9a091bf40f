"""The pod of a sandbox, as a value."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain.profiles import Requests, SandboxProfile
from harbor_assets.sandboxes.kubernetes.manifests import PROTECTED, Owner, Sandbox, pod, pod_name, resources
from harbor_assets.sandboxes.sizes import Sizes

PROFILE = SandboxProfile(name="p", hosts=("*",))


def box(**changed: Any) -> Sandbox:
    facts: dict[str, Any] = {
        "name": "n", "image": "r/x@sha256:0", "role": "agent", "run_id": "run-0123456789abcdef", "task_index": 3,
        "session": "t__env", "network": "none", "lifetime_seconds": 60, "profile": PROFILE,
    }  # fmt: skip
    return Sandbox(**{**facts, **changed})


def test_nothing_outlives_the_run_and_nothing_is_let_in() -> None:
    spec = pod(box(owner=Owner(api_version="batch/v1", kind="Job", name="j", uid="u")))
    assert spec["metadata"]["ownerReferences"] == [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u"}]
    assert spec["metadata"]["labels"] == {
        "app.kubernetes.io/part-of": "harbor-assets",
        "app.kubernetes.io/component": "sandbox",
        "harbor/run-id": "run-0123456789abcdef",
        "harbor/task": "3",
        "harbor/role": "agent",
        "harbor/network": "none",
    }
    inner = spec["spec"]
    assert (inner["restartPolicy"], inner["activeDeadlineSeconds"], inner["terminationGracePeriodSeconds"]) == (
        "Never",
        60,
        5,
    )
    assert inner["automountServiceAccountToken"] is False
    assert inner["enableServiceLinks"] is False
    assert inner["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    main = inner["containers"][0]
    assert main["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert not {"NET_RAW", "NET_ADMIN", "SYS_ADMIN", "SYS_PTRACE", "MKNOD"} & set(
        main["securityContext"]["capabilities"]["add"]
    )
    assert main["securityContext"]["privileged"] is False
    assert "exit 0" not in " ".join(main["command"])


def test_limits_are_requests_unless_the_profile_says_otherwise() -> None:
    limits = Sizes(cpus=1.5, memory_mb=2048, storage_mb=10240, gpus=2)
    gpus = PROFILE.model_copy(update={"gpu_resource": "nvidia.com/gpu"})
    same = resources(limits, gpus)
    assert same["limits"] == same["requests"]
    assert same["limits"] == {"cpu": "1500m", "memory": "2048Mi", "ephemeral-storage": "10240Mi", "nvidia.com/gpu": "2"}
    small = resources(
        limits,
        PROFILE.model_copy(update={"requests": Requests(cpu="50m", memory="64Mi"), "gpu_resource": "amd.com/gpu"}),
    )
    assert small["requests"] == {"cpu": "50m", "memory": "64Mi", "ephemeral-storage": "10240Mi", "amd.com/gpu": "2"}
    assert small["limits"]["cpu"] == "1500m"
    assert resources(Sizes(), PROFILE) == {"limits": {}, "requests": {}}
    with pytest.raises(ValueError, match="no gpu_resource"):
        resources(limits, PROFILE)


@pytest.mark.parametrize(
    ("wanted", "memory_mb", "asked"),
    [("64Mi", 48, "48Mi"), ("64Mi", 64, "64Mi"), ("1Gi", 1000, "1000Mi"), ("1G", 1000, "1G"), ("lots", 48, "lots")],
)
def test_a_profile_asks_for_no_more_than_the_tasks_own_limit(wanted: str, memory_mb: int, asked: str) -> None:
    profile = PROFILE.model_copy(update={"requests": Requests(cpu="2", memory=wanted)})
    made = resources(Sizes(cpus=0.5, memory_mb=memory_mb), profile)
    assert made == {
        "limits": {"cpu": "500m", "memory": f"{memory_mb}Mi"},
        "requests": {"cpu": "500m", "memory": asked},
    }
    assert resources(Sizes(), profile)["requests"] == {"cpu": "2", "memory": wanted}


def test_placement_and_extra_fields_come_from_the_profile() -> None:
    profile = SandboxProfile(
        name="p", runtime_class="gvisor", node_selector={"pool": "evals"}, image_pull_secrets=("r",),
        tolerations=({"key": "evals", "operator": "Exists"},), labels={"team": "a", "harbor/run-id": "mine"},
        annotations={"note": "b"}, pod_overrides={"priorityClassName": "low", "nodeSelector": {"zone": "c"}},
    )  # fmt: skip
    made = pod(box(profile=profile))
    spec = made["spec"]
    assert spec["runtimeClassName"] == "gvisor"
    assert spec["nodeSelector"] == {"pool": "evals", "zone": "c"}
    assert spec["tolerations"] == [{"key": "evals", "operator": "Exists"}]
    assert spec["imagePullSecrets"] == [{"name": "r"}]
    assert spec["priorityClassName"] == "low"
    assert made["metadata"]["labels"]["team"] == "a"
    assert made["metadata"]["labels"]["harbor/run-id"] == "run-0123456789abcdef"
    assert made["metadata"]["annotations"]["note"] == "b"


@pytest.mark.parametrize("field", sorted(PROTECTED))
def test_a_profile_cannot_change_what_protects_the_cluster(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        pod(box(profile=SandboxProfile(name="p", pod_overrides={field: "x"})))


@given(st.text(max_size=60), st.text(max_size=60), st.integers(0, 99999))
def test_names_are_valid_and_apart(run: str, session: str, index: int) -> None:
    name = pod_name(run, index, session, "agent")
    assert len(name) <= 63
    assert all(c.isascii() and (c.isalnum() or c == "-") for c in name)
    assert name == name.lower()
    assert name[0].isalnum()
    assert name != pod_name(run, index, session + "x", "agent")
