from typing import Any

import pytest

from harbor_assets.domain.obstacles import image_obstacle, lacks_solution, obstacles


def rules(config: dict[str, Any], *, sandbox: str = "process", agent: str = "oracle") -> list[str]:
    found = obstacles(config, sandbox=sandbox, agent=agent, variables={"HOME"})
    return [f"{rule}: {why.split(':')[0]}" for rule, why in found]


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({}, []),
        ({"environment": {"gpus": 0, "network_mode": "public"}, "agent": {"timeout_sec": 1}}, []),
        ({"environment": {"gpus": 1}}, ["gpus_unavailable: [environment] gpus = 1"]),
        (
            {"verifier": {"environment": {"gpus": 2}}},
            ["gpus_unavailable: [verifier.environment] gpus = 2"],
        ),
        (
            {"environment": {"network_mode": "allowlist"}, "steps": [{"agent": {"network_mode": "allowlist"}}]},
            [
                "network_unavailable: [environment] network_mode = 'allowlist'",
                "network_unavailable: [steps[0].agent] network_mode = 'allowlist'",
            ],
        ),
        ({"agent": {"timeout_sec": 0}}, ["timeout_invalid: [agent] timeout_sec = 0"]),
        ({"agent": {"timeout_sec": "inf"}}, ["timeout_invalid: [agent] timeout_sec = inf"]),
        (
            {"verifier": {"timeout_sec": -1}, "environment": {"build_timeout_sec": -2.5}},
            [
                "timeout_invalid: [verifier] timeout_sec = -1",
                "timeout_invalid: [environment] build_timeout_sec = -2.5",
            ],
        ),
        (
            {"environment": {"env": {"A": "${HOME}", "B": "${NOPE:-x}", "C": "a ${NOPE}", "D": "${NOPE:-}"}}},
            [],
        ),
        (
            {"verifier": {"env": {"K": "${NOPE}"}}, "solution": {"env": {"S": "${NONE}"}}},
            ["variable_unset: [verifier.env] K = '${NOPE}'", "variable_unset: [solution.env] S = '${NONE}'"],
        ),
    ],
)
def test_what_a_sandbox_on_this_machine_cannot_do(config: dict[str, Any], found: list[str]) -> None:
    assert rules(config) == found


def test_a_deployment_has_gpus_and_host_lists() -> None:
    assert rules({"environment": {"gpus": 8, "network_mode": "allowlist"}}, sandbox="kubernetes") == []


@pytest.mark.parametrize("host", ["192.0.2.2", "10.0.0.0/8", "2001:db8::1"])
def test_host_lists_name_hosts(host: str) -> None:
    agent = {"network_mode": "allowlist", "allowed_hosts": ["pypi.test", "*.pypi.test", host]}
    (said,) = obstacles({"agent": agent}, sandbox="kubernetes", agent="oracle", variables=())
    assert said[0] == "network_unavailable"
    assert said[1].startswith(f"[agent] allowed_hosts: {host} is an address")
    assert rules({"agent": {**agent, "network_mode": "public"}}, sandbox="kubernetes") == []


def test_the_solutions_variables_matter_to_the_oracle_alone() -> None:
    assert rules({"solution": {"env": {"S": "${NONE}"}}}, agent="nop") == []


def test_a_pod_needs_an_image_and_a_process_none() -> None:
    def nothing(path: str) -> bool:
        return False

    assert image_obstacle({}, nothing, sandbox="process") is None
    assert image_obstacle({"environment": {"docker_image": "x"}}, nothing, sandbox="kubernetes") is None
    why = image_obstacle({}, nothing, sandbox="kubernetes")
    assert why == "it has neither environment/Dockerfile nor a docker_image in task.toml; add one"
    several = image_obstacle({}, lambda path: path.endswith(".yaml"), sandbox="kubernetes")
    assert several
    assert several.startswith("environment/docker-compose.yaml describes several containers")


def test_only_the_oracle_misses_a_solution() -> None:
    def has(path: str) -> bool:
        return path == "solution/solve.sh"

    assert not lacks_solution({}, has, agent="oracle")
    assert lacks_solution({}, lambda path: False, agent="oracle")
    assert not lacks_solution({}, lambda path: False, agent="nop")
    assert not lacks_solution({"steps": [{}]}, lambda path: False, agent="oracle")
