"""The routes of metrics and of evaluations over given outputs: statuses, shapes, and what is never done."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from harbor_assets.domain.metrics.bodies import bundled
from harbor_assets.interfaces.api.app import create_app
from harbor_assets.interfaces.api.parts import BASE
from tests.interfaces.backends import World

HERE = BASE.format(workspace="default")
EXACT = bundled({"type": "exact-match", "reference": "{{item.expected}}", "candidate": "{{item.output}}"})
BODY = EXACT.model_dump(mode="json")
PICKLED = {
    "metric_type": "mine",
    "metadata": {"description": "theirs", "labels": {"team": "a"}},
    "outputs": [{"name": "x", "value_json_schema": {"type": "number"}, "required": False}],
    "secrets": {"API_KEY": "default/key"},
    "payload": {
        "kind": "cloudpickle",
        "python_version": "3.12.1",
        "cloudpickle_version": "3.1.2",
        "pickle_protocol": 5,
        "blob": "Y29zCnN5c3RlbQooUydlY2hvIG93bmVkJwp0Ui4=",  # would run a command when loaded
        "digest": "abc",
    },
}


@pytest.fixture
def client(w: World) -> TestClient:
    return TestClient(create_app(w.backend), raise_server_exceptions=False)


def put(client: TestClient, name: str, body: dict[str, Any] = BODY) -> Any:
    return client.post(f"{HERE}/metrics/{name}", json=body)


def test_a_metric_is_made_once_read_listed_and_removed(client: TestClient):
    made = put(client, "match")
    assert made.status_code == 201, made.text
    metric = made.json()
    assert metric["metric_type"] == "exact-match"
    assert metric["payload_kind"] == "inline"
    assert metric["outputs"][0] == {
        "name": "exact-match",
        "description": None,
        "value_json_schema": {"title": "ContinuousScore", "type": "number"},
    }
    assert "payload" not in metric
    assert metric["created_at"].endswith(("Z", "+00:00"))
    assert put(client, "match").status_code == 409
    assert client.get(f"{HERE}/metrics/match").json() == metric
    assert client.delete(f"{HERE}/metrics/match").status_code == 204
    assert client.get(f"{HERE}/metrics/match").status_code == 404
    assert client.delete(f"{HERE}/metrics/match").status_code == 404
    assert put(client, "match").status_code == 201


def test_a_list_has_pages_orders_and_a_filter(client: TestClient):
    put(client, "b")
    put(client, "a", PICKLED)
    page = client.get(f"{HERE}/metrics", params={"sort": "name"}).json()
    assert [row["name"] for row in page["data"]] == ["a", "b"]
    assert "project" not in page["data"][0]
    assert page["pagination"]["total_results"] == 2
    assert page["sort"] == "name"
    of_type = client.get(f"{HERE}/metrics", params={"filter[metric_type]": "mine"}).json()
    assert [row["name"] for row in of_type["data"]] == ["a"]
    like = client.get(f"{HERE}/metrics", params={"filter": '{"description": {"$like": "THEIR"}, "derived": false}'})
    assert [row["name"] for row in like.json()["data"]] == ["a"]
    assert client.get(f"{HERE}/metrics", params={"filter[kind]": "x"}).status_code == 400
    assert client.get(f"{HERE}/metrics", params={"sort": "size"}).status_code == 422
    assert client.get(BASE.format(workspace="nobody") + "/metrics").json()["data"] == []


def test_a_pickled_metric_is_kept_and_never_loaded(client: TestClient, w: World, capfd: pytest.CaptureFixture[str]):
    made = put(client, "theirs", PICKLED)
    assert made.status_code == 201
    assert made.json()["payload_digest"] == "abc"
    assert made.json()["description"] == "theirs"
    kept = w.catalog.metric_bodies(["default/theirs"])["default/theirs"].kept()
    assert kept["payload"] == PICKLED["payload"]
    spec = {"tasks": [{"id": "t", "intent": "", "metrics": ["theirs"]}], "trials": trials("t")}
    refused = client.post(f"{HERE}/agent-evaluate/jobs", json={"spec": spec})
    assert refused.status_code == 422
    assert "nothing here loads" in refused.json()["detail"]
    assert "owned" not in capfd.readouterr().out


@pytest.mark.parametrize("name", ["sp ace", "a" * 256, "derived.x"])
def test_a_name_that_breaks_the_rules_is_422(client: TestClient, name: str):
    assert put(client, name).status_code == 422


@pytest.mark.parametrize(
    ("metric", "secrets", "at"),
    [
        ({"model": {"api_key": "sk-word"}}, {}, "payload.metric.model.api_key"),
        ({"headers": [{"Authorization": "Bearer word"}]}, {}, "payload.metric.headers.0.Authorization"),
        ({}, {"KEY": "nvapi-word"}, "secrets.KEY"),
    ],
)
def test_a_metric_with_a_key_in_it_is_422(client: TestClient, metric: Any, secrets: dict[str, str], at: str):
    body = {
        "metric_type": "mine",
        "outputs": [{"name": "a", "value_json_schema": {}}],
        "secrets": secrets,
        "payload": {"kind": "inline", "metric": {"type": "mine", **metric}},
    }
    answer = put(client, "keyed", body)
    assert answer.status_code == 422
    assert f"{at} looks like a key" in answer.text
    assert "word" not in answer.text


def test_what_is_named_like_a_key_may_name_a_secret_and_an_answer_may_begin_like_one(client: TestClient):
    body = {
        "metric_type": "mine",
        "outputs": [{"name": "a", "value_json_schema": {}}],
        "secrets": {"KEY": "team/openai-key"},
        "payload": {
            "kind": "inline",
            "metric": {"type": "mine", "model": {"api_key_secret": "KEY"}, "reference": "sk-learn"},
        },
    }
    assert put(client, "named", body).status_code == 201


def test_metrics_inside_tasks_are_stored_once_and_hidden(client: TestClient, w: World):
    one = w.catalog.resolve("default", [BODY])
    assert w.catalog.resolve("default", [BODY]) == one
    assert client.get(f"{HERE}/metrics").json()["data"] == []
    shown = client.get(f"{HERE}/metrics", params={"include_derived": True}).json()["data"]
    assert [f"default/{row['name']}" for row in shown] == one
    assert shown[0]["derived"] is True


# --- evaluations --------------------------------------------------------------------------------------------------


def trials(task: str, *texts: str) -> list[dict[str, Any]]:
    return [
        {"id": f"{task}-{n}", "task_id": task, "status": "completed", "output": {"output_text": text}}
        for n, text in enumerate(texts or ("Paris",))
    ]


def spec(**more: Any) -> dict[str, Any]:
    task = {"id": "france", "intent": "Capital?", "reference": {"expected": "Paris"}, "metrics": ["match"]}
    return {"tasks": [task], "trials": trials("france", "paris!", "Rome"), **more}


def test_given_trials_are_scored_into_a_bundle_and_a_record(client: TestClient, w: World):
    put(client, "match")
    made = client.post(f"{HERE}/agent-evaluate/jobs", json={"name": "first", "spec": spec(labels={"mode": "test"})})
    assert made.status_code == 201, made.text
    assert made.json()["status"] == "completed"
    assert made.json()["spec"]["tasks"][0]["metrics"][0]["payload"]["metric"]["type"] == "exact-match"
    result = client.get(f"{HERE}/agent-eval-results/first").json()
    exact = next(row for row in result["scores"] if row["name"] == "exact-match.exact-match")
    assert (exact["mean"], exact["count"]) == (0.5, 2)
    assert result["summary"]["task_count"] == 1
    assert [row["name"] for row in client.get(f"{HERE}/agent-eval-results").json()["data"]] == ["first"]
    files = {row["path"] for row in client.get(f"{HERE}/agent-eval-results/first/bundle").json()}
    assert files == {"run.json", "metadata.json", "summary.json", "tasks.jsonl", "trials.jsonl", "scores.jsonl"}
    assert client.get(f"{HERE}/agent-eval-results/first/bundle/summary.json").json()["score_count"] == 2
    assert client.get(f"{HERE}/agent-eval-results/first/bundle/..%2Fx").status_code == 404
    again = client.post(f"{HERE}/agent-evaluate/jobs", json={"name": "first", "spec": spec()})
    assert again.status_code == 409
    assert client.delete(f"{HERE}/agent-eval-results/first").status_code == 204
    assert client.get(f"{HERE}/agent-eval-results/first").status_code == 404
    assert list(w.artifacts.list("evaluations")) == []
    assert client.get(f"{HERE}/agent-evaluate/jobs/first").status_code == 200


def test_a_job_against_a_model_is_resolved_stored_and_not_run(client: TestClient):
    put(client, "match")
    target = {"kind": "model", "model": {"url": "https://models.example/v1", "name": "m", "api_key_secret": "key-name"}}
    made = client.post(f"{HERE}/agent-evaluate/jobs", json={"name": "live", "spec": spec(target=target, trials=None)})
    assert made.status_code == 201
    assert made.json()["status"] == "error"
    assert "nothing calls model or agent endpoints" in made.json()["error_details"]["message"]
    kept = client.get(f"{HERE}/agent-evaluate/jobs/live").json()
    assert kept["spec"]["target"] == target
    assert kept["spec"]["tasks"][0]["metrics"][0]["metric_type"] == "exact-match"
    assert client.get(f"{HERE}/agent-eval-results").json()["data"] == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"target": {"kind": "model"}},  # beside trials
        {"trials": None},
        {"tasks": []},
        {"tasks": "default/nope#"},
        {"trials": None, "target": {"kind": "model", "model": {"api_key": "nvapi-abcdef"}}},
        {"trials": None, "target": {"kind": "model", "headers": {"Authorization": "Bearer word"}}},
        {"trials": None, "target": {"kind": "model", "model": {"url": "https://user:word@models.example/v1"}}},
        {"surprise": 1},
        {"trials": trials("elsewhere")},
        {"tasks": [{"id": "france", "intent": "", "metrics": ["unknown"]}]},
    ],
)
def test_what_cannot_be_evaluated_is_422_and_nothing_is_stored(client: TestClient, w: World, wrong: dict[str, Any]):
    put(client, "match")
    answer = client.post(f"{HERE}/agent-evaluate/jobs", json={"spec": spec(**wrong)})
    assert answer.status_code == 422, answer.text
    assert "nvapi" not in answer.text
    assert client.get(f"{HERE}/agent-evaluate/jobs").json()["data"] == []
    assert list(w.artifacts.list("evaluations")) == []


def test_a_taskset_that_does_not_resolve_fails_and_nothing_else_is_taken(client: TestClient, w: World):
    w.publish("a", taskset="suite")
    for ref, status in (("suite#" + "0" * 64, 404), ("suite#blessed", 404), ("nope", 404), ("suite", 422)):
        answer = client.post(f"{HERE}/agent-evaluate/jobs", json={"spec": spec(tasks=ref)})
        assert answer.status_code == status, answer.text
    assert "runs submit" in answer.json()["detail"]  # a suite of Harbor tasks is run


def test_results_over_data_sets_are_an_empty_list(client: TestClient):
    assert client.get(f"{HERE}/eval-results").json()["data"] == []
    assert client.get(f"{HERE}/eval-results/x").status_code == 404
    assert client.delete(f"{HERE}/eval-results/x").status_code == 404


def test_a_task_names_stored_metrics_or_brings_its_own(client: TestClient):
    put(client, "match")
    spec = {"kind": "evaluator", "intent": "Capital?", "reference": {"expected": "Paris"}}
    made = client.post(f"{HERE}/tasks/named", json={"spec": {**spec, "metrics": ["match"]}})
    assert made.status_code == 201, made.text
    assert made.json()["spec"]["metrics"] == ["default/match"]
    brought = client.post(f"{HERE}/tasks/brought", json={"spec": {**spec, "metrics": [BODY]}})
    assert brought.status_code == 201, brought.text
    assert brought.json()["spec"]["metrics"] == [f"default/{EXACT.derived_name}"]
    assert client.post(f"{HERE}/tasks/unknown", json={"spec": {**spec, "metrics": ["nope"]}}).status_code == 422
    assert client.get(f"{HERE}/tasks/unknown").status_code == 404
    client.put(f"{HERE}/tasksets/suite", json={"tasks": ["named", "brought"]})
    given = [*trials("named"), *trials("brought", "Rome")]
    job = client.post(f"{HERE}/agent-evaluate/jobs", json={"spec": {"tasks": "suite", "trials": given}})
    assert job.status_code == 201, job.text
    assert job.json()["spec"]["taskset_ref"].startswith("default/suite#")


def test_a_project_with_a_metric_in_it_stays(client: TestClient):
    assert client.put(f"{HERE}/projects/p").status_code == 201
    assert client.post(f"{HERE}/metrics/match?project=p", json=BODY).status_code == 201
    refused = client.delete(f"{HERE}/projects/p")
    assert (refused.status_code, "still has metrics" in refused.json()["detail"]) == (409, True)
    assert client.delete(f"{HERE}/metrics/match").status_code == 204
    assert client.delete(f"{HERE}/projects/p").status_code == 204
