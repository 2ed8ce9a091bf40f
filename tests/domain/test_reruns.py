import pytest

from harbor_assets.domain.errors import Refused
from harbor_assets.domain.placement import Toleration, placed
from harbor_assets.domain.profiles import SandboxProfile
from harbor_assets.domain.reruns import request_again, selected
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


def test_a_number_that_is_an_index_of_the_run_and_names_another_of_its_tasks_is_refused() -> None:
    plan = make_plan(["a", "b", "c"])
    natives = ("1", "7", "org/c")
    tasks = tuple(t.model_copy(update={"native_task_id": n}) for t, n in zip(plan.tasks, natives, strict=True))
    plan = plan.model_copy(update={"tasks": tasks})
    assert selected(plan, ["0", "7", "org/c"]) == [0, 1, 2]
    with pytest.raises(Refused, match="is the name of hello-a and the index of hello-b"):
        selected(plan, ["1"])
    part = plan.model_copy(update={"tasks": tasks[::2]})  # the run had no task 1: it can be but a name
    assert selected(part, ["1"]) == [0]
