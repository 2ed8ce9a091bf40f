import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from harbor_assets.domain.errors import Broken
from harbor_assets.domain.outcomes import Reason
from harbor_assets.interfaces.api.app import create_app
from harbor_assets.interfaces.api.limits import BODY_MAX
from tests.interfaces.backends import World, task_input

BASE = "/apis/evals/v2/workspaces/default"
RUNS = f"{BASE}/agent-evaluate/runs"


class Api:
    """The application, asked synchronously."""

    def __init__(self, world: World) -> None:
        self._app = create_app(world.backend)

    def __call__(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app=self._app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.request(method, path if path.startswith("/apis") else BASE + path, **options)

        return asyncio.run(ask())


@pytest.fixture
def api(w: World) -> Api:
    return Api(w)


def body(native_id: str, **config: object) -> dict[str, Any]:
    return task_input(native_id, **config).model_dump(mode="json")


def test_putting_a_task_answers_201_when_a_revision_was_cut_and_200_when_not(api: Api):
    assert api("PUT", "/tasks/a", json=body("org/a")).status_code == 201
    again = api("PUT", "/tasks/a", json=body("org/a"))
    assert (again.status_code, again.json()["revision"]) == (200, 1)
    changed = api("PUT", "/tasks/a", json=body("org/b"))
    assert (changed.status_code, changed.json()["revision"]) == (201, 2)


def test_a_task_keeps_its_nulls_alone_and_loses_them_in_a_list(api: Api):
    api("PUT", "/tasks/a", json=body("org/a"))
    one = api("GET", "/tasks/a").json()
    assert one["project"] is None
    assert one["spec"]["harbor_hash"]["source_commit"] is None
    assert one["spec"]["config"]["nothing"] is None
    assert "digest" not in one
    listed = api("GET", "/tasks").json()
    assert listed["pagination"] == {
        "page": 1,
        "page_size": 100,
        "current_page_size": 1,
        "total_pages": 1,
        "total_results": 1,
    }
    assert listed["sort"] == "created_at"
    assert "null" not in json.dumps(listed)


def test_lists_page_and_a_page_past_the_end_is_empty(api: Api):
    for name in "abc":
        api("PUT", f"/tasks/{name}", json=body(f"org/{name}"))
    first = api("GET", "/tasks?page_size=2").json()
    assert [task["name"] for task in first["data"]] == ["a", "b"]
    assert first["pagination"]["total_pages"] == 2
    past = api("GET", "/tasks?page=9")
    assert (past.status_code, past.json()["data"]) == (200, [])


@pytest.mark.parametrize(
    ("query", "status"),
    [
        *((query, 422) for query in ("page=0", "page_size=0", "page_size=1001", "sort=size", "sort=--name")),
        *((query, 400) for query in ("filter=x", "filter[size]=1", "filter={", "filter[tags][like]=x")),
    ],
)
def test_a_list_refuses_what_it_cannot_do(api: Api, query: str, status: int):
    assert api("GET", f"/tasks?{query}").status_code == status


def test_a_revision_is_read_by_digest_and_by_tag(w: World, api: Api):
    first = w.catalog.put_task("default", "a", task_input("org/a"))[0]
    w.catalog.put_task("default", "a", task_input("org/b"))
    by_digest = api("GET", f"/tasks/a/revisions/{first.digest}").json()
    assert by_digest["spec"]["native_task_id"] == "org/a"
    assert api("GET", "/tasks/a/revisions/latest").json()["spec"]["native_task_id"] == "org/b"
    assert api("GET", "/tasks/a/revisions/nope").status_code == 404


def test_an_unknown_task_is_404_with_a_sentence(api: Api):
    answer = api("GET", "/tasks/nope")
    assert answer.status_code == 404
    assert "nope" in answer.json()["detail"]
    assert answer.json()["error"] == "NotFound"


@pytest.mark.parametrize("path", ["/tasks/a%20b", "/tasks/" + "a" * 256, "/tasks/a?project=p"])
def test_names_outside_the_rule_and_projects_are_422(api: Api, path: str):
    assert api("PUT", path, json=body("org/a")).status_code == 422


def test_unknown_members_of_a_body_are_refused_by_name(api: Api):
    answer = api("PUT", "/tasks/a", json={**body("org/a"), "extra": 1})
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["body", "extra"]


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e999", '"\\ud800"', '{"\\udcff": 1}', "[" * 100_000])
@pytest.mark.parametrize("place", ['"metadata": [{"key": "k", "value": %s}]', '"tags": %s'])
def test_what_is_not_json_is_refused_and_never_stored(w: World, api: Api, value: str, place: str):
    body_text = json.dumps({"spec": body("org/a")["spec"]})[:-1] + f", {place % value}}}"
    answer = api("PUT", "/tasks/a", content=body_text, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert w.catalog.list_tasks("default").total == 0


def test_refusals_do_not_repeat_what_was_sent(api: Api):
    answer = api("PUT", "/tasks/a", json={**body("org/a"), "tags": {"token": "hunter2"}})
    assert answer.status_code == 422
    assert "hunter2" not in answer.text


def test_a_taskset_pins_its_members(api: Api):
    api("PUT", "/tasks/a", json=body("org/a"))
    made = api("PUT", "/tasksets/s", json={"tasks": ["a"]})
    assert made.status_code == 201
    (member,) = made.json()["tasks"]
    assert member.startswith("default/a#")
    assert api("GET", "/tasksets/s").json()["tasks"] == [member]
    assert api("PUT", "/tasksets/s", json={"tasks": ["missing"]}).status_code == 422


def test_look_up_finds_what_exists_by_name_and_by_reference(w: World, api: Api):
    ref = w.catalog.put_task("default", "a", task_input("org/a"))[0].ref
    found = api("POST", "/tasks:lookup", json={"names": ["a", "b"], "refs": [ref]}).json()["data"]
    assert [task["name"] for task in found] == ["a", "a"]
    assert found[0]["spec"]["config"]["nothing"] is None  # digests are made of what is answered here


def request(taskset: str, **more: Any) -> dict[str, Any]:
    return {"spec": {"tasks": {"taskset": taskset}}, **more}


def test_a_run_is_accepted_once_per_idempotency_key(w: World, api: Api):
    taskset = w.publish("a")
    headers = {"Idempotency-Key": "k"}
    first = api("POST", RUNS, json=request(taskset), headers=headers)
    again = api("POST", RUNS, json=request(taskset), headers=headers)
    other = api("POST", RUNS, json=request(taskset, timeout_seconds=5), headers=headers)
    assert (first.status_code, again.status_code, other.status_code) == (201, 200, 409)
    assert first.json()["run"]["id"] == again.json()["run"]["id"]
    assert other.json()["error"] == "IdempotencyConflict"
    assert w.executions.started == [first.json()["run"]["id"]]


def test_a_refused_run_lists_every_problem(w: World, api: Api):
    taskset = w.publish("alpha", "beta")
    wrong = request(taskset)
    wrong["spec"]["target"] = {"source": {"name": "codex"}}
    wrong["spec"]["tasks"]["select"] = ["alpa"]
    answer = api("POST", RUNS, json=wrong)
    assert answer.status_code == 422
    assert [problem["subject"] for problem in answer.json()["problems"]] == ["agent 'codex'", "task 'alpa'"]
    assert "alpha" in answer.json()["detail"]


def submit(w: World, api: Api, *names: str) -> str:
    return api("POST", RUNS, json=request(w.publish(*names))).json()["run"]["id"]


def test_status_with_and_without_tasks(w: World, api: Api):
    run_id = submit(w, api, "a", "b")
    whole = api("GET", f"{RUNS}/{run_id}").json()
    assert (whole["run"]["phase"], [task["index"] for task in whole["tasks"]]) == ("accepted", [0, 1])
    assert set(api("GET", f"{RUNS}/{run_id}?tasks=false").json()) == {"run"}


def test_lists_of_runs_and_of_their_tasks(w: World, api: Api):
    run_id = submit(w, api, "a", "b")
    w.end(run_id, 1.0, Reason.REWARD_MISSING)
    other = submit(w, api, "a")
    assert [run["id"] for run in api("GET", RUNS).json()["data"]] == [other, run_id]
    assert [run["id"] for run in api("GET", f"{RUNS}?active=true&mine=true").json()["data"]] == [other]
    failed = api("GET", f"{RUNS}/{run_id}/tasks?phase=failed").json()
    assert [task["task"] for task in failed["data"]] == ["b"]
    assert failed["data"][0]["outcomes"][0]["reason"] == "reward_missing"
    assert api("GET", f"{RUNS}/{run_id}/tasks?phase=odd").status_code == 422


def test_a_run_of_another_workspace_is_not_found(w: World, api: Api):
    run_id = submit(w, api, "a")
    assert api("GET", f"{RUNS.replace('default', 'other')}/{run_id}").status_code == 404


def test_cancel_is_idempotent(w: World, api: Api):
    run_id = submit(w, api, "a")
    first = api("POST", f"{RUNS}/{run_id}/cancel").json()
    assert first["cancel_requested_at"] == api("POST", f"{RUNS}/{run_id}/cancel").json()["cancel_requested_at"]


def test_results_are_not_ready_before_the_end_and_stream_after(w: World, api: Api):
    run_id = submit(w, api, "a")
    early = api("GET", f"{RUNS}/{run_id}/bundle")
    assert (early.status_code, early.json()["error"]) == (409, "NotReady")
    w.end(run_id, 0.5)
    big = bytes(range(256)) * 10_000
    w.put_bundle(run_id, {"summary.json": b"{}", "evidence/x y/#1?.html": b"<script>", "big": big})
    files = {file["path"]: file["size"] for file in api("GET", f"{RUNS}/{run_id}/bundle").json()}
    assert files == {"summary.json": 2, "evidence/x y/#1?.html": 8, "big": len(big)}
    assert api("GET", f"{RUNS}/{run_id}/bundle/summary.json").headers["content-type"] == "application/json"
    assert api("GET", f"{RUNS}/{run_id}/bundle/big").content == big
    (row,) = api("GET", f"{RUNS}/{run_id}/outcomes").json()
    assert row["reward"] == 0.5


def test_files_of_agents_are_never_shown_by_a_browser(w: World, api: Api):
    run_id = submit(w, api, "a")
    w.end(run_id, 0.5)
    w.put_bundle(run_id, {"evidence/x y/#1?.html": b"<script>", "report.html": b"<html>"})
    agents = api("GET", f"{RUNS}/{run_id}/bundle/evidence/x%20y/%231%3F.html")
    assert agents.content == b"<script>"
    assert agents.headers["content-type"] == "application/octet-stream"
    assert "sandbox" in agents.headers["content-security-policy"]
    assert api("GET", f"{RUNS}/{run_id}/bundle/report.html").headers["content-type"].startswith("text/html")


@pytest.mark.parametrize("path", ["..%2f..%2fcatalog.db", "a/%2e%2e/%2e%2e/b", "a//b", "%2fetc/passwd", "%2e", "a%00b"])
def test_a_path_that_leaves_the_bundle_is_not_found(w: World, api: Api, path: str):
    run_id = submit(w, api, "a")
    w.end(run_id, 0.5)
    assert api("GET", f"{RUNS}/{run_id}/bundle/{path}").status_code == 404


def test_logs_go_on_from_an_offset(w: World, api: Api):
    run_id = submit(w, api, "a")
    assert api("GET", f"{RUNS}/{run_id}/logs?task=0&offset=4").json()["text"] == f"of {run_id} 0\n"
    assert api("GET", f"{RUNS}/{run_id}/logs?task=7").status_code == 404
    assert api("GET", f"{RUNS}/{run_id}/logs?offset=-1").status_code == 422


def test_a_body_above_the_limit_is_413_whether_announced_or_not(api: Api):
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(BODY_MAX // 2**20 + 1):
            yield b" " * 2**20

    assert api("PUT", "/tasks/a", content=b" " * (BODY_MAX + 1)).status_code == 413
    assert api("PUT", "/tasks/a", content=pieces()).status_code == 413
    assert api("PUT", "/tasks/a", content=b"{}", headers={"Content-Length": "x"}).status_code == 413


def test_an_error_nobody_foresaw_is_500_without_its_text(w: World, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr(w.catalog, "get_taskset", fail)
    answer = Api(w)("GET", "/tasksets/s")
    assert answer.status_code == 500
    assert "hunter2" not in answer.text


def test_stored_data_that_contradicts_itself_is_500_with_its_sentence(w: World, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise Broken("the digest does not match")

    monkeypatch.setattr(w.catalog, "get_task", fail)
    answer = Api(w)("GET", "/tasks/s")
    assert (answer.status_code, answer.json()["detail"]) == (500, "the digest does not match")


def test_health_and_schema(api: Api):
    health = api("GET", "/apis/evals/v1/healthz").json()
    assert (health["plugin"], health["status"]) == ("evals", "ok")
    schema = api("GET", "/apis/evals/openapi.json").json()
    described = [(path, method) for path, verbs in schema["paths"].items() for method in verbs]
    assert ("/apis/evals/v2/workspaces/{workspace}/agent-evaluate/runs", "post") in described
    for path, method in described:
        assert schema["paths"][path][method]["description"], (path, method)
