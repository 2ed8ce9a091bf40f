"""Scoring given trials: the rows of scores.jsonl, and what a summary makes of them."""

from typing import Any

import pytest

from harbor_assets.domain.agent_eval import AgentEvalTask
from harbor_assets.domain.bundle import Trial
from harbor_assets.domain.errors import Refused
from harbor_assets.domain.metrics.bodies import MetricInline, bundled
from harbor_assets.domain.summary import summarise
from harbor_assets.engine.scoring import check_trials, prepare, score
from harbor_assets.templating import SandboxedTemplates

T = SandboxedTemplates()
EXACT = bundled({"type": "exact-match", "reference": "{{item.expected}}", "candidate": "{{item.output}}"})
NUMBER = bundled(
    {"type": "number-check", "operation": "==", "left_template": "{{reference.n}}", "right_template": "{{output_text}}"}
)


def task(name: str = "capital", *metrics: MetricInline, **more: Any) -> AgentEvalTask:
    given = {"id": name, "intent": "Answer.", "reference": {"expected": "Paris", "n": 7}, "metrics": metrics or [EXACT]}
    return AgentEvalTask.model_validate(given | more)


def trial(name: str, text: str | None = None, *, of: str = "capital", status: str = "completed", **more: Any) -> Trial:
    output = None if status == "failed" else {"output_text": text}
    return Trial.model_validate({"id": name, "task_id": of, "status": status, "output": output, **more})


def scores(tasks: list[AgentEvalTask], trials: list[Trial]):
    ready = prepare(tasks, T)
    check_trials(ready, trials)
    return ready, list(score("run-1", ready, trials, T))


def test_every_trial_gets_a_score_from_every_metric_of_its_task():
    _, found = scores([task("capital", EXACT, NUMBER)], [trial("a", "paris."), trial("b", "it is 7"), trial("c", "?")])
    assert [s.id for s in found[:2]] == ["run-1:capital:a:exact-match", "run-1:capital:a:number-check"]
    assert [[o.value for o in s.outputs] for s in found] == [[1.0], ["NaN"], [0.0], [1.0], [0.0], ["NaN"]]
    assert {s.status for s in found} == {"completed"}
    assert found[0].metadata == {"row_index": 0, "trial_metadata": {}}


def test_a_dead_trial_and_a_broken_metric_are_told_apart_and_neither_is_a_zero():
    dead = trial("dead", status="failed", error={"type": "Timeout", "message": "after 9 s"})
    ready, found = scores([task()], [trial("good", "Paris"), dead, trial("silent", None)])
    good, of_dead, broken = found
    assert good.outputs[0].value == 1.0
    assert of_dead.of_dead_trial
    assert "Timeout, after 9 s" in of_dead.diagnostics[0].message
    assert broken.status == "failed"
    assert not broken.of_dead_trial
    assert "exception_type" in broken.diagnostics[0].details
    summary = summarise([one.row for one in ready], [], found)
    exact = summary.aggregate("exact-match.exact-match")
    assert exact is not None
    assert (exact.mean, exact.count, exact.nan_count) == (1.0, 1, 2)
    coverage = summary.metric_coverage["exact-match"]["exact-match"]
    assert (coverage.total, coverage.scored, coverage.failed, coverage.missing) == (3, 1, 2, 0)


def test_a_number_that_is_not_there_is_no_zero_either():
    ready, found = scores([task("capital", NUMBER)], [trial("a", "7"), trial("b", "seven")])
    aggregate = summarise([one.row for one in ready], [], found).aggregate("number-check.number-check")
    assert aggregate is not None
    assert (aggregate.mean, aggregate.count, aggregate.nan_count) == (1.0, 1, 1)


def test_views_are_reduced_from_the_declared_outputs():
    signals = [{"metric": "exact-match", "output": "exact-match"}, {"metric": "number-check", "output": "number-check"}]
    views = {"both": {"reducer": "all", "signals": signals}}
    ready, found = scores([task("capital", EXACT, NUMBER, views=views)], [trial("a", "Paris"), trial("b", "7")])
    aggregate = summarise([one.row for one in ready], [], found).aggregate("view.both")
    assert aggregate is not None
    assert (aggregate.count, aggregate.nan_count, aggregate.mean) == (1, 1, 0.0)


def test_every_task_that_cannot_be_scored_is_named_at_once():
    judge = {"type": "llm-judge", "model": "m", "scores": [{"name": "q", "minimum": 0, "maximum": 1}]}
    pickled = MetricInline.model_validate(
        {
            "metric_type": "mine",
            "outputs": [{"name": "x", "value_json_schema": {"type": "number"}}],
            "payload": {
                "kind": "cloudpickle",
                "python_version": "3",
                "cloudpickle_version": "3",
                "pickle_protocol": 5,
                "blob": "gASVAAAA",
                "digest": "d",
            },
        }
    )
    remote = {
        "metric_type": "remote",
        "outputs": pickled.outputs,
        "payload": {"metric": {"type": "remote"}, "kind": "inline"},
    }
    tasks = [
        AgentEvalTask(id="none", intent=""),
        task("judge", bundled(judge)),
        task("pickled", pickled),
        task("remote", MetricInline.model_validate(remote)),
        task("loop", bundled({"type": "f1", "reference": "{% for x in y %}{% endfor %}"})),
        task("twice", EXACT, bundled({"type": "exact-match", "reference": "x"})),
        task("view", views={"v": {"reducer": "any", "signals": [{"metric": "f1", "output": "f1"}]}}),
    ]
    with pytest.raises(Refused) as refused:
        prepare(tasks, T)
    said = {problem.subject: problem.message for problem in refused.value.problems}
    assert set(said) == {one.id for one in tasks}
    assert "language model" in said["judge"]
    assert "nothing here loads" in said["pickled"]
    assert "a loop" in said["loop"]


def test_trials_and_tasks_must_belong_together():
    ready = prepare([task(), task("other")], T)
    with pytest.raises(Refused) as refused:
        check_trials(ready, [trial("a", "x"), trial("a", "y"), trial("b", "x", of="nowhere")])
    assert [p.subject for p in refused.value.problems] == ["other", "nowhere", "a"]


def test_a_task_s_members_come_before_the_agent_s_answer():
    of = task(
        "capital",
        bundled({"type": "exact-match", "reference": "{{item.expected}}", "candidate": "{{item.output}}"}),
        reference={"expected": "Paris", "output": "Paris"},
    )
    _, found = scores([of], [trial("a", "Rome")])
    assert found[0].outputs[0].value == 1.0
    sample = task("capital", bundled({"type": "f1", "reference": "{{sample.response.answer}}"}))
    answered = Trial.model_validate(
        {
            "id": "a",
            "task_id": "capital",
            "status": "completed",
            "output": {"output_text": "yes", "response": {"answer": "yes"}},
        }
    )
    assert scores([sample], [answered])[1][0].outputs[0].value == 1.0
