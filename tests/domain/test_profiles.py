"""Profiles narrow and limit, and never the other way."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from harbor_assets.domain.profiles import (
    PUBLIC,
    NetworkPolicy,
    SandboxProfile,
    allows,
    flag_problems,
    narrow,
    task_problems,
)

NAMES = ("a.org", "x.a.org", "y.x.a.org", "b.org", "x.b.org", "org")
HOSTS = st.sampled_from([*NAMES, *(f"*.{name}" for name in NAMES)])


def profile(**fields: Any) -> SandboxProfile:
    return SandboxProfile.model_validate({"name": "p", "hosts": PUBLIC, **fields})


policies = st.one_of(
    st.just(NetworkPolicy()),
    st.just(NetworkPolicy(mode="no-network")),
    st.lists(HOSTS, min_size=1, max_size=4).map(lambda hosts: NetworkPolicy(mode="allowlist", hosts=tuple(hosts))),
)
profiles = st.one_of(st.just(profile()), st.lists(HOSTS, max_size=4).map(lambda hosts: profile(hosts=tuple(hosts))))


def profile_allows(given: SandboxProfile, host: str) -> bool:
    return given.hosts == PUBLIC or allows(NetworkPolicy(mode="allowlist", hosts=given.hosts), host)


@given(policies, profiles, st.sampled_from(NAMES))
def test_a_host_is_open_where_task_and_profile_both_open_it(
    policy: NetworkPolicy, given: SandboxProfile, host: str
) -> None:
    assert allows(narrow(policy, given), host) is (allows(policy, host) and profile_allows(given, host))


@given(policies, profiles)
def test_narrowing_twice_changes_nothing_more(policy: NetworkPolicy, given: SandboxProfile) -> None:
    once = narrow(policy, given)
    assert set(narrow(once, given).hosts) == set(once.hosts)
    assert narrow(once, given).mode == once.mode
    assert (once.mode == "allowlist") == bool(once.hosts)


@pytest.mark.parametrize(
    ("policy", "hosts", "found"),
    [
        (NetworkPolicy(), (), NetworkPolicy(mode="no-network")),
        (NetworkPolicy(), ("site.test",), NetworkPolicy(mode="allowlist", hosts=("site.test",))),
        (NetworkPolicy(mode="no-network"), PUBLIC, NetworkPolicy(mode="no-network")),
        (
            NetworkPolicy(mode="allowlist", hosts=("192.0.2.1", "site.test")),
            PUBLIC,
            NetworkPolicy(mode="allowlist", hosts=("192.0.2.1", "site.test")),
        ),
        (NetworkPolicy(mode="allowlist", hosts=("192.0.2.1",)), ("site.test",), NetworkPolicy(mode="no-network")),
    ],
)
def test_what_is_left(policy: NetworkPolicy, hosts: tuple[str, ...], found: NetworkPolicy) -> None:
    assert narrow(policy, profile(hosts=hosts)) == found


@pytest.mark.parametrize(
    "host", ["https://site.test", "site.test:443", "site.test/simple", "a*.org", "10.0.0.1", "*.", "", "a..b", "-a.org"]
)
def test_what_is_no_host_name_is_refused(host: str) -> None:
    with pytest.raises(ValidationError, match="host names"):
        profile(hosts=(host,))


def test_everything_beside_names_is_refused() -> None:
    with pytest.raises(ValidationError, match="exactly"):
        profile(hosts=("*", "site.test"))


def test_host_names_are_kept_in_one_spelling() -> None:
    assert profile(hosts=(" Site.Test. ",)).hosts == ("site.test",)


def test_a_flag_above_a_ceiling_names_value_rule_and_next_step() -> None:
    given = profile(max_cpus=4, max_memory_mb=8192, max_disk_mb=1000)
    sizes = {"cpus": 8, "memory_mb": 8192, "storage_mb": 1001}
    assert list(flag_problems(sizes, given)) == [
        ("cpus", "8 is above max_cpus = 4 of sandbox profile 'p'; ask for less, or choose another profile"),
        (
            "storage_mb",
            "1001 is above max_disk_mb = 1000 of sandbox profile 'p'; ask for less, or choose another profile",
        ),
    ]


LIMITED = profile(max_cpus=2, max_memory_mb=4096, max_storage_mb=1024, max_lifetime_seconds=3600)


@pytest.mark.parametrize(
    ("config", "replaced", "found"),
    [
        ({}, (), []),
        ({"environment": {"cpus": 2, "memory_mb": 4096, "storage_mb": 1024}}, (), []),
        ({"environment": {"cpus": 4}}, (), ["resources_exceed_policy: [environment] cpus = 4 is above max_cpus = 2"]),
        ({"environment": {"cpus": 4}}, ("cpus",), []),
        ({"environment": {"memory": "5G"}}, (), ["resources_exceed_policy: [environment] memory_mb = 5120"]),
        (
            {"environment": {"storage_mb": 2048, "cpus": 9}},
            ("storage_mb",),
            ["resources_exceed_policy: [environment] cpus"],
        ),
        (
            {"environment": {"cpus": 4}, "verifier": {"environment_mode": "separate"}},
            ("cpus",),
            ["resources_exceed_policy: [environment] (of the separate verifier) cpus = 4"],
        ),
        (
            {"verifier": {"environment": {"memory_mb": 9000}}},
            ("memory_mb",),
            ["resources_exceed_policy: [verifier.environment] memory_mb = 9000"],
        ),
        (
            {"steps": [{"name": "one", "verifier": {"environment": {"cpus": 3}}}, {"name": "two"}]},
            (),
            ["resources_exceed_policy: [verifier.environment] of step 'one' cpus = 3"],
        ),
        ({"agent": {"timeout_sec": 3000}}, (), []),
        ({"agent": {"timeout_sec": 3001}}, (), ["timeout_exceeds_policy: agent and verifier together may take 3601 s"]),
        ({"agent": {"timeout_sec": 3600}, "verifier": {"environment_mode": "separate"}}, (), []),
        ({"environment": {"cpus": "many", "memory_mb": True}, "verifier": 3, "steps": "none"}, (), []),
    ],
)
def test_what_a_task_asks_for_above_its_profile(
    config: dict[str, Any], replaced: tuple[str, ...], found: list[str]
) -> None:
    said = list(task_problems(config, replaced, LIMITED))
    assert len(said) == len(found)
    assert all(text.startswith(begin) for text, begin in zip(said, found, strict=True))


def test_gpus_need_a_profile_that_has_them() -> None:
    config = {"environment": {"gpus": 1}, "verifier": {"environment": {"gpus": 2}}}
    assert [why.partition(":")[0:3:2] for why in task_problems(config, (), profile())] == [
        ("gpus_unavailable", f" {where}: sandbox profile 'p' has no gpu_resource; choose a profile with GPUs")
        for where in ("[environment] gpus = 1", "[verifier.environment] gpus = 2")
    ]
    assert not list(task_problems(config, (), profile(gpu_resource="nvidia.com/gpu")))
    assert not list(task_problems({"environment": {"gpus": 0}}, (), profile()))
