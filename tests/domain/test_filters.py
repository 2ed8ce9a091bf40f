"""Filters: the three ways to write one mean the same, limits hold, and what is no filter says so."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain.errors import Malformed
from harbor_assets.domain.filter_syntax import parse_filter
from harbor_assets.domain.filters import TASK_FIELDS, TASKSET_FIELDS, Fact, Filter, holds

A = "a" * 64
FACTS: list[Fact] = [
    ("id", "", "task-1"),
    ("name", "", "capital-of-france"),
    ("project", "", None),
    ("kind", "", "evaluator"),
    ("intent", "", "Name the Capital City"),
    ("native_task_id", "", None),
    ("metrics", "", "ws/exact"),
    ("tags", "", "blessed"),
    ("metadata", "suite", "geography"),
    ("metadata", "level", 3),
    ("metadata", "verified", True),
    ("metadata", "nothing", None),
    ("created_at", "", datetime(2026, 1, 2, tzinfo=UTC)),
]
DATA = {"spec": {"inputs": {"x": [1, {"key": "a", "n": 5}], "text": "hello"}}}


def read(*parameters: tuple[str, str], fields: Any = TASK_FIELDS) -> Filter | None:
    return parse_filter(parameters, fields=fields, workspace="ws")


def answers(*parameters: tuple[str, str]) -> bool:
    asked = read(*parameters)
    return asked is None or holds(asked, FACTS, DATA)


@pytest.mark.parametrize(
    ("brackets", "text", "as_json"),
    [
        ({"filter[kind]": "evaluator"}, 'kind:"evaluator"', {"kind": "evaluator"}),
        ({"filter[intent][like]": "capital"}, 'intent~"capital"', {"intent": {"$like": "capital"}}),
        ({"filter[name][$in]": "a,b"}, 'name IN ["a", "b"]', {"name": {"$in": ["a", "b"]}}),
        ({"filter[name][nin]": "a"}, 'name not in ["a"]', {"name": {"$nin": ["a"]}}),
        ({"filter[metadata.suite]": "x"}, 'metadata["suite"]:"x"', {"metadata": {"suite": "x"}}),
        ({"filter[metadata[suite]]": "x"}, 'metadata.suite:"x"', {"metadata[suite]": "x"}),
        ({"filter[project]": ""}, "project:null", {"project": None}),
        ({"filter[kind][not]": '{"$eq": "harbor"}'}, '-kind:"harbor"', {"kind": {"$not": {"$eq": "harbor"}}}),
        (
            {"filter[kind]": "a", "filter[name]": "b"},
            'kind:"a" name:"b"',
            {"$and": [{"kind": "a"}, {"name": "b"}]},
        ),
        ({"filter[metrics]": "exact"}, 'metrics:"ws/exact"', {"metrics": {"$eq": "exact"}}),
    ],
)
def test_three_ways_to_say_the_same(brackets: dict[str, str], text: str, as_json: Any) -> None:
    meant = read(("filter", json.dumps(as_json)))
    assert meant is not None
    assert read(*brackets.items()) == meant
    assert read(("filter", text)) == meant


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('kind:"evaluator" name:"capital-of-france"', True),
        ('kind:"Evaluator"', False),
        ('kind:"harbor" or kind:"evaluator" and name:"nope"', False),
        ('(kind:"harbor" or kind:"evaluator") AND name:"capital-of-france"', True),
        ('-(kind:"harbor" OR name:"x")', True),
        ('intent~"capital city"', True),
        ("metadata.level > 2 metadata.level<=3", True),
        ("metadata.level:3.0", True),
        ("metadata.nothing:null", True),
        ("metadata.absent:null", False),
        ('metadata["absent"] NOT IN ["x"]', False),
        ('metadata.suite NOT IN ["x"]', True),
        ('created_at > "2026-01-01" created_at < "2026-01-02T01:00:00+00:30"', True),
        ("project:null", True),
    ],
)
def test_what_a_text_asks(text: str, expected: bool) -> None:
    assert answers(("filter", text)) is expected


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"metadata.verified": True}, True),
        ({"metadata.verified": "true"}, False),
        ({"metadata.verified": 1}, False),
        ({"metadata": {"suite": "geography", "level": {"$gte": 3}}}, True),
        ({"metadata": {"suite": "geography", "level": {"$gt": 3}}}, False),
        ({"name": {"$startsWith": "capital"}, "intent": {"$endsWith": "city"}}, False),
        ({"name": {"$startsWith": "capital"}, "intent": {"$endsWith": "City"}}, True),
        ({"tags": {"$in": ["x", "blessed"]}}, True),
        ({"metrics": "other/exact"}, False),
        ({"workspace": "elsewhere"}, True),
        ({"$not": {"workspace": "elsewhere"}}, True),
        ({"entity_type": "task"}, True),
        ({"entity_type": "taskset"}, False),
        ({"kind": {"$or": [{"$eq": "x"}, {"$like": "EVAL"}]}}, True),
        ({"data.spec.inputs.x": {"$contains": 1}}, True),
        ({"data.spec.inputs.x": {"$elemMatch": {"key": "a", "n": {"$gt": 4}}}}, True),
        ({"data.spec.inputs.x": {"$elemMatch": {"key": "a", "n": {"$gt": 5}}}}, False),
        ({"data.spec.inputs": {"$hasKey": "text"}}, True),
        ({"data.spec.inputs.text": "hello"}, True),
        ({"data.spec.nope": None}, True),
    ],
)
def test_what_json_asks(asked: Any, expected: bool) -> None:
    assert answers(("filter", json.dumps(asked))) is expected


def test_a_bracket_value_is_a_text() -> None:
    assert not answers(("filter[metadata.verified]", "true"))
    assert not answers(("filter[metadata.level]", "3"))
    assert answers(("filter[metadata.suite]", "geography"), ("filter[tags]", "blessed"))
    assert answers(("filter", 'kind:"evaluator"'), ("filter[kind]", "harbor")), "brackets count only without filter="
    assert read(("page", "1")) is None


def test_members_are_matched_at_any_revision_or_at_one_and_never_by_tag() -> None:
    facts: list[Fact] = [("tasks", "", "ws/t"), ("tasks", "", f"ws/t#{A}")]
    for text, expected in (("t", True), ("ws/t", True), (f"t#{A}", True), (f"t#{'b' * 64}", False), ("u", False)):
        asked = read(("filter[tasks]", text), fields=TASKSET_FIELDS)
        assert asked is not None
        assert holds(asked, facts) is expected
    with pytest.raises(Malformed, match="latest"):
        read(("filter[tasks]", "t#latest"), fields=TASKSET_FIELDS)
    with pytest.raises(Malformed, match="kind"):
        read(("filter[kind]", "harbor"), fields=TASKSET_FIELDS)


@pytest.mark.parametrize(
    "asked",
    [
        '{"size": 1}',
        '{"kind.x": 1}',
        '{"data": 1}',
        '{"kind": {"$near": 1}}',
        '{"kind": {"$contains": "x"}}',
        '{"kind": {"$eq": "a", "$or": []}}',
        '{"$and": [{"kind": "a"}], "name": "b"}',
        '{"$and": []}',
        '{"$or": {"kind": "a"}}',
        '{"$not": [{"kind": "a"}]}',
        '{"kind": ["a"]}',
        '{"kind": {"a": 1}}',
        '{"kind": {"$in": "a"}}',
        '{"tags": {"$like": "a"}}',
        '{"tags": {"$in": []}}',
        '{"metrics": "not a ref"}',
        '{"metrics": "a#b"}',
        '{"intent": {"$like": 1}}',
        '{"created_at": {"$gt": "yesterday"}}',
        '{"created_at": {"$like": "2026"}}',
        '{"metadata": "x"}',
        '{"metadata.x": {"$gt": true}}',
        '{"kind": "a", "kind": "b"}',
        '{"metadata.x": NaN}',
        '{"metadata.x": 1e999}',
        '{"kind": "\\ud800"}',
        "{",
        "[]",
        "kind:harbor",
        'kind:"a',
        '(kind:"a"',
        'kind:"a")',
        'kind ? "a"',
        'kind NOT ["a"]',
        'AND kind:"a"',
        'metadata:"x"',
        "-",
        '"a"',
    ],
)
def test_what_is_no_filter_is_refused(asked: str) -> None:
    with pytest.raises(Malformed):
        read(("filter", asked))


@pytest.mark.parametrize(
    "asked",
    [
        '{"$not":' * 50 + '{"kind":"a"}' + "}" * 50,
        "[" * 10_000,
        '{"a":' * 3_000,
        "-" * 200 + 'kind:"a"',
        "(" * 200 + 'kind:"a"' + ")" * 200,
        " ".join(['kind:"a"'] * 101),
        json.dumps({"name": {"$in": list(range(1001))}}),
        json.dumps({"name": "x" * 17_000}),
    ],
)
def test_filters_built_to_explode_are_refused(asked: str) -> None:
    with pytest.raises(Malformed):
        read(("filter", asked))


@given(st.text(max_size=60) | st.from_regex(r'[-("\[{ a-z:~<>,$0-9}\])]{0,60}', fullmatch=True))
def test_any_text_is_a_filter_or_malformed(text: str) -> None:
    for parameter in (("filter", text), (f"filter[{text}]", "x"), ("filter[metadata.x]", text)):
        try:
            read(parameter)
        except Malformed as error:
            str(error).encode()
