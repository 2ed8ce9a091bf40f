"""The API's digests and names: worked examples as published, and what must hold for any name."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain.digests import canonical_json, digest_of
from harbor_assets.domain.errors import Refused
from harbor_assets.domain.names import Ref, is_digest, name_problem, nearest, short_name, stored_names
from harbor_assets.domain.tasks import (
    Annotation,
    ArchiveSource,
    HarborHash,
    HarborTask,
    TaskInput,
    TasksetInput,
    taskset_digest,
)

A, B, C = "a" * 64, "b" * 64, "c" * 64
HELLO = {
    "metadata": [],
    "spec": {
        "inputs": {"instruction": None},
        "intent": "Say hello",
        "kind": "evaluator",
        "metrics": [],
        "reference": {},
        "views": {},
    },
}


def harbor_task(**changes) -> HarborTask:
    fields = {
        "native_task_id": "harbor/hello-world",
        "source": ArchiveSource(fileset_ref=f"default/harbor-tasks#hello/{A}/task_archive", files_hash=A),
        "harbor_hash": HarborHash(digest=B, harbor_version="0.26.0"),
        "instruction": "Say hello",
        "config": {"agent": {"timeout_sec": 120.0}},
    }
    return HarborTask(**(fields | changes))


def test_the_worked_example_of_the_contract():
    assert digest_of(HELLO) == "d2b7b915255fa52a9d2ebec9390d75afbd568446d19ea6dc0459b79eda407c6b"


def test_an_evaluator_task_has_the_digest_of_the_worked_example():
    body = TaskInput.model_validate({"spec": {"kind": "evaluator", "intent": "Say hello"}})
    assert body.digest() == "d2b7b915255fa52a9d2ebec9390d75afbd568446d19ea6dc0459b79eda407c6b"


def test_what_an_evaluator_tasks_digest_is_made_of():
    spec = {
        "kind": "evaluator",
        "intent": "i",
        "inputs": {"extra": [1.0]},
        "metrics": ["exact"],
        "views": {"v": {"reducer": "mean", "signals": [{"metric": "m", "output": "o"}]}},
    }
    body = TaskInput.model_validate({"spec": spec}).qualified("ws")
    completed = spec | {
        "inputs": {"extra": [1.0], "instruction": None},
        "metrics": ["ws/exact"],
        "reference": {},
        "views": {"v": {"reducer": "mean", "signals": [{"metric": "m", "output": "o", "weight": None}]}},
    }
    assert body.digest() == digest_of({"metadata": [], "spec": completed})


def test_canonical_json_sorts_keys_escapes_and_has_no_spaces():
    assert canonical_json({"b": [1, 1.0], "a": "é"}) == b'{"a":"\\u00e9","b":[1,1.0]}'


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_does_not_have_are_refused(value):
    with pytest.raises(ValueError, match="JSON"):
        digest_of({"x": value})


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_canonical_json_says_the_same_and_does_not_depend_on_the_order_of_keys(value):
    data = canonical_json(value)
    assert json.loads(data) == value
    if isinstance(value, dict):
        assert canonical_json(dict(reversed(value.items()))) == data


def test_a_task_digest_is_over_metadata_and_spec_without_config():
    body = TaskInput(spec=harbor_task(), metadata=[Annotation(key="suite", value="x")], tags=["blessed"])
    payload = {
        "metadata": [{"key": "suite", "value": "x"}],
        "spec": {
            "harbor_hash": {
                "digest": B,
                "harbor_version": "0.26.0",
                "method": "harbor-packager-content-v1",
                "source_commit": None,
            },
            "instruction": "Say hello",
            "kind": "harbor",
            "metrics": [],
            "native_task_id": "harbor/hello-world",
            "source": {
                "archive_format": "tar-gzip-v1",
                "files_hash": A,
                "fileset_ref": f"default/harbor-tasks#hello/{A}/task_archive",
                "kind": "fileset-archive",
            },
            "views": {},
        },
    }
    assert body.digest() == digest_of(payload)


def test_what_moves_a_task_digest_and_what_does_not():
    first = TaskInput(spec=harbor_task()).digest()
    assert TaskInput(spec=harbor_task(config={}), tags=["t"]).digest() == first
    moved = [
        harbor_task(instruction="Say goodbye"),
        harbor_task(harbor_hash=HarborHash(digest=B, harbor_version="0.27.0")),
        harbor_task(source=ArchiveSource(fileset_ref=f"other/harbor-tasks#hello/{A}/task_archive", files_hash=A)),
        harbor_task(metrics=["default/exact"]),
    ]
    assert len({first, *(TaskInput(spec=spec).digest() for spec in moved)}) == 5


def test_a_taskset_digest_does_not_depend_on_the_order_of_members():
    nothing = {"description": None, "files_ref": None, "metadata": []}
    pinned = [f"default/a#{A}", f"default/b#{B}"]
    assert taskset_digest(pinned, **nothing) == taskset_digest(pinned[::-1], **nothing)
    assert taskset_digest(pinned, **nothing) == digest_of({**nothing, "tasks": pinned})
    assert taskset_digest([f"default/a#{C}", pinned[1]], **nothing) != taskset_digest(pinned, **nothing)
    assert taskset_digest(pinned, **(nothing | {"description": ""})) != taskset_digest(pinned, **nothing)


def test_metadata_keys_are_unique():
    doubled = [Annotation(key="k", value=1), Annotation(key="k", value=2)]
    with pytest.raises(ValueError, match="unique"):
        TaskInput(spec=harbor_task(), metadata=doubled)
    with pytest.raises(ValueError, match="unique"):
        TasksetInput(tasks=[], metadata=doubled)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("hello", ("ws", "hello", None)),
        ("other/hello", ("other", "hello", None)),
        ("hello#latest", ("ws", "hello", "latest")),
        (f"other/Hello_1.0-x#{A}", ("other", "Hello_1.0-x", A)),
    ],
)
def test_references_are_read_and_written_back(text, parts):
    ref = Ref.parse(text, workspace="ws")
    assert (ref.workspace, ref.name, ref.fragment) == parts
    assert Ref.parse(str(ref), workspace="elsewhere") == ref


@pytest.mark.parametrize("text", ["", "a/b/c", "a b", "a#", "#x", "a/", "/a", "a#b#c", "a\n", "ws/hello#a/b"])
def test_what_is_not_a_reference_is_refused_with_the_grammar(text):
    with pytest.raises(Refused, match="workspace/name#digest"):
        Ref.parse(text, workspace="ws")


def test_a_fragment_is_a_digest_only_as_64_lower_case_hexadecimal_characters():
    assert is_digest(A)
    assert not any(map(is_digest, [A[:-1], A + "a", A.upper(), "g" * 64, A + "\n"]))
    assert Ref.parse(f"t#{A}", workspace="w").digest == A
    assert Ref.parse("t#latest", workspace="w").digest is None
    assert Ref.parse(f"t#{A}", workspace="w").partition_key == "w/t#aaaaaaaaaaaa"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "empty"),
        ("x" * 256, "256 characters"),
        ("a b", "' '"),
        ("a/b", "'/'"),
        ("..", "meaning of its own"),
        ("a\n", "allowed are"),
    ],
)
def test_names_the_catalog_cannot_hold(name, problem):
    assert problem in (name_problem(name) or "")


@pytest.mark.parametrize("name", ["x", "x" * 255, "Upper", "a.b", "_", "-", "0", "größe", "..."])
def test_names_the_catalog_holds(name):
    assert name_problem(name) is None


NATIVE = st.from_regex(r"([a-zA-Z0-9]{1,3}/)?[a-zA-Z0-9._-]{1,4}", fullmatch=True)


@given(st.lists(NATIVE, unique_by=str.casefold, max_size=12))
def test_stored_names_differ_also_ignoring_case(natives):
    names = stored_names("suite", natives)
    assert len({name.casefold() for name in names}) == len(natives)
    for native, name in zip(natives, names, strict=True):
        assert name.startswith(f"suite-{short_name(native)}")


@given(st.lists(NATIVE, unique_by=str.casefold, max_size=8), st.randoms())
def test_a_stored_name_does_not_depend_on_the_order_of_the_source(natives, random):
    named = dict(zip(natives, stored_names("suite", natives), strict=True))
    shuffled = random.sample(natives, len(natives))
    assert dict(zip(shuffled, stored_names("suite", shuffled), strict=True)) == named


def test_only_colliding_stored_names_get_a_suffix():
    names = stored_names("s", ["a/x", "b/X", "c/y"])
    assert names[2] == "s-y"
    assert all(name.startswith(("s-x-", "s-X-")) and len(name) == len("s-x-") + 8 for name in names[:2])


def test_nearest_names_are_found_in_spite_of_case_and_typing():
    assert nearest("helo-wrld", ["Hello-World", "goodbye", "zebra"])[0] == "Hello-World"
    assert nearest("qqqq", ["hello"]) == []
