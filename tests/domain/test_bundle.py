import json

import pytest
from pydantic import ValidationError

from harbor_assets.domain.bundle import (
    BundleError,
    Descriptor,
    Evidence,
    Manifest,
    MetricDescriptor,
    OutputDescriptor,
    Score,
    Summary,
    Trial,
    TrialMeasurements,
    document,
    lines,
)


def test_a_manifest_has_exactly_the_members_of_the_format():
    assert document(Manifest(run_id="run-1", output_dir="here", dashboard_path="report.html")) == (
        b'{\n  "artifacts": {\n    "metadata": "metadata.json",\n    "scores": "scores.jsonl",\n'
        b'    "summary": "summary.json",\n    "tasks": "tasks.jsonl",\n    "trials": "trials.jsonl"\n  },\n'
        b'  "dashboard_path": "report.html",\n  "output_dir": "here",\n  "run_id": "run-1"\n}\n'
    )


def test_only_an_optional_output_says_so():
    outputs = [
        OutputDescriptor(name="reward", value_schema="ContinuousScore"),
        OutputDescriptor(name="format_ok", value_schema="ContinuousScore", required=False),
    ]
    (line,) = lines([MetricDescriptor(type="harbor_reward", outputs=outputs)])
    assert line == (
        b'{"outputs": [{"description": null, "name": "reward", "value_schema": "ContinuousScore"}, '
        b'{"description": null, "name": "format_ok", "required": false, "value_schema": "ContinuousScore"}], '
        b'"type": "harbor_reward"}\n'
    )
    assert MetricDescriptor.model_validate_json(line).outputs == outputs


def test_text_is_escaped_and_what_is_no_text_is_replaced():
    said = BundleError(type="X", message="é\U0001f600\udcff")
    (line,) = lines([Trial(id="1", task_id="t", status="failed", error=said)])
    assert line.isascii()
    assert json.loads(line)["error"]["message"] == "é\U0001f600?"
    assert Trial.model_validate_json(line).error == BundleError(type="X", message="é\U0001f600?")


def test_numbers_that_json_does_not_know_are_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        list(lines([Trial(id="1", task_id="t", status="failed", metadata={"x": float("nan")})]))


def test_unknown_members_are_refused_by_name():
    with pytest.raises(ValidationError, match="surprise"):
        Trial.model_validate({"id": "1", "task_id": "t", "status": "failed", "surprise": 1})


def test_a_completed_trial_has_an_output():
    with pytest.raises(ValidationError, match="has an output"):
        Trial(id="1", task_id="t", status="completed")


def test_evidence_is_read_with_and_without_its_frame():
    bare = {"trial_dir": {"kind": "filesystem", "ref": "evidence/x", "format": "dir"}}
    framed = {"descriptors": bare, "metadata": {}}
    assert Evidence.model_validate(bare) == Evidence.model_validate(framed)
    with pytest.raises(ValidationError, match="a ref or data"):
        Descriptor(kind="log")


def test_total_tokens_follow_from_their_parts():
    assert TrialMeasurements(prompt_tokens=3, completion_tokens=4).total_tokens == 7
    for wrong in ({"total_tokens": 7}, {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 3}):
        with pytest.raises(ValidationError, match="total_tokens"):
            TrialMeasurements(**wrong)
    for wrong in ({"prompt_tokens": True}, {"prompt_tokens": "1"}, {"cost_usd": "1"}, {"cost_usd": float("inf")}):
        with pytest.raises(ValidationError):
            TrialMeasurements.model_validate(wrong)


def test_a_summary_whose_errors_do_not_add_up_is_refused():
    with pytest.raises(ValidationError, match="lists 1"):
        Summary(error_count=2, error_trial_ids={"X": ["a"]})


def test_aggregates_of_every_kind_are_read():
    scores = [
        {"name": "a", "nan_count": 0, "score_type": "range"},
        {"name": "b", "nan_count": 0, "score_type": "scalar", "value": 0.5},
        {"name": "c", "nan_count": 0, "score_type": "rubric", "rubric_distribution": [], "mode_category": None},
    ]
    summary = Summary.model_validate({"scores": {"scores": scores}})
    assert [type(score).__name__ for score in summary.scores.scores] == [
        "Aggregate",
        "ScalarAggregate",
        "RubricAggregate",
    ]
    assert json.loads(document(summary))["scores"]["scores"][1]["value"] == 0.5


def test_only_a_failed_score_of_a_dead_trial_is_one():
    plain = {"id": "x", "run_id": "r", "task_id": "t", "trial_id": "1", "metric_type": "m"}
    detail = [{"severity": "error", "message": "x", "details": {"trial_status": "failed"}}]
    assert Score.model_validate({**plain, "status": "failed", "diagnostics": detail}).of_dead_trial
    assert not Score.model_validate({**plain, "status": "completed", "diagnostics": detail}).of_dead_trial
    assert not Score.model_validate({**plain, "status": "failed"}).of_dead_trial
