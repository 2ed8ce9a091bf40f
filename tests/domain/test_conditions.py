from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain.conditions import Conditions, conditions_of, recorded_conditions, tasks_digest
from harbor_assets.domain.plans import Sizing
from harbor_assets.domain.profiles import SandboxProfile
from tests.fakes.accounts import make_plan


def test_what_a_plan_sets_is_written_equally_and_compared_by_name():
    plain = conditions_of(make_plan(["a", "b"]))
    sized = conditions_of(make_plan(["a", "b"], sizing=Sizing(memory_mb=2048, cpus=1), agent_timeout_multiplier=2.0))
    assert (plain.sizing, sized.sizing, sized.multipliers) == ("", "cpus=1 memory_mb=2048", "agent_timeout=2")
    assert sized.differences(plain) == (
        "time multipliers: agent_timeout=2, not none",
        "sizing: cpus=1 memory_mb=2048, not as each task says",
    )
    assert plain.differences(conditions_of(make_plan(["a", "b"], agent_timeout_multiplier=1.0))) == ()
    fewer = conditions_of(make_plan(["a"]))
    ((difference),) = fewer.differences(plain)
    assert difference.startswith("selection of tasks: ")


def test_a_regrade_is_not_ranked_with_what_it_verifies_again():
    regrade = conditions_of(make_plan(["a"], regrade_of="run-0000000000000009"))
    assert regrade.differences(conditions_of(make_plan(["a"]))) == (
        "verifier: alone, on kept work, not in the trial itself",
    )


def test_a_profile_that_opens_hosts_is_another_network():
    open_ = make_plan(["a"], profile=SandboxProfile(name="p", hosts=("b.example", "a.example")))
    assert conditions_of(open_).network == "hosts=a.example,b.example"


def test_bundles_of_before_recorded_less_and_are_equal_to_each_other_alone():
    labels = {"taskset_ref": "default/hello#" + "a" * 64, "sandbox": "process", "sandbox_fingerprint": "m"}
    old = recorded_conditions(labels, {"reward_key": "score"})
    assert (old.reward_key, old.sizing, old.machine) == ("score", None, "m")
    assert old == recorded_conditions(labels, {"reward_key": "score"})
    now = conditions_of(make_plan(["a"], reward_key="score"))
    assert "sizing: not recorded, not as each task says" in old.differences(now)


@given(st.lists(st.text(min_size=1).filter(lambda text: "\n" not in text)), st.randoms())
def test_neither_order_nor_repetition_changes_a_selection(refs: list[str], chance):
    mixed = refs + refs[:1]
    chance.shuffle(mixed)
    assert tasks_digest(refs) == tasks_digest(mixed)


def test_what_is_recorded_reads_back():
    made = conditions_of(make_plan(["a"]))
    assert recorded_conditions({}, {"conditions": made.model_dump(mode="json")}) == made
    assert isinstance(recorded_conditions({}, {"conditions": {"odd": 1}}), Conditions)
