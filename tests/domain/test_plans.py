import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain.plans import (
    HARBOR_AGENTS,
    NON_CALLING_AGENTS,
    AgentSpec,
    PlannedTask,
    SandboxChoice,
    Sizing,
    trial_id,
    trial_key,
)

HEX = "a" * 64


def task(name: str, index: int = 0) -> PlannedTask:
    return PlannedTask(
        index=index, name=name, native_task_id="n", ref=f"w/x#{HEX}", fileset_ref="w/f#x", files_hash=HEX, trial_key=HEX
    )


def test_the_agents_named_are_harbors() -> None:
    from harbor.models.agent.name import AgentName

    assert {*HARBOR_AGENTS, *NON_CALLING_AGENTS} == {agent.value for agent in AgentName}


@given(st.text(min_size=1, max_size=300), st.integers(0, 99999), st.integers(1, 1000))
def test_a_trial_id_is_a_safe_folder_name(name: str, index: int, k: int) -> None:
    found = trial_id(task(name, index), k)
    assert len(found.encode()) <= 64
    assert set(found) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
    assert found.endswith(f"__{index:05d}-{k}")


@pytest.mark.parametrize(
    "change",
    [
        {"task_digest": "b" * 64},
        {"agent": AgentSpec(name="nop")},
        {"agent": AgentSpec(name="oracle", env={"A": "b"})},
        {"multipliers": {"agent_timeout": 2.0}},
        {"harbor_version": "0.27.0"},
        {"sizing": Sizing(cpus=2)},
        {"reward_key": "other"},
        {"sandbox": SandboxChoice(kind="process", why="x", fingerprint="g")},
        {"images": {"agent": "sha256:1"}},
    ],
)
def test_what_decides_a_reward_moves_the_trial_key(change: dict[str, object]) -> None:
    base = {
        "task_digest": HEX,
        "images": {},
        "agent": AgentSpec(name="oracle"),
        "model": None,
        "harbor_version": "0.26.0",
        "sizing": Sizing(),
        "network": {},
        "multipliers": {},
        "reward_key": "reward",
        "sandbox": SandboxChoice(kind="process", why="x", fingerprint="f"),
    }
    assert trial_key(**base) != trial_key(**{**base, **change})  # type: ignore[arg-type]
    why = SandboxChoice(kind="process", why="another reason", fingerprint="f", notes=("n",))
    assert trial_key(**base) == trial_key(**{**base, "sandbox": why})  # type: ignore[arg-type]


def test_a_trial_key_is_that_of_runs_stored_before_there_were_variables() -> None:
    key = trial_key(
        task_digest=HEX,
        images={},
        agent=AgentSpec(name="oracle", kwargs={"a": 1}),
        model=None,
        harbor_version="0.26.0",
        sizing=Sizing(cpus=2),
        network={},
        multipliers={},
        reward_key="reward",
        sandbox=SandboxChoice(kind="process", why="x", fingerprint="f"),
    )
    assert key == "7dd1778686a140812efa87529a89fd6311a8185600e878ffd29ff54e877e9b48"
