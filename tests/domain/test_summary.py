import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain.bundle import (
    AgentOutput,
    Aggregate,
    BundleError,
    BundleTask,
    Diagnostic,
    MetricDescriptor,
    OutputDescriptor,
    OutputValue,
    Score,
    Summary,
    Trial,
)
from harbor_assets.domain.summary import summarise


def task(name: str, *outputs: str, schema: str = "ContinuousScore", **more: Any) -> BundleTask:
    described = [OutputDescriptor(name=o, value_schema=schema, required=i == 0) for i, o in enumerate(outputs)]
    metrics = [MetricDescriptor(type="harbor_reward", outputs=described)]
    return BundleTask(id=name, intent=name, inputs={}, metrics=metrics, **more)


def trial(task_id: str, trial_id: str, error: str | None = None, *, failed: bool = False) -> Trial:
    return Trial(
        id=trial_id,
        task_id=task_id,
        status="failed" if failed else "partial" if error else "completed",
        output=AgentOutput(),
        error=BundleError(type=error) if error else None,
    )


def score(task_id: str, trial_id: str, *, dead: bool = False, broken: bool = False, **outputs: Any) -> Score:
    why = {"trial_status": "failed"} if dead else {"exception_type": "ValueError"}
    return Score(
        id=f"run:{task_id}:{trial_id}:harbor_reward",
        run_id="run",
        task_id=task_id,
        trial_id=trial_id,
        metric_type="harbor_reward",
        status="failed" if dead or broken else "completed",
        outputs=[OutputValue(name=name, value=value) for name, value in outputs.items()],
        diagnostics=[Diagnostic(severity="error", message="x", details=why)] if dead or broken else [],
    )


def aggregate(summary: Summary, name: str) -> Aggregate:
    found = summary.aggregate(name)
    assert isinstance(found, Aggregate), name
    return found


def test_the_worked_example_of_the_format():
    """alpha: {1.0, format_ok 1.0} and {0.0}; beta: a timeout without a reward, and an error with 0.5."""
    summary = summarise(
        [task("alpha", "reward", "format_ok"), task("beta", "reward")],
        [
            trial("alpha", "a1"),
            trial("alpha", "a2"),
            trial("beta", "b1", "AgentTimeoutError"),
            trial("beta", "b2", "RuntimeError"),
        ],
        [
            score("alpha", "a1", reward=1.0, format_ok=1.0),
            score("alpha", "a2", reward=0.0),
            score("beta", "b1", reward=0.0),
            score("beta", "b2", reward=0.5),
        ],
    )
    reward = aggregate(summary, "harbor_reward.reward")
    assert (reward.count, reward.mean, reward.nan_count) == (4, 0.375, 0)
    assert reward.percentiles is not None
    assert reward.percentiles["p50"] == 0.25
    assert reward.std_dev == pytest.approx(0.41458, abs=1e-5)
    assert reward.sample_std_dev == pytest.approx(0.47871, abs=1e-5)
    format_ok = aggregate(summary, "harbor_reward.format_ok")
    assert (format_ok.count, format_ok.nan_count, format_ok.mean) == (1, 1, 1.0)
    figures = {
        name: (aggregate(summary, name).count, aggregate(summary, name).nan_count, aggregate(summary, name).mean)
        for name in ("reward.pass@1", "reward.pass@2", "format_ok.pass@1", "format_ok.pass@2")
        for name in (f"harbor_reward.{name}",)
    }
    assert figures == {
        "harbor_reward.reward.pass@1": (2, 0, 0.25),
        "harbor_reward.reward.pass@2": (2, 0, 0.5),
        "harbor_reward.format_ok.pass@1": (1, 0, 1.0),
        "harbor_reward.format_ok.pass@2": (0, 1, None),
    }
    assert [a.name for a in summary.scores.scores] == [
        "harbor_reward.format_ok",
        "harbor_reward.reward",
        "harbor_reward.format_ok.pass@1",
        "harbor_reward.format_ok.pass@2",
        "harbor_reward.reward.pass@1",
        "harbor_reward.reward.pass@2",
    ]
    assert summary.error_trial_ids == {"AgentTimeoutError": ["b1"], "RuntimeError": ["b2"]}
    assert (summary.task_count, summary.trial_count, summary.score_count, summary.error_count) == (2, 4, 4, 2)
    assert summary.metric_coverage["harbor_reward"]["format_ok"].model_dump() == {
        "total": 2, "scored": 1, "failed": 0, "missing": 1,
    }  # fmt: skip


def test_a_dead_trial_has_no_value_and_is_no_pass_but_a_broken_metric_is_left_out():
    summary = summarise(
        [task("t", "reward")],
        [trial("t", "1"), trial("t", "2", "sandbox_lost", failed=True), trial("t", "3")],
        [score("t", "1", reward=1.0), score("t", "2", dead=True), score("t", "3", broken=True)],
    )
    reward = aggregate(summary, "harbor_reward.reward")
    assert (reward.count, reward.nan_count, reward.mean) == (1, 2, 1.0)
    assert aggregate(summary, "harbor_reward.reward.pass@1").mean == 0.5
    assert aggregate(summary, "harbor_reward.reward.pass@2").mean == 1.0
    assert aggregate(summary, "harbor_reward.reward.pass@3").nan_count == 1
    assert [v.model_dump() for v in summary.task_metric_values["t"]["harbor_reward.reward"]] == [
        {"trial_id": "1", "value_type": "number", "value": 1.0},
        {"trial_id": "2", "value_type": "missing", "value": None},
    ]
    assert summary.metric_coverage["harbor_reward"]["reward"].failed == 2


