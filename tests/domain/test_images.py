"""Which images a task needs, and when a key changes."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain.images import (
    ContextEntry,
    ImageNeed,
    ImagesImpossible,
    context_key,
    image_tag,
    partition_key,
    plan_images,
)
from harbor_assets.images.reference import parse

FILES = {"environment/Dockerfile", "tests/test.sh"}


def planned(config: dict[str, Any], *files: str) -> list[tuple[str, str | None, str | None]]:
    found = plan_images(config, ({*FILES, *files}).__contains__)
    return [(need.role, need.context, need.image) for need in found]


AGENT = ("agent", "environment", None)


@pytest.mark.parametrize(
    ("config", "files", "found"),
    [
        ({}, (), [AGENT]),
        ({"environment": {"docker_image": "busybox:1"}}, (), [("agent", None, "busybox:1")]),
        ({"verifier": {"environment_mode": "shared"}}, ("tests/Dockerfile",), [AGENT]),
        ({"verifier": {"environment_mode": "separate"}}, (), [AGENT, ("verifier", "environment", None)]),
        ({"verifier": {"environment": {}}}, ("tests/Dockerfile",), [AGENT, ("verifier", "tests", None)]),
        (
            {"environment": {"docker_image": "a:1"}, "verifier": {"environment_mode": "separate"}},
            ("tests/Dockerfile",),
            [("agent", None, "a:1"), ("verifier", "tests", None)],
        ),
        (
            {"verifier": {"environment": {"docker_image": "v:1"}}},
            ("tests/Dockerfile",),
            [AGENT, ("verifier", None, "v:1")],
        ),
        (
            {"verifier": {"environment_mode": "separate"}, "steps": [{"name": "a"}]},
            (),
            [AGENT, ("verifier", "environment", None)],
        ),
        (
            {"verifier": {"environment_mode": "separate"}, "steps": [{"verifier": {"environment_mode": "shared"}}]},
            (),
            [AGENT],
        ),
    ],
)
def test_the_images_of_a_task(config: dict[str, Any], files: tuple[str, ...], found: list[object]) -> None:
    assert planned(config, *files) == found


@pytest.mark.parametrize(
    ("config", "files", "why"),
    [
        ({"environment": {"os": "Windows"}}, (), "only linux"),
        ({}, ("environment/docker-compose.yaml",), "several containers"),
        ({"verifier": {"environment": {}}}, ("tests/docker-compose.yaml",), "tests/docker-compose.yaml"),
        ({"steps": [{"verifier": {"environment": {"cpus": 1}}}]}, (), "a step has"),
        (
            {"verifier": {"environment_mode": "separate"}, "steps": [{"name": "one"}]},
            ("steps/one/tests/Dockerfile",),
            "the step one has a",
        ),
    ],
)
def test_what_one_container_cannot_give(config: dict[str, Any], files: tuple[str, ...], why: str) -> None:
    with pytest.raises(ImagesImpossible, match=why):
        planned(config, *files)


def test_a_task_without_any_image_says_what_to_add() -> None:
    with pytest.raises(ImagesImpossible, match=r"neither environment/Dockerfile nor a docker_image"):
        plan_images({}, lambda _: False)


def test_the_time_a_build_may_take_is_the_tasks() -> None:
    (need,) = plan_images({"environment": {"build_timeout_sec": 90}}, FILES.__contains__)
    assert need == ImageNeed(role="agent", context="environment", build_seconds=90)


entries = st.lists(
    st.builds(
        ContextEntry,
        st.text(min_size=1, max_size=5),
        st.sampled_from(["file", "folder", "link"]),
        st.sampled_from([0o644, 0o755]),
        st.binary(max_size=5).map(lambda data: (data,)),
    ),
    max_size=4,
    unique_by=lambda entry: entry.path,
)


@given(entries, st.randoms())
def test_a_key_does_not_know_an_order(found: list[ContextEntry], random: Any) -> None:
    mixed = list(found)
    random.shuffle(mixed)
    assert context_key(mixed) == context_key(found)


@given(entries, entries)
def test_different_contexts_have_different_keys(one: list[ContextEntry], other: list[ContextEntry]) -> None:
    assert (context_key(one) == context_key(other)) is (sorted(one) == sorted(other))


def test_a_key_knows_platform_and_arguments() -> None:
    keys = [
        context_key([], platform=platform, build_args=arguments)
        for platform, arguments in itertools.product((None, "linux/arm64"), ({}, {"A": "1"}, {"A": "2"}))
    ]
    assert len(set(keys)) == len(keys)


def test_how_bytes_are_cut_up_does_not_matter() -> None:
    whole, pieces = ContextEntry("f", "file", 0o644, (b"abc",)), ContextEntry("f", "file", 0o644, (b"a", b"bc"))
    assert context_key([whole]) == context_key([pieces])


@given(st.text(max_size=300))
def test_every_task_gets_a_tag_that_registries_take(name: str) -> None:
    key = "0123456789abcdef" * 4
    tag = image_tag("registry.test:5000/evals", name, key)
    found = parse(tag)
    assert found.registry == "registry.test:5000"
    assert found.tag == key[:32]
    assert found.repository.startswith("evals/")


def test_a_partition_is_named_by_twelve_characters_of_the_digest() -> None:
    assert partition_key("r/x@sha256:" + "0123456789ab" + "f" * 52) == "sha256:0123456789ab"
