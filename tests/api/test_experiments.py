"""The routes of experiments, evaluations and sessions: statuses, shapes, limits."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from harbor_assets.domain.access import Caller, Role
from harbor_assets.interfaces.api.app import create_app
from harbor_assets.interfaces.api.parts import INTAKE
from tests.interfaces.backends import World

HERE = INTAKE.format(workspace="default")
AT = "2026-11-30T12:00:00Z"
SCORE = "evaluators.harbor_reward.reward.mean"


@pytest.fixture
def client(w: World) -> TestClient:
    return TestClient(create_app(w.backend), raise_server_exceptions=False)


def experiment(client: TestClient, name: str = "harbor-runs", **more: Any) -> dict[str, Any]:
    made = client.post(f"{HERE}/experiments", json={"name": name, **more})
    assert made.status_code == 201, made.text
    return made.json()


def evaluation(client: TestClient, name: str, *ids: str, **more: Any) -> dict[str, Any]:
    body = {"name": name, "experiment_ids": list(ids), "dataset_name": "suite", **more}
    made = client.post(f"{HERE}/evaluations", json=body)
    assert made.status_code == 201, made.text
    return made.json()


def publish(w: World, evaluation: str, number: int, value: float, **more: Any) -> None:
    from harbor_assets.domain.experiments import EvaluatorResult, Session
    from harbor_assets.domain.traces import Span

    session_id = f"{evaluation}:{number}"
    session = {"session_id": session_id, "evaluation": evaluation, "test_case_name": f"t{number}", "started_at": AT}
    result = {"session_id": session_id, "span_id": "agent", "name": "harbor_reward.reward", "data_type": "NUMERIC"}
    w.catalog.put_session(
        "default",
        Session.model_validate(session | more),
        [Span(span_id="agent", name="codex")],
        [EvaluatorResult.model_validate(result | {"value": value})],
    )


def test_an_experiment_is_made_read_replaced_listed_and_deleted(client: TestClient):
    made = experiment(client, metadata={"team": "a"}, pareto={"x_metric": "cost_usd.mean", "y_metric": SCORE})
    assert made["id"].startswith("experiment-")
    assert {name: made[name] for name in ("workspace", "default_sort", "is_favorite", "evaluation_count")} == {
        "workspace": "default",
        "default_sort": "-created_at",
        "is_favorite": False,
        "evaluation_count": 0,
    }
    assert made["created_at"].endswith(("Z", "+00:00"))
    again = client.post(f"{HERE}/experiments", json={"name": "harbor-runs"})
    assert (again.status_code, again.json()["error"]) == (409, "Conflict")
    assert client.get(f"{HERE}/experiments/harbor-runs").json() == made
    changed = client.put(f"{HERE}/experiments/harbor-runs", json={"summary": "s", "is_favorite": True})
    assert (changed.status_code, changed.json()["metadata"], changed.json()["summary"]) == (200, None, "s")
    page = client.get(f"{HERE}/experiments", params={"filter[is_favorite]": "true"}).json()
    assert page["pagination"] == {
        "page": 1,
        "page_size": 100,
        "current_page_size": 1,
        "total_pages": 1,
        "total_results": 1,
    }
    assert "description" not in page["data"][0]  # lists leave nulls out
    assert client.delete(f"{HERE}/experiments/harbor-runs").status_code == 204
    missing = client.get(f"{HERE}/experiments/harbor-runs")
    assert (missing.status_code, missing.json()["error"]) == (404, "NotFound")


@pytest.mark.parametrize(
    ("body", "at"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "x", "unknown": 1}, "unknown"),
        ({"name": "x", "metadata": {"a": 1}}, "metadata"),
        ({"name": "x", "default_sort": "-cost_usd.avg"}, "default_sort"),
        ({"name": "x", "baseline_evaluation_name": "y"}, "baseline_evaluation_name"),
        ({"name": "x", "pareto": {"x_metric": "cost_usd.mean"}}, "y_metric"),
    ],
)
def test_experiments_that_are_refused(client: TestClient, body: dict[str, Any], at: str):
    answer = client.post(f"{HERE}/experiments", json=body)
    assert answer.status_code == 422
    assert at in answer.text
    assert client.get(f"{HERE}/experiments").json()["data"] == []


def test_an_evaluation_is_made_changed_and_deleted(client: TestClient):
    one, other = experiment(client, "one")["id"], experiment(client, "other")["id"]
    made = evaluation(client, "run-1", one, one, other, dataset_version="v1", metadata={"a": "b"})
    assert made["experiment_ids"] == [one, other]  # doubles are dropped
    assert (made["run_count"], made["test_case_count"], made["cost_usd"], made["aggregate_scores"]) == (0, 0, None, {})
    assert client.get(f"{HERE}/evaluations/run-1").json() == made
    at = f"{HERE}/evaluations/run-1"
    patched = client.patch(at, json={"status": "done", "metadata": {"c": "d"}}).json()
    assert (patched["status"], patched["metadata"], patched["experiment_ids"]) == ("done", {"c": "d"}, [one, other])
    put = client.put(at, json={"experiment_ids": [other], "name": "run-1", "dataset_name": "suite"}).json()
    assert (put["status"], put["metadata"], put["dataset_version"]) == (None, {}, "v1")
    for member in ("name", "dataset_name", "dataset_version"):
        assert client.patch(at, json={member: "x"}).status_code == 422
        assert client.put(at, json={"experiment_ids": [one], member: "x"}).status_code == 422
    assert client.patch(at, json={"experiment_ids": []}).status_code == 422
    assert client.patch(at, json={"experiment_ids": ["experiment-nope"]}).status_code == 422
    assert client.delete(at).status_code == 204
    assert client.get(at).status_code == 404


@pytest.mark.parametrize(
    "more",
    [
        {"experiment_ids": []},
        {"experiment_ids": ["experiment-nope"]},
        {"dataset_name": None},
        {"dataset_name": ""},
        {"metadata": {"a": None}},
        {"parent_evaluation_id": "evaluation-nope"},
        {"pinned_at": AT},
    ],
)
def test_evaluations_that_are_refused(client: TestClient, more: dict[str, Any]):
    one = experiment(client)["id"]
    body = {"name": "run-1", "experiment_ids": [one], "dataset_name": "suite", **more}
    assert client.post(f"{HERE}/evaluations", json=body).status_code == 422


def test_the_older_word_names_the_experiment_too(client: TestClient):
    one = experiment(client)["id"]
    body = {"name": "run-1", "experiment_group_id": one, "dataset_name": "suite"}
    assert client.post(f"{HERE}/evaluations", json=body).json()["experiment_ids"] == [one]


def test_a_page_of_evaluations_with_their_figures(client: TestClient, w: World):
    one = experiment(client)["id"]
    for number, name in enumerate(("low", "mid", "high")):
        evaluation(client, name, one)
        publish(w, name, 1, number / 2, cost_usd=2.0 - number / 2, latency_ms=1500.0, agent_name="codex")
    found = client.get(f"{HERE}/evaluations", params={"sort": f"-{SCORE}", "filter[experiment_id]": one}).json()
    assert [each["name"] for each in found["data"]] == ["high", "mid", "low"]
    best = found["data"][0]
    assert best["aggregate_scores"]["harbor_reward.reward"]["mean"] == 1.0
    assert (best["agent_names"], best["evaluator_names"]) == (["codex"], ["harbor_reward.reward"])
    assert best["latency_ms"]["median"] == 1500.0
    assert "tokens" not in best
    assert found["sort"] == f"-{SCORE}"
    assert client.post(f"{HERE}/evaluations/low/pin").json()["pinned_at"]
    for sort in (f"-{SCORE}", "-name", "cost_usd.max"):
        first = client.get(f"{HERE}/evaluations", params={"sort": sort, "page_size": 1}).json()
        assert [each["name"] for each in first["data"]] == ["low"], sort
    assert client.delete(f"{HERE}/evaluations/low/pin").json()["pinned_at"] is None
    for text in (f'{SCORE}>=0.5 AND -name:"mid"', f'{{"{SCORE}": {{"$gt": 0.5}}}}'):
        kept = client.get(f"{HERE}/evaluations", params={"filter": text}).json()["data"]
        assert [each["name"] for each in kept] == ["high"]
    bracket = client.get(f"{HERE}/evaluations", params={"filter[cost_usd.mean][lte]": "1.5", "sort": "name"}).json()
    assert [each["name"] for each in bracket["data"]] == ["high", "mid"]


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"sort": "cost_usd.avg"}, 422),
        ({"sort": "cost"}, 422),
        ({"page_size": 1001}, 422),
        ({"page": 0}, 422),
        ({"filter": '{"cost_usd": 1}'}, 400),
        ({"filter": '{"cost_usd.avg": 1}'}, 400),
        ({"filter": '{"evaluators.mean": 1}'}, 400),
        ({"filter": '{"cost_usd.mean": "cheap"}'}, 400),
        ({"filter": '{"cost_usd.mean": {"$like": "1"}}'}, 400),
        ({"filter": '{"is_pinned": "maybe"}'}, 400),
        ({"filter": '{"is_pinned": {"$like": "t"}}'}, 400),
        ({"filter": '{"name.x": 1}'}, 400),
        ({"filter": '{"tags": "x"}'}, 400),
    ],
)
def test_lists_that_cannot_be(client: TestClient, params: dict[str, Any], status: int):
    answer = client.get(f"{HERE}/evaluations", params=params)
    assert answer.status_code == status, answer.text


def test_more_than_can_be_sorted_by_figures_is_413(client: TestClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("harbor_assets.catalog.evaluations.IN_MEMORY_MAX", 1)
    one, other = experiment(client, "one")["id"], experiment(client, "other")["id"]
    evaluation(client, "a", one)
    evaluation(client, "b", other)
    answer = client.get(f"{HERE}/evaluations", params={"sort": "cost_usd.mean"})
    assert (answer.status_code, answer.json()["error"]) == (413, "TooMany")
    assert client.get(f"{HERE}/evaluations", params={"sort": "name"}).status_code == 200
    assert (
        client.get(
            f"{HERE}/evaluations", params={"sort": "cost_usd.mean", "filter": f'experiment_id:"{one}"'}
        ).status_code
        == 200
    )


def test_sessions_their_traces_and_results(client: TestClient, w: World):
    evaluation(client, "run-1", experiment(client)["id"])
    publish(w, "run-1", 1, 0.5, prompt_tokens=3, completion_tokens=4)
    publish(w, "run-1", 2, 1.0)
    body = {"session_id": "run-1:1", "span_id": "agent", "name": "judge.ok", "data_type": "BOOLEAN", "value": 1}
    for _ in range(2):
        assert client.post(f"{HERE}/evaluator-results", json=body).status_code == 201
    page = client.get(f"{HERE}/evaluations/run-1/sessions").json()
    assert [each["session_id"] for each in page["data"]] == ["run-1:1", "run-1:2"]
    assert page["data"][0]["evaluator_scores"] == {"harbor_reward.reward": 0.5, "judge.ok": 1.0}
    only = client.get(f"{HERE}/evaluations/run-1/sessions", params={"test_case": "t2"}).json()
    assert [each["test_case_name"] for each in only["data"]] == ["t2"]
    long = {"final_message": "done", "error_message": "e" * 5000}
    publish(w, "run-1", 1, 0.5, prompt_tokens=3, completion_tokens=4, **long)
    assert client.post(f"{HERE}/evaluator-results", json=body | {"comment": "c" * 5000}).status_code == 201
    brief = client.get(f"{HERE}/evaluations/run-1/sessions").json()["data"][0]
    assert "final_message" not in brief
    assert max(len(brief["error_message"]), len(brief["results"][1]["comment"])) < 1100
    whole = client.get(f"{HERE}/evaluations/run-1/sessions", params={"mode": "detailed"}).json()["data"][0]
    assert (whole["final_message"], len(whole["error_message"])) == ("done", 5000)
    one = client.get(f"{HERE}/sessions/run-1:1").json()
    assert len(one["error_message"]) == 5000
    assert (one["span_count"], one["prompt_tokens"], one["cost_usd"]) == (1, 3, None)
    assert [span["name"] for span in client.get(f"{HERE}/sessions/run-1:1/spans").json()["data"]] == ["codex"]
    found = client.get(f"{HERE}/evaluations/run-1").json()
    assert found["aggregate_scores"]["judge.ok"]["mean"] == 0.5  # the case without one counts as 0
    for path in ("evaluations/nope/sessions", "sessions/nope", "sessions/nope/spans"):
        assert client.get(f"{HERE}/{path}").status_code == 404
    assert client.post(f"{HERE}/evaluator-results", json=body | {"session_id": "nope"}).status_code == 404


@pytest.mark.parametrize(
    "more",
    [
        {"value": None},
        {"string_value": "x"},
        {"data_type": "TEXT"},
        {"data_type": "BOOLEAN", "value": 0.5},
        {"status": "FAILED"},
        {"data_type": "LABEL"},
        {"session_id": "a b"},
        {"extra": 1},
    ],
)
def test_results_that_are_refused(client: TestClient, more: dict[str, Any]):
    body = {"session_id": "s", "span_id": "agent", "name": "n", "data_type": "NUMERIC", "value": 1.0, **more}
    assert client.post(f"{HERE}/evaluator-results", json=body).status_code == 422


def test_who_made_it_is_said(w: World):
    class Known:
        def authenticate(self, token: str) -> Caller:
            return Caller(token, {"default": Role.WRITER})

    client = TestClient(create_app(w.backend, authenticator=Known()), headers={"Authorization": "Bearer ada"})
    assert experiment(client)["created_by"] == "ada"
    found = client.get(f"{HERE}/experiments", params={"filter": 'created_by:"ada"'}).json()
    assert len(found["data"]) == 1