def test_booleans_and_labels_are_no_numbers_but_booleans_pass():
    summary = summarise(
        [task("b", "ok", schema="BooleanValue"), task("l", "word", schema="Label"), task("o", "x", schema="Chart")],
        [trial("b", "1"), trial("b", "2"), trial("l", "3"), trial("o", "4")],
        [score("b", "1", ok=True), score("b", "2", ok=False), score("l", "3", word="NaN"), score("o", "4", x={"a": 1})],
    )
    assert aggregate(summary, "harbor_reward.ok").count == 0
    assert aggregate(summary, "harbor_reward.ok").nan_count == 2
    assert aggregate(summary, "harbor_reward.ok.pass@1").mean == 0.5
    assert summary.aggregate("harbor_reward.word.pass@1") is None
    assert summary.task_metric_values["b"]["harbor_reward.ok"][0].value is True
    assert summary.task_metric_values["l"]["harbor_reward.word"][0].value_type == "label"
    assert summary.task_metric_values["o"] == {}


def test_a_number_that_is_not_finite_counts_as_a_trial_and_as_no_value():
    summary = summarise(
        [task("t", "reward")],
        [trial("t", "1"), trial("t", "2")],
        [score("t", "1", reward="NaN"), score("t", "2", reward="-Infinity")],
    )
    reward = aggregate(summary, "harbor_reward.reward")
    assert (reward.count, reward.nan_count, reward.mean) == (0, 2, None)
    assert aggregate(summary, "harbor_reward.reward.pass@1").mean == 0.0
    values = summary.task_metric_values["t"]["harbor_reward.reward"]
    assert [(v.value_type, v.value) for v in values] == [("number", "NaN"), ("number", "-Infinity")]


@pytest.mark.parametrize(
    ("reducer", "weights", "mean"),
    [
        ("single", (None, None), 1.0),
        ("all", (None, None), 0.0),
        ("any", (None, None), 1.0),
        ("mean", (None, None), 0.5),
        ("weighted_mean", (3.0, None), 0.75),
        ("weighted_mean", (0.0, 0.0), None),
    ],
)
def test_views_reduce_what_a_trial_gave(reducer: str, weights: tuple[float | None, float | None], mean: float | None):
    signals = [
        {"metric": "harbor_reward", "output": output, "weight": weight}
        for output, weight in zip(("a", "b"), weights, strict=True)
    ]
    views: Any = {"v": {"reducer": reducer, "signals": signals}}
    summary = summarise(
        [task("t", "a", "b", views=views), task("without", "a")],
        [trial("t", "1"), trial("t", "2"), trial("without", "3")],
        [score("t", "1", a=1.0, b=0.0), score("t", "2", a=1.0), score("without", "3", a=9.0)],
    )
    view = aggregate(summary, "view.v")
    assert view.mean == mean
    assert view.nan_count == (1 if mean is not None else 2)


def test_outputs_that_a_task_does_not_declare_say_nothing():
    summary = summarise([task("t", "reward")], [trial("t", "1")], [score("t", "1", reward=1.0, other=5.0)])
    assert [a.name for a in summary.scores.scores] == ["harbor_reward.reward", "harbor_reward.reward.pass@1"]


def test_a_runner_adds_its_own_figures_last():
    mine = Aggregate(name="runner.harbor.x", nan_count=0)
    summary = summarise([task("t", "reward")], [trial("t", "1")], [score("t", "1", reward=1.0)], extra=[mine])
    assert summary.scores.scores[-1] == mine


kinds = st.sampled_from(["value", "dead", "broken", "missing"])


@given(st.lists(st.lists(st.tuples(kinds, st.floats(0, 1)), min_size=1, max_size=4), min_size=1, max_size=4))
def test_the_parts_always_sum_to_the_whole(tasks: list[list[tuple[str, float]]]):
    trials, scores = [], []
    for i, attempts in enumerate(tasks):
        for k, (kind, value) in enumerate(attempts):
            name = f"{i}-{k}"
            trials.append(trial(f"t{i}", name, "x" if kind == "dead" else None, failed=kind == "dead"))
            given_ = {"reward": value} if kind == "value" else {}
            scores.append(score(f"t{i}", name, dead=kind == "dead", broken=kind == "broken", **given_))
    summary = summarise([task(f"t{i}", "reward") for i in range(len(tasks))], trials, scores)
    coverage = summary.metric_coverage["harbor_reward"]["reward"]
    assert coverage.total == coverage.scored + coverage.failed + coverage.missing == len(scores)
    reward = aggregate(summary, "harbor_reward.reward")
    assert reward.count == coverage.scored
    assert (reward.count or 0) + reward.nan_count == coverage.total
    for found in summary.scores.scores:
        if ".pass@" in found.name:
            assert (found.count or 0) + found.nan_count == len(tasks)
            assert found.mean is None or (0 <= found.mean <= 1 and math.isfinite(found.mean))
    assert summary.error_count == sum(kind == "dead" for attempts in tasks for kind, _ in attempts)
