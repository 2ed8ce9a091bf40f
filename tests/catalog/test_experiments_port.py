"""Experiments, evaluations and sessions in the catalog: what holds for every kind of it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from harbor_assets.catalog.store import Catalog
from harbor_assets.domain import experiments as rules
from harbor_assets.domain import sessions
from harbor_assets.domain.errors import Conflict, NotFound, Refused, TooMany
from harbor_assets.domain.evaluation_lists import EVALUATION_FIELDS, EXPERIMENT_FIELDS
from harbor_assets.domain.experiments import (
    DataType,
    Evaluation,
    EvaluationInput,
    EvaluationPatch,
    EvaluationUpdate,
    EvaluatorResult,
    Experiment,
    ExperimentInput,
    ExperimentUpdate,
    ResultStatus,
    Session,
)
from harbor_assets.domain.filter_syntax import parse_filter
from harbor_assets.domain.filters import Filter
from harbor_assets.domain.tasks import Sort
from harbor_assets.domain.traces import Span, SpanKind
from harbor_assets.engine.experiment_ports import ExperimentCatalog
from tests.databases import DATABASES, fresh
from tests.fakes.experiments import MemoryExperiments

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.fixture(params=["fake", *DATABASES])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ExperimentCatalog]:
    if request.param == "fake":
        yield MemoryExperiments()
        return
    with fresh(request.param, tmp_path) as url, Catalog.open(url) as opened:
        yield opened


def experiment(catalog: ExperimentCatalog, name: str = "harbor-runs", workspace: str = "ws", **more: Any) -> Experiment:
    return catalog.create_experiment(workspace, ExperimentInput(name=name, **more))


def evaluation(catalog: ExperimentCatalog, name: str, *within: Experiment, **more: Any) -> Evaluation:
    members = {"dataset_name": "suite", **more}
    return catalog.create_evaluation(
        "ws", EvaluationInput(name=name, experiment_ids=[each.id for each in within], **members)
    )


def session(number: int, evaluation: str = "run-1", case: str = "t1", **more: Any) -> Session:
    members = {"session_id": f"run-1:{number}", "evaluation": evaluation, "test_case_name": case, "started_at": NOW}
    return Session.model_validate(members | more)


def result(number: int, value: float | None = 1.0, name: str = "harbor_reward.reward", **more: Any) -> EvaluatorResult:
    members = {"session_id": f"run-1:{number}", "span_id": "root", "name": name, "data_type": DataType.NUMERIC}
    return EvaluatorResult.model_validate(members | {"value": value} | more)


def asked(**fields: Any) -> Filter | None:
    import json

    named = {name.replace("__", "."): value for name, value in fields.items()}
    return parse_filter([("filter", json.dumps(named))], fields=EVALUATION_FIELDS, workspace="ws")


def names(catalog: ExperimentCatalog, **more: Any) -> list[str]:
    return [each.name for each in catalog.list_evaluations("ws", **more).items]


# --- experiments ----------------------------------------------------------------------------------------------------


def test_an_experiment_is_what_was_asked_for(catalog: ExperimentCatalog) -> None:
    body = ExperimentInput(name="harbor-runs", description="d", metadata={"team": "a"}, column_layout={"a": [1, None]})
    made = catalog.create_experiment("ws", body, created_by="ada")
    assert (made.description, made.metadata, made.created_by, made.evaluation_count) == ("d", {"team": "a"}, "ada", 0)
    assert made.column_layout == {"a": [1, None]}
    assert made.default_sort == "-created_at"
    assert catalog.get_experiment("ws", "harbor-runs") == made
    with pytest.raises(Conflict, match="already exists"):
        catalog.create_experiment("ws", body)
    assert experiment(catalog, workspace="other").id != made.id
    with pytest.raises(NotFound):
        catalog.get_experiment("ws", "harbor")
    with pytest.raises(Refused):
        experiment(catalog, "a/b")


def test_a_put_resets_what_it_leaves_out_and_the_name_stays(catalog: ExperimentCatalog) -> None:
    made = experiment(catalog, description="d", is_favorite=True)
    changed = catalog.update_experiment("ws", made.name, ExperimentUpdate(summary="s", name=made.name))
    assert (changed.description, changed.summary, changed.is_favorite, changed.id) == (None, "s", False, made.id)
    assert changed.updated_at >= made.updated_at
    with pytest.raises(Refused):
        catalog.update_experiment("ws", made.name, ExperimentUpdate(name="another"))


def test_a_baseline_is_an_evaluation_of_the_experiment(catalog: ExperimentCatalog) -> None:
    one, other = experiment(catalog, "one"), experiment(catalog, "other")
    evaluation(catalog, "run-1", other)
    with pytest.raises(Refused):
        catalog.update_experiment("ws", "one", ExperimentUpdate(baseline_evaluation_name="run-1"))
    evaluation(catalog, "run-2", one)
    changed = catalog.update_experiment("ws", "one", ExperimentUpdate(baseline_evaluation_name="run-2"))
    assert changed.baseline_evaluation_name == "run-2"
    assert catalog.get_experiment("ws", "one") == changed
    catalog.patch_evaluation("ws", "run-2", EvaluationPatch(experiment_ids=[other.id]))
    assert catalog.get_experiment("ws", "one").baseline_evaluation_name is None
    catalog.patch_evaluation("ws", "run-2", EvaluationPatch(experiment_ids=[one.id]))
    catalog.delete_evaluation("ws", "run-2")
    assert catalog.get_experiment("ws", "one").baseline_evaluation_name is None


def test_lists_of_experiments(catalog: ExperimentCatalog) -> None:
    for name in ("b", "a", "c"):
        experiment(catalog, name, is_favorite=name == "a", metadata={"kind": name})
    experiment(catalog, "d", workspace="other")
    page = catalog.list_experiments("ws", sort=Sort.NAME_DOWN, page_size=2)
    assert ([each.name for each in page.items], page.total) == (["c", "b"], 3)
    assert [each.name for each in catalog.list_experiments("ws").items] == ["b", "a", "c"]
    for text in ('is_favorite:"true"', 'metadata.kind:"a"', 'name~"A"'):
        where = parse_filter([("filter", text)], fields=EXPERIMENT_FIELDS, workspace="ws")
        assert [each.name for each in catalog.list_experiments("ws", where=where).items] == ["a"], text


def test_deleting_an_experiment_takes_along_what_is_in_no_other(catalog: ExperimentCatalog) -> None:
    one, other = experiment(catalog, "one"), experiment(catalog, "other")
    evaluation(catalog, "only-here", one)
    both = evaluation(catalog, "in-both", one, other)
    assert catalog.get_experiment("ws", "one").evaluation_count == 2
    catalog.delete_experiment("ws", "one")
    with pytest.raises(NotFound):
        catalog.get_experiment("ws", "one")
    with pytest.raises(NotFound):
        catalog.get_evaluation("ws", "only-here")
    kept = catalog.get_evaluation("ws", "in-both")
    assert (kept.id, kept.experiment_ids) == (both.id, [other.id])
    assert names(catalog) == ["in-both"]
    gone = catalog.list_evaluations("ws", where=asked(is_deleted=True)).items
    assert [each.name.startswith("only-here.deleted.") for each in gone] == [True]
    experiments = catalog.list_experiments(
        "ws", where=parse_filter([("filter[is_deleted]", "true")], fields=EXPERIMENT_FIELDS, workspace="ws")
    )
    assert [each.name.startswith("one.deleted.") for each in experiments.items] == [True]
    assert experiment(catalog, "one").id != one.id  # the name is free
    with pytest.raises(NotFound):
        catalog.get_experiment("ws", experiments.items[0].name)


def test_the_longest_name_can_be_deleted_twice(catalog: ExperimentCatalog) -> None:
    for _ in range(2):
        experiment(catalog, "n" * 255)
        catalog.delete_experiment("ws", "n" * 255)


# --- evaluations ----------------------------------------------------------------------------------------------------


def test_an_evaluation_is_in_experiments_that_are_there(catalog: ExperimentCatalog) -> None:
    one, elsewhere = experiment(catalog), experiment(catalog, workspace="other")
    made = evaluation(catalog, "run-1", one, dataset_version="v1", metadata={"k": "v"}, status="running")
    assert made.experiment_ids == [one.id]
    assert (made.dataset_name, made.dataset_version, made.metadata, made.status) == (
        "suite",
        "v1",
        {"k": "v"},
        "running",
    )
    assert (made.run_count, made.test_case_count, made.cost_usd, made.aggregate_scores) == (0, 0, None, {})
    assert catalog.get_evaluation("ws", "run-1") == made
    with pytest.raises(Conflict):
        evaluation(catalog, "run-1", one)
    with pytest.raises(Refused):
        evaluation(catalog, "run-2", elsewhere)
    with pytest.raises(Refused):
        evaluation(catalog, "run-2", one, parent_evaluation_id="evaluation-nope")
    assert evaluation(catalog, "run-2", one, parent_evaluation_id=made.id).parent_evaluation_id == made.id
    catalog.delete_experiment("ws", one.name)
    with pytest.raises(Refused):
        evaluation(catalog, "run-3", one)


def test_changes_of_an_evaluation(catalog: ExperimentCatalog) -> None:
    one, other = experiment(catalog, "one"), experiment(catalog, "other")
    evaluation(catalog, "run-1", one, description="d", status="s", metadata={"a": "1"}, dataset_version="v1")
    patched = catalog.patch_evaluation("ws", "run-1", EvaluationPatch(status="t", metadata={"b": "2"}))
    assert (patched.description, patched.status, patched.metadata) == ("d", "t", {"b": "2"})
    merged = catalog.merge_metadata("ws", "run-1", {"c": "3"})
    assert merged.metadata == {"b": "2", "c": "3"}
    cleared = catalog.patch_evaluation("ws", "run-1", EvaluationPatch(description=None))
    assert (cleared.description, cleared.status) == (None, "t")
    put = catalog.update_evaluation(
        "ws", "run-1", EvaluationUpdate(experiment_ids=[other.id, one.id], dataset_name="suite", root_cause="r")
    )
    assert (put.status, put.metadata, put.root_cause, put.dataset_version) == (None, {}, "r", "v1")
    assert put.experiment_ids == [other.id, one.id]
    assert catalog.get_evaluation("ws", "run-1") == put
    for body in (
        EvaluationUpdate(experiment_ids=[one.id], dataset_name="another"),
        EvaluationUpdate(experiment_ids=[one.id], name="another"),
        EvaluationUpdate(experiment_ids=["experiment-nope"]),
    ):
        with pytest.raises(Refused):
            catalog.update_evaluation("ws", "run-1", body)
    with pytest.raises(Refused):
        catalog.patch_evaluation("ws", "run-1", EvaluationPatch(parent_evaluation_id=put.id))
    with pytest.raises(Refused):
        catalog.merge_metadata("ws", "run-1", {str(number): "" for number in range(rules.METADATA_MAX + 1)})


def test_pinned_ones_come_first(catalog: ExperimentCatalog) -> None:
    one = experiment(catalog)
    for name in ("a", "b", "c"):
        evaluation(catalog, name, one)
    pinned = catalog.pin_evaluation("ws", "b", True)
    assert pinned.pinned_at is not None
    assert catalog.pin_evaluation("ws", "b", True) == pinned  # the time stays
    for sort in ("name", "created_at", "cost_usd.mean", "test_case_count"):
        assert names(catalog, sort=sort) == ["b", "a", "c"], sort
    assert names(catalog, sort="-name") == ["b", "c", "a"]
    assert names(catalog, where=asked(is_pinned=True)) == ["b"]
    assert names(catalog, where=asked(is_pinned="false"), sort="name") == ["a", "c"]
    catalog.pin_evaluation("ws", "b", False)
    assert names(catalog, sort="name") == ["a", "b", "c"]


def test_a_deleted_evaluation_is_not_there(catalog: ExperimentCatalog) -> None:
    one = experiment(catalog)
    evaluation(catalog, "run-1", one)
    catalog.put_session("ws", session(1))
    catalog.delete_evaluation("ws", "run-1")
    assert catalog.get_experiment("ws", one.name).evaluation_count == 0
    for call in (
        lambda: catalog.get_evaluation("ws", "run-1"),
        lambda: catalog.put_session("ws", session(1)),
        lambda: catalog.list_sessions("ws", "run-1"),
        lambda: catalog.get_session("ws", "run-1:1"),
        lambda: catalog.session_spans("ws", "run-1:1"),
        lambda: catalog.delete_evaluation("ws", "run-1"),
        lambda: catalog.pin_evaluation("ws", "run-1", True),
    ):
        with pytest.raises(NotFound):
            call()
    evaluation(catalog, "run-1", one)
    assert catalog.put_session("ws", session(1)).evaluation == "run-1"  # the same id, in the new one
    assert catalog.get_evaluation("ws", "run-1").run_count == 1


# --- sessions and figures -------------------------------------------------------------------------------------------


def test_putting_a_session_again_changes_nothing(catalog: ExperimentCatalog) -> None:
    evaluation(catalog, "run-1", experiment(catalog))
    spans = [
        Span(span_id="root", name="agent", kind=SpanKind.AGENT, started_at=NOW, ended_at=NOW + timedelta(seconds=3)),
        Span(span_id="m1", parent_span_id="root", kind=SpanKind.MODEL, prompt_tokens=5, output="\0 odd \u2028"),
    ]
    whole = session(1, agent_name="codex", model_name="gpt", cost_usd=0.5, prompt_tokens=10, completion_tokens=2)
    results = [result(1, 0.5), result(1, None, "label", data_type="TEXT", string_value="good")]
    for _ in range(2):
        stored = catalog.put_session("ws", whole, spans, results)
    assert catalog.get_session("ws", "run-1:1").model_copy(update={"updated_at": NOW}) == stored.model_copy(
        update={"updated_at": NOW}
    )
    assert (stored.span_count, stored.evaluator_scores) == (2, {"harbor_reward.reward": 0.5})
    assert [each.name for each in stored.results] == ["harbor_reward.reward", "label"]
    assert catalog.session_spans("ws", "run-1:1") == spans
    assert catalog.list_sessions("ws", "run-1").total == 1
    found = catalog.get_evaluation("ws", "run-1")
    assert (found.run_count, found.test_case_count, found.model_names) == (1, 1, ["gpt"])
    assert found.tokens is not None
    assert found.tokens.sum == 12
    assert found.evaluator_names == ["harbor_reward.reward", "label"]
    assert list(found.aggregate_scores) == ["harbor_reward.reward"]

    catalog.put_session("ws", session(1), results=None)  # results stay, the trace does not
    again = catalog.get_session("ws", "run-1:1")
    assert (again.span_count, len(again.results), again.agent_name) == (0, 2, None)
    assert catalog.session_spans("ws", "run-1:1") == []
    catalog.put_session("ws", session(1), results=[result(1, 1.0)])
    assert [each.value for each in catalog.get_session("ws", "run-1:1").results] == [1.0]


def test_a_result_replaces_the_one_of_its_session_span_and_name(
    catalog: ExperimentCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluation(catalog, "run-1", experiment(catalog))
    with pytest.raises(NotFound):
        catalog.put_evaluator_result("ws", result(1))
    catalog.put_session("ws", session(1))
    first = catalog.put_evaluator_result("ws", result(1, 0.0))
    again = catalog.put_evaluator_result("ws", result(1, 1.0, comment="regraded"))
    assert again.evaluator_result_id == first.evaluator_result_id
    assert again.comment == "regraded"
    other = catalog.put_evaluator_result("ws", result(1, 0.5, span_id="m1"))
    assert other.evaluator_result_id != first.evaluator_result_id
    found = catalog.get_session("ws", "run-1:1")
    assert (len(found.results), found.evaluator_scores) == (2, {"harbor_reward.reward": 0.75})
    figure = catalog.get_evaluation("ws", "run-1").aggregate_scores["harbor_reward.reward"]
    assert (figure.mean, figure.count) == (0.75, 1)
    with pytest.raises(Refused):
        catalog.put_session("ws", session(1), results=[result(2)])
    monkeypatch.setattr(sessions, "RESULTS_MAX", 2)
    catalog.put_evaluator_result("ws", result(1, 0.5))  # one that replaces another is none more
    with pytest.raises(Refused, match="at most 2"):
        catalog.put_evaluator_result("ws", result(1, name="more"))
    with pytest.raises(Refused, match="at most 2"):
        catalog.put_session("ws", session(1), results=[result(1, name=str(number)) for number in range(3)])
    assert len(catalog.get_session("ws", "run-1:1").results) == 2


def test_every_test_case_weighs_the_same(catalog: ExperimentCatalog) -> None:
    evaluation(catalog, "run-1", experiment(catalog))
    for number, value in ((1, 1.0), (2, 0.0), (3, 0.5)):
        catalog.put_session("ws", session(number, case="often", cost_usd=1.0), results=[result(number, value)])
    failed = result(4, None, status=ResultStatus.FAILED)
    catalog.put_session("ws", session(4, case="once", latency_ms=30.0), results=[failed])
    catalog.put_session("ws", session(5, case="never", cost_usd=4.0))
    catalog.put_session("ws", session(6, case="", cost_usd=100.0), results=[result(6, 1.0)])
    found = catalog.get_evaluation("ws", "run-1")
    assert (found.run_count, found.test_case_count) == (5, 3)
    score = found.aggregate_scores["harbor_reward.reward"]
    assert (score.sum, score.mean, score.min, score.max) == (0.5, pytest.approx(0.5 / 3), 0.0, 0.5)
    assert (score.count, score.failed_count) == (1, 1)
    assert found.cost_usd is not None
    assert (found.cost_usd.sum, found.cost_usd.mean, found.cost_usd.count) == (5.0, 2.5, 2)  # unknown is not 0
    assert found.latency_ms is not None
    assert (found.latency_ms.mean, found.latency_ms.count) == (30.0, 1)
    assert found.tokens is None
    assert [each.session_id for each in catalog.list_sessions("ws", "run-1", test_case="often").items] == [
        "run-1:1",
        "run-1:2",
        "run-1:3",
    ]
    page = catalog.list_sessions("ws", "run-1", page=2, page_size=2)
    assert ([each.test_case_name for each in page.items], page.total) == (["often", "often"], 6)


def test_a_session_that_moves_leaves_the_figures_of_where_it_was(catalog: ExperimentCatalog) -> None:
    one = experiment(catalog)
    for name in ("run-1", "run-2"):
        evaluation(catalog, name, one)
    catalog.put_session("ws", session(1), results=[result(1)])
    assert [catalog.get_evaluation("ws", name).run_count for name in ("run-1", "run-2")] == [1, 0]
    catalog.put_session("ws", session(1, "run-2"))
    moved = [catalog.get_evaluation("ws", name) for name in ("run-1", "run-2")]
    assert [(each.run_count, list(each.aggregate_scores)) for each in moved] == [(0, []), (1, ["harbor_reward.reward"])]
    with pytest.raises(NotFound):
        catalog.put_session("ws", session(1, "run-3"))


def test_a_trace_that_comes_in_pieces(catalog: ExperimentCatalog) -> None:
    evaluation(catalog, "run-1", experiment(catalog))
    late = Span(span_id="b", started_at=NOW + timedelta(seconds=1), prompt_tokens=2, completion_tokens=1)
    early = Span(span_id="a", started_at=NOW, prompt_tokens=3, completion_tokens=1)
    catalog.add_spans("ws", session(1, agent_name="codex"), [late])
    bare = Session(session_id="run-1:1", evaluation="run-1", started_at=NOW + timedelta(hours=1))
    for _ in range(2):
        stored = catalog.add_spans("ws", bare, [early])
    assert (stored.agent_name, stored.test_case_name, stored.started_at) == ("codex", "t1", NOW)
    assert (stored.prompt_tokens, stored.completion_tokens, stored.cost_usd) == (5, 2, None)
    assert [span.span_id for span in catalog.session_spans("ws", "run-1:1")] == ["a", "b"]
    with pytest.raises(Refused):
        catalog.put_session("ws", session(2), [early, early])


def test_evaluations_by_their_figures(catalog: ExperimentCatalog) -> None:
    one = experiment(catalog)
    for number, (name, reward, cost) in enumerate((("low", 0.0, 9.0), ("high", 1.0, 1.0), ("mid", 0.5, None))):
        evaluation(catalog, name, one)
        catalog.put_session("ws", session(number, name, cost_usd=cost), results=[result(number, reward)])
    evaluation(catalog, "empty", one)
    by = "evaluators.harbor_reward.reward.mean"
    assert names(catalog, sort=f"-{by}") == ["high", "mid", "low", "empty"]
    assert names(catalog, sort=by) == ["low", "mid", "high", "empty"]
    assert names(catalog, sort="cost_usd.sum") == ["high", "low", "empty", "mid"]
    assert names(catalog, sort="-test_case_count") == ["high", "low", "mid", "empty"]
    page = catalog.list_evaluations("ws", sort=f"-{by}", page=2, page_size=2)
    assert ([each.name for each in page.items], page.total) == (["low", "empty"], 4)
    score = page.items[0].aggregate_scores["harbor_reward.reward"]
    assert score.mean == 0.0
    assert names(catalog, sort="name", where=asked(**{by: {"$gte": 0.5}})) == ["high", "mid"]
    assert names(catalog, where=asked(cost_usd__mean={"$lt": 5}, experiment_id=one.id)) == ["high"]
    assert names(catalog, sort="name", where=asked(test_case_count=0)) == ["empty"]
    catalog.put_evaluator_result("ws", result(0, 0.75))  # kept figures follow
    assert names(catalog, sort=f"-{by}") == ["high", "low", "mid", "empty"]
    with pytest.raises(Refused, match="cannot be sorted"):
        names(catalog, sort="cost_usd.avg")


def test_evaluations_by_what_is_said_of_them(catalog: ExperimentCatalog) -> None:
    one, other = experiment(catalog, "one"), experiment(catalog, "other")
    evaluation(catalog, "a", one, metadata={"git": "main"}, status="done", dataset_version="v1")
    evaluation(catalog, "b", one, other, metadata={"git": "next"}, dataset_name="suite-2")
    evaluation(catalog, "c", other)
    for fields, found in (
        ({"experiment_id": one.id}, ["a", "b"]),
        ({"experiment_id": {"$in": [other.id]}}, ["b", "c"]),
        ({"$not": {"experiment_id": one.id}}, ["c"]),
        ({"metadata.git": "main"}, ["a"]),
        ({"status": "done", "experiment_id": one.id}, ["a"]),
        ({"dataset_name": {"$like": "SUITE-"}}, ["b"]),
        ({"dataset_version": "v1"}, ["a"]),
        ({"created_at": {"$gt": "2020-01-01"}, "experiment_id": other.id}, ["b", "c"]),
        ({"created_at": {"$lt": "2020-01-01"}}, []),
        ({"experiment_id": "experiment-nope"}, []),
    ):
        assert names(catalog, sort="name", where=asked(**fields)) == found, fields
    page = catalog.list_evaluations("ws", sort="name", page=2, page_size=1, where=asked(experiment_id=one.id))
    assert ([each.name for each in page.items], page.total) == (["b"], 2)


def test_too_many_are_not_sorted_by_figures(catalog: ExperimentCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("harbor_assets.catalog.evaluations", "tests.fakes.experiments"):
        monkeypatch.setattr(f"{module}.IN_MEMORY_MAX", 2)
    one, other = experiment(catalog, "one"), experiment(catalog, "other")
    for name in ("a", "b"):
        evaluation(catalog, name, one)
    evaluation(catalog, "c", other)
    with pytest.raises(TooMany):
        names(catalog, sort="cost_usd.mean")
    assert names(catalog, sort="cost_usd.mean", where=asked(experiment_id=one.id)) == ["a", "b"]
    assert names(catalog, sort="name") == ["a", "b", "c"]


def test_many_who_write_at_once_lose_nothing(catalog: ExperimentCatalog) -> None:
    evaluation(catalog, "run-1", experiment(catalog))

    def publish(number: int) -> None:
        catalog.put_session("ws", session(number % 10, case=f"t{number % 10}"), results=[result(number % 10)])
        catalog.get_evaluation("ws", "run-1")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(publish, range(20)))
    found = catalog.get_evaluation("ws", "run-1")
    assert (found.run_count, found.aggregate_scores["harbor_reward.reward"].mean) == (10, 1.0)
