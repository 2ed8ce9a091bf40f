import math

import pytest
from pydantic import ValidationError

from harbor_assets.domain.metrics.bodies import BLOB_MAX, MetricInline, bundled
from harbor_assets.domain.metrics.builtin import Computed, definition
from harbor_assets.domain.metrics.checks import check_numbers, check_strings, last_number

EXACT = {"type": "exact-match", "reference": "{{item.expected}}", "candidate": "{{item.output}}"}
JUDGE = {
    "type": "llm-judge",
    "model": {"url": "https://models.example/v1", "name": "judge", "api_key_secret": "judge-key"},
    "scores": [
        {"name": "quality", "minimum": 1, "maximum": 5},
        {"name": "tone", "rubric": [{"label": "rude", "value": 0}, {"label": "kind", "value": 1}]},
    ],
    "prompt_template": {"messages": [{"role": "user", "content": "Rate {{item.output}}"}]},
}


def inline(metric: dict, **more) -> dict:
    return bundled(metric).model_dump(mode="json") | more


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("value is 42", 42),
        ("my reasoning 123 and final answer is 1.2", 1.2),
        ("-3.23 is the answer", -3.23),
        ("The values are 10.5, -3.14, and .75.", 0.75),
        ("context 1.\n", 1),
        ("7-8", -8),
        ("5...", 5),
    ],
)
def test_the_last_number_of_a_text_counts(text, expected):
    assert last_number(text) == expected


@pytest.mark.parametrize("text", ["", ".", "-", "no number", "1.2.3", "127.0.0.1", "9" * 500, "." * 1_000_000])
def test_what_is_no_number_is_none(text):
    assert math.isnan(last_number(text))


@pytest.mark.parametrize(
    ("operation", "left", "right", "holds"),
    [
        ("==", "1", "answer: 1.0", True),
        ("<>", "1", "1", False),
        ("gte", "2", "2", True),
        (">", "2", "2", False),
        ("less than or equal", "-1", "0", True),
        ("lt", "3", "2", False),
    ],
)
def test_numbers_are_compared(operation, left, right, holds):
    assert check_numbers(operation, left, right) == float(holds)


def test_a_difference_up_to_epsilon_holds():
    assert check_numbers("absolute difference", "3.0", "3.25", 0.25) == 1.0
    assert check_numbers("absolute difference", "3.0", "3.4", 0.25) == 0.0
    assert math.isnan(check_numbers("absolute difference", "3.0", "none", 0.25))


@pytest.mark.parametrize(
    ("operation", "holds"),
    [("contains", True), ("not contains", False), ("startswith", True), ("endswith", False), ("equals", False)],
)
def test_strings_are_compared_as_they_stand(operation, holds):
    assert check_strings(operation, "Paris, France", "Paris") == float(holds)


@pytest.mark.parametrize(
    ("metric", "why"),
    [
        (
            {"type": "number-check", "operation": ">", "left_template": "1", "right_template": "2", "epsilon": 5},
            "epsilon",
        ),
        (
            {"type": "number-check", "operation": "absolute difference", "left_template": "", "right_template": ""},
            "epsilon",
        ),
        ({"type": "string-check", "operation": "like", "left_template": "", "right_template": ""}, "operation"),
        ({"type": "exact-match"}, "reference"),
        ({"type": "bleu", "references": []}, "references"),
        ({"type": "f1", "reference": "x" * 20_000}, "reference"),
        ({**JUDGE, "scores": []}, "scores"),
        ({**JUDGE, "scores": [{"name": "Quality", "minimum": 1, "maximum": 5}]}, "name"),
        ({**JUDGE, "scores": [{"name": "q", "minimum": 5, "maximum": 1}]}, "minimum"),
        (
            {
                **JUDGE,
                "scores": [{"name": "q", "minimum": 1, "maximum": 5, "parser": {"type": "regex", "pattern": "("}}],
            },
            "regular",
        ),
    ],
)
def test_a_definition_that_is_not_whole_is_refused(metric, why):
    with pytest.raises(ValidationError, match=why):
        definition(metric)


def test_a_judge_is_checked_and_never_computed():
    judge = definition(JUDGE)
    assert judge is not None
    assert judge.outputs == ("quality", "tone")
    assert judge.templates == {
        "prompt_template.messages[0].content": "Rate {{item.output}}",
        "prompt_template.messages[0].role": "user",
    }
    assert not isinstance(judge, Computed)


def test_a_body_is_refused_where_its_parts_disagree():
    for wrong, why in (
        (inline(EXACT, metric_type="f1"), "metric_type"),
        (inline(EXACT, outputs=[{"name": "f1", "value_json_schema": {"type": "number"}}]), "gives exact-match"),
        (inline(EXACT, outputs=[]), "outputs"),
        (inline(EXACT, surprise=1), "surprise"),
        (inline(EXACT, payload={"kind": "inline", "metric": {"type": "exact-match"}}), "reference"),
    ):
        with pytest.raises(ValidationError, match=why):
            MetricInline.model_validate(wrong)


def test_a_definition_is_kept_as_it_came_and_its_digest_is_ours():
    sent = inline(EXACT)
    sent["payload"] = {"kind": "inline", "digest": "wrong", "metric": {**EXACT, "supported_job_types": ["online"]}}
    body = MetricInline.model_validate(sent)
    kept = body.kept()["payload"]
    assert kept["metric"] == {**EXACT, "supported_job_types": ["online"]}
    # SHA-256 of {"candidate":...,"reference":...,"supported_job_types":["online"],"type":"exact-match"}
    assert kept["digest"] == "0ecc3bf54cdf212a32ba5fa30c58c4a9bba4777c2847b8b06b2ab2b081844e6e"


def test_equal_metrics_have_one_derived_name():
    one, other = bundled(EXACT), bundled(dict(reversed(EXACT.items())))
    assert one.derived_name == other.derived_name
    assert len(one.derived_name) == 63
    assert bundled({**EXACT, "reference": "x"}).derived_name != one.derived_name


def test_a_pickled_payload_is_data_within_limits():
    pickled = {
        "kind": "cloudpickle",
        "python_version": "3.12.1",
        "cloudpickle_version": "3.1",
        "pickle_protocol": 5,
        "blob": "Y29zCnN5c3RlbQou",
        "digest": "d",
    }
    outputs = [{"name": "x", "value_json_schema": {"type": "number"}, "required": False}]
    body = MetricInline.model_validate({"metric_type": "mine", "outputs": outputs, "payload": pickled})
    assert body.kept()["payload"]["blob"] == "Y29zCnN5c3RlbQou"
    assert body.kept()["outputs"][0]["required"] is False
    for wrong in ("not base64!", "", "A" * (BLOB_MAX * 4 // 3 + 8)):
        with pytest.raises(ValidationError):
            MetricInline.model_validate({"metric_type": "m", "outputs": outputs, "payload": {**pickled, "blob": wrong}})
