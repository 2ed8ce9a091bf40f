"""Experiments and evaluations through the SDK, in process and served."""

import asyncio
from collections.abc import Iterator

import pytest

from harbor_assets.domain.experiments import Session as SessionInput
from harbor_assets.interfaces.sdk.connection import Service
from harbor_assets.sdk import (
    AsyncClient,
    AsyncEvaluator,
    Client,
    Conflict,
    EvaluationPatch,
    EvaluationUpdate,
    Evaluator,
    EvaluatorResult,
    ExperimentUpdate,
    NotFound,
    Refused,
    Span,
    TooMany,
)
from tests.interfaces.backends import NOW, World


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with Client.over(service) as made:
        yield made


@pytest.fixture
def evaluator(client: Client) -> Evaluator:
    return Evaluator.from_client(client)


def test_an_experiment_and_what_is_in_it(evaluator: Evaluator, w: World) -> None:
    made = evaluator.experiments.create("harbor-runs", description="nightly", metadata={"team": "a"})
    with pytest.raises(Conflict):
        evaluator.experiments.create("harbor-runs")
    assert evaluator.experiments.create("harbor-runs", exist_ok=True, description="other") == made
    assert evaluator.experiments.retrieve("default/harbor-runs") == made
    for name in ("run-1", "run-2", "run-3"):
        evaluator.evaluations.create(name, experiment_ids=[made.id], dataset_name="suite")
    found = evaluator.evaluations.list(experiment="harbor-runs", sort="name", page_size=2)
    assert [one.name for one in found] == ["run-1", "run-2", "run-3"]  # over both pages
    put = evaluator.experiments.put("harbor-runs", ExperimentUpdate(baseline_evaluation_name="run-1"))
    assert (put.description, put.baseline_evaluation_name, put.evaluation_count) == (None, "run-1", 3)
    patched = evaluator.evaluations.update("run-1", EvaluationPatch(status="done"))
    assert (patched.status, patched.experiment_ids) == ("done", [made.id])
    replaced = evaluator.evaluations.put("run-1", EvaluationUpdate(experiment_ids=[made.id], description="d"))
    assert (replaced.status, replaced.description) == (None, "d")
    assert evaluator.evaluations.pin("run-2").pinned_at
    assert [one.name for one in evaluator.evaluations.list(sort="name").data] == ["run-2", "run-1", "run-3"]
    assert evaluator.evaluations.unpin("run-2").pinned_at is None
    evaluator.evaluations.delete("run-3")
    with pytest.raises(NotFound):
        evaluator.evaluations.retrieve("run-3")
    with pytest.raises(NotFound):
        evaluator.evaluations.list(experiment="harbor")
    with pytest.raises(Refused, match="dataset_name"):
        evaluator.evaluations.create("run-4", experiment_ids=[made.id], dataset_name="")
    evaluator.experiments.delete("harbor-runs")
    assert [one.name for one in evaluator.experiments.list()] == []


def test_sessions_and_their_results(evaluator: Evaluator, w: World) -> None:
    made = evaluator.experiments.create("harbor-runs")
    evaluator.evaluations.create("run-1", experiment_ids=[made.id], dataset_name="suite")
    session = SessionInput(session_id="run-1:t__1", evaluation="run-1", test_case_name="t", started_at=NOW)
    w.catalog.put_session("default", session, [Span(span_id="agent", name="codex")])
    result = EvaluatorResult.model_validate(
        {"session_id": "run-1:t__1", "span_id": "agent", "name": "judge", "data_type": "NUMERIC", "value": 0.5}
    )
    assert evaluator.evaluations.put_result(result).value == 0.5
    (found,) = evaluator.evaluations.list_sessions("run-1")
    assert (found.session_id, found.evaluator_scores) == ("run-1:t__1", {"judge": 0.5})
    assert evaluator.evaluations.session("run-1:t__1") == found
    assert [span.name for span in evaluator.evaluations.spans("run-1:t__1")] == ["codex"]
    assert evaluator.evaluations.retrieve("run-1").aggregate_scores["judge"].mean == 0.5


def test_more_than_can_be_sorted_is_an_error_of_its_own(evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    made = evaluator.experiments.create("harbor-runs")
    evaluator.evaluations.create("run-1", experiment_ids=[made.id], dataset_name="suite")
    monkeypatch.setattr("harbor_assets.catalog.evaluations.IN_MEMORY_MAX", 0)
    with pytest.raises(TooMany):
        evaluator.evaluations.list(sort="-cost_usd.mean")


def test_the_same_for_asynchronous_code(service: Service) -> None:
    async def work() -> list[str]:
        async with AsyncClient.over(service) as client:
            evaluator = AsyncEvaluator.from_client(client)
            made = await evaluator.experiments.create("harbor-runs")
            await evaluator.evaluations.create("run-1", experiment_ids=[made.id], dataset_name="suite")
            return [one.name async for one in await evaluator.evaluations.list(experiment="harbor-runs")]

    assert asyncio.run(work()) == ["run-1"]
