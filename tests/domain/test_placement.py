"""Nodes that a request asks for, within what its profile leaves open."""

from typing import Any

import pytest

from harbor_assets.domain.placement import (
    Toleration,
    label_problem,
    placed,
    placement_problems,
    read_toleration,
)
from harbor_assets.domain.profiles import SandboxProfile

PROFILE = SandboxProfile(
    name="p",
    node_selector={"pool": "evals"},
    tolerations=({"key": "evals", "operator": "Exists"},),
    node_selector_keys=("pool", "node.test/type"),
    toleration_keys=("evals", "virtual.test/kind"),
)


@pytest.mark.parametrize(
    ("text", "pod"),
    [
        ("evals", {"key": "evals", "operator": "Exists"}),
        ("evals:NoSchedule", {"key": "evals", "operator": "Exists", "effect": "NoSchedule"}),
        ("a.test/b=c:NoExecute", {"key": "a.test/b", "operator": "Equal", "value": "c", "effect": "NoExecute"}),
        ("a=", {"key": "a", "operator": "Equal", "value": ""}),
    ],
)
def test_a_toleration_is_read_as_kubectl_writes_taints(text: str, pod: dict[str, str]) -> None:
    assert read_toleration(text).as_pod() == pod


@pytest.mark.parametrize("text", ["", "=x", ":NoSchedule", "a:Never", "a b", "a=b c", "a/b/c", "A.Test/x", "a\n", "-a"])
def test_what_is_no_toleration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no |effect"):
        read_toleration(text)


def test_nothing_puts_up_with_everything() -> None:
    with pytest.raises(ValueError, match="no value"):
        Toleration(key="a", operator="Exists", value="b")


@pytest.mark.parametrize(
    ("key", "value", "fits"),
    [
        ("pool", "gpu", True),
        ("node.kubernetes.io/instance-type", "ecs.gn7i-c8g1.2xlarge", True),
        ("pool", "", True),
        ("pool", "a b", False),
        ("pool", "x" * 64, False),
        ("a/b/c", "x", False),
        (f"{'x' * 254}/a", "x", False),
        ("", "x", False),
    ],
)
def test_labels_are_those_of_kubernetes(key: str, value: str, fits: bool) -> None:
    assert (label_problem(key, value) is None) == fits


@pytest.mark.parametrize(
    ("selector", "tolerations", "says"),
    [
        ({"node.test/type": "big"}, ["virtual.test/kind"], []),
        ({"pool": "evals"}, ["evals:NoSchedule"], []),
        (
            {"zone": "a"},
            [],
            [
                "zone: is not among node_selector_keys of sandbox profile 'p' (those open are pool, node.test/type); "
                "take it out, or use another"
            ],
        ),
        ({"pool": "other"}, [], ["pool=other: sandbox profile 'p' itself says pool=evals"]),
        ({}, ["master", "b"], ["master: is not among toleration_keys", "b: is not among"]),
    ],
)
def test_a_profile_says_which_keys(selector: dict[str, str], tolerations: list[str], says: list[str]) -> None:
    found = [why for _, why in placement_problems(selector, [*map(read_toleration, tolerations)], PROFILE)]
    assert [why.startswith(said) for why, said in zip(found, says, strict=True)] == [True] * len(says)


def test_a_profile_of_before_leaves_nothing_open() -> None:
    (found,) = placement_problems({"pool": "x"}, [], SandboxProfile(name="old"))
    assert "none is open" in found[1]


def test_what_was_asked_for_comes_beside_what_the_profile_says() -> None:
    run: Any = placed(PROFILE, {"node.test/type": "big"}, [*map(read_toleration, ["evals", "virtual.test/kind=x"])])
    assert run.node_selector == {"pool": "evals", "node.test/type": "big"}
    assert run.tolerations == (
        {"key": "evals", "operator": "Exists"},
        {"key": "virtual.test/kind", "operator": "Equal", "value": "x"},
    )
    assert placed(PROFILE, {}, []) is PROFILE
