from harbor_assets.domain.placement import Toleration, placed
from harbor_assets.domain.profiles import SandboxProfile
from harbor_assets.domain.reruns import request_again
from tests.fakes.accounts import make_plan

PROFILE = SandboxProfile(
    name="p",
    node_selector={"zone": "a"},
    tolerations=({"key": "gpu", "operator": "Exists", "tolerationSeconds": 9},),
    node_selector_keys=("pool",),
    toleration_keys=("gpu",),
)


def test_the_nodes_that_were_asked_for_are_asked_for_again() -> None:
    toleration = Toleration(key="gpu", operator="Exists", effect="NoSchedule")
    profile = placed(PROFILE, {"pool": "x"}, [toleration])
    plan = make_plan(["alpha"]).model_copy(update={"profile": profile})
    sandbox = request_again(plan, [0]).execution.sandbox
    assert (sandbox.profile, sandbox.node_selector, sandbox.tolerations) == ("p", {"pool": "x"}, [toleration])
    assert placed(PROFILE, sandbox.node_selector, sandbox.tolerations) == profile
