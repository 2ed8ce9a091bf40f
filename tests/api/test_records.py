"""Tasks and tasksets over REST: the statuses and edge cases of the API's contract, one test each."""

import asyncio
from typing import Any

import pytest

from harbor_assets.domain.tasks import TaskInput
from tests.api.test_api import Api
from tests.interfaces.backends import World, task_input

ABSENT = "0" * 64


@pytest.fixture
def api(w: World) -> Api:
    return Api(w)


def body(intent: str = "Say hello", **more: Any) -> dict[str, Any]:
    return {"spec": {"kind": "evaluator", "intent": intent}, **more}


def digest(intent: str = "Say hello") -> str:
    return TaskInput.model_validate(body(intent)).digest()


def test_create_is_201_once_and_409_after(api: Api):
    made = api("POST", "/tasks/t", json=body())
    assert made.status_code == 201
    assert made.json()["spec"] == {
        "kind": "evaluator",
        "intent": "Say hello",
        "inputs": {"instruction": None},
        "reference": {},
        "metrics": [],
        "views": {},
    }
    again = api("POST", "/tasks/t", json=body("other"))
    assert again.status_code == 409
    assert again.json()["detail"] == "Task with workspace 'default' and name 't' already exists"
    assert api("GET", "/tasks/t").json()["revision"] == 1


def test_replace_is_201_for_a_revision_and_200_for_none(api: Api):
    assert api("PUT", "/tasks/t", json=body()).status_code == 201
    same = api("PUT", "/tasks/t", json=body(tags=["stable", "latest"]))
    assert (same.status_code, same.json()["tags"]) == (200, {"latest": 1, "stable": 1})
    assert api("PUT", "/tasks/t", json=body("new")).json()["revision"] == 2


def test_writes_answer_with_the_revision_and_reads_with_the_record(api: Api):
    first = api("PUT", "/tasks/t", json=body(tags=["old"])).json()
    second = api("PUT", "/tasks/t", json=body("new")).json()
    assert second["tags"] == {"latest": 2}
    record = api("GET", "/tasks/t").json()
    assert (record["id"], record["tags"], record["created_at"]) == (
        first["id"],
        {"latest": 2, "old": 1},
        first["created_at"],
    )
    assert record["created_at"].endswith("Z")
    assert api("GET", f"/tasks/t/revisions/{digest()}").json()["tags"] == {"old": 1}


def test_lists_drop_nulls_at_any_depth_and_single_answers_keep_them(api: Api):
    api("PUT", "/tasks/t", json=body())
    (row,) = (listed := api("GET", "/tasks?sort=-name").json())["data"]
    assert (listed["sort"], "filter" in listed, "project" in row) == ("-name", False, False)
    assert row["spec"]["inputs"] == {}
    assert api("GET", "/tasks/t").json()["project"] is None


def test_revisions_are_newest_first_with_the_digests_that_pin_them(api: Api):
    for intent in ("a", "b", "a"):
        api("PUT", "/tasks/t", json=body(intent))
    page = api("GET", "/tasks/t/revisions?page_size=2").json()
    assert [(r["revision"], r["content_hash"], r["tags"]) for r in page["data"]] == [
        (3, digest("a"), ["latest"]),
        (2, digest("b"), []),
    ]
    assert (page["sort"], page["filter"], page["pagination"]["total_results"]) == (None, None, 3)
    assert api("GET", f"/tasks/t/revisions/{digest('a')}").json()["revision"] == 3
    assert api("GET", "/tasks/nope/revisions").status_code == 404


def test_a_tag_is_moved_backwards_too_and_answers_with_the_record(api: Api):
    for intent in ("a", "b"):
        api("PUT", "/tasks/t", json=body(intent, tags=["blessed"]))
    moved = api("PUT", f"/tasks/t/tags/blessed?revision={digest('a')}")
    assert (moved.status_code, moved.json()["tags"]) == (200, {"latest": 2, "blessed": 1})
    assert moved.json()["spec"]["intent"] == "b"
    assert api("GET", "/tasks/t/revisions/blessed").json()["spec"]["intent"] == "a"
    unknown = api("GET", "/tasks/t/revisions/nope")
    assert unknown.status_code == 404
    assert "'default/t' has no revision tagged 'nope' (known tags: blessed, latest)" in unknown.json()["detail"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("t/tags/latest?revision=latest", 422),
        (f"t/tags/{ABSENT}?revision=latest", 422),
        ("t/tags/a%20b?revision=latest", 422),
        ("t/tags/stable", 422),
        ("t/tags/stable?revision=nope", 404),
        (f"t/tags/stable?revision={ABSENT}", 404),
        ("nope/tags/stable?revision=latest", 404),
    ],
)
def test_tags_that_cannot_be_set(api: Api, path: str, status: int):
    api("PUT", "/tasks/t", json=body())
    assert api("PUT", f"/tasks/{path}").status_code == status
    assert api("GET", "/tasks/t").json()["tags"] == {"latest": 1}


def test_a_bad_tag_in_a_body_is_400(api: Api):
    for path, sent in (("/tasks/t", body(tags=[ABSENT])), ("/tasksets/s", {"tasks": [], "tags": ["a b"]})):
        assert api("PUT", path, json=sent).status_code == 400
        assert api("GET", path).status_code == 404


def test_a_deleted_name_starts_again_at_revision_1(api: Api):
    first = api("PUT", "/tasks/t", json=body("a", tags=["old"])).json()
    api("PUT", "/tasks/t", json=body("b", tags=["old"]))
    gone = api("DELETE", "/tasks/t")
    assert (gone.status_code, gone.content) == (204, b"")
    assert (api("DELETE", "/tasks/t").status_code, api("GET", "/tasks/t").status_code) == (404, 404)
    assert api("DELETE", "/tasks/a%20b").status_code == 404
    again = api("POST", "/tasks/t", json=body("a")).json()
    assert (again["revision"], again["tags"]) == (1, {"latest": 1})
    assert again["id"] != first["id"]


def test_a_taskset_outlives_its_members_and_cannot_be_sent_again_without_them(api: Api):
    api("PUT", "/tasks/t", json=body())
    made = api("POST", "/tasksets/s", json={"tasks": ["t"]}).json()
    assert made["tasks"] == [f"default/t#{digest()}"]
    assert api("DELETE", "/tasks/t").status_code == 204
    assert api("GET", "/tasksets/s").json()["tasks"] == made["tasks"]
    assert api("PUT", "/tasksets/s", json={"tasks": made["tasks"]}).status_code == 422
    assert api("DELETE", "/tasksets/s").status_code == 204


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({"tasks": []}, 201),
        ({"task_ids": []}, 201),
        ({}, 422),
        ({"tasks": [], "task_ids": []}, 422),
        ({"tasks": ["nope"]}, 422),
        ({"task_ids": ["task-nope"]}, 422),
        ({"tasks": ["t", "default/t#latest"]}, 422),
        ({"tasks": [], "files_ref": "ws/f#../x"}, 422),
        ({"tasks": [], "files_ref": "ws/f#a/b"}, 201),
        ({"tasks": [], "description": "x" * 1001}, 422),
        ({"tasks": [], "metadata": [{"key": "k", "value": 1}, {"key": "k", "value": 2}]}, 422),
    ],
)
def test_members_of_a_taskset(api: Api, sent: dict[str, Any], status: int):
    api("PUT", "/tasks/t", json=body())
    assert api("PUT", "/tasksets/s", json=sent).status_code == status


def test_members_by_id_are_the_current_revisions(api: Api):
    made = api("PUT", "/tasks/t", json=body()).json()
    api("PUT", "/tasks/t", json=body("new"))
    assert api("PUT", "/tasksets/s", json={"task_ids": [made["id"]]}).json()["tasks"] == [f"default/t#{digest('new')}"]


def test_projects_must_exist_and_are_updated_without_a_revision(api: Api):
    assert api("PUT", "/tasks/t?project=p", json=body()).status_code == 422
    assert [api("PUT", "/projects/p").status_code for _ in range(2)] == [201, 200]
    assert api("PUT", "/tasks/t?project=p", json=body()).json()["project"] == "p"
    api("PUT", "/projects/q")
    moved = api("PUT", "/tasks/t?project=q", json=body())
    assert (moved.status_code, moved.json()["project"]) == (200, "q")
    assert [t["name"] for t in api("GET", "/tasks?filter[project]=q").json()["data"]] == ["t"]
    assert api("GET", "/tasks?filter[project]=p").json()["data"] == []
    assert (api("DELETE", "/projects/q").status_code, api("DELETE", "/projects/p").status_code) == (409, 204)


def test_a_metric_that_is_not_stored_is_422(api: Api):
    sent = body()
    sent["spec"]["metrics"] = ["nope"]
    assert api("PUT", "/tasks/t", json=sent).status_code == 422
    assert api("GET", "/tasks/t").status_code == 404


def test_a_workspace_nobody_wrote_to_is_empty(api: Api):
    answer = api("GET", "/apis/evals/v2/workspaces/nowhere/tasks")
    assert (answer.status_code, answer.json()["pagination"]["total_pages"]) == (200, 0)


@pytest.mark.parametrize("name", ["A", "x", "-", "größe", "a--b", "x" * 255, "..."])
def test_names_by_the_documented_rule(api: Api, name: str):
    assert api("PUT", f"/tasks/{name}", json=body()).status_code == 201
    assert api("GET", f"/tasks/{name}").json()["name"] == name


def test_evaluation_tasks_do_not_run_on_harbor(w: World, api: Api):
    w.catalog.put_task("default", "h", task_input("org/h"))
    api("PUT", "/tasks/t", json=body())
    api("PUT", "/tasksets/s", json={"tasks": ["t", "h"]})
    answer = api("POST", "/agent-evaluate/runs", json={"spec": {"tasks": {"taskset": "s"}}})
    assert answer.status_code == 422
    assert [problem["subject"] for problem in answer.json()["problems"]] == ["t"]


def test_lists_are_filtered_in_all_three_ways(api: Api):
    api("PUT", "/tasks/a", json=body("Name the capital", metadata=[{"key": "suite", "value": "geo"}]))
    api("PUT", "/tasks/b", json=body("Add", metadata=[{"key": "suite", "value": "maths"}]))
    api("PUT", "/tasksets/s", json={"tasks": ["a"], "description": "Geography"})
    for params in (
        {"filter[metadata.suite]": "geo"},
        {"filter": '{"metadata.suite": "geo", "intent": {"$like": "CAPITAL"}}'},
        {"filter": 'metadata["suite"]:"geo" AND -name:"b"'},
    ):
        assert [task["name"] for task in api("GET", "/tasks", params=params).json()["data"]] == ["a"]
    (member,) = api("GET", "/tasksets/s").json()["tasks"]
    for value, names in ((member, ["s"]), ("a", ["s"]), ("b", []), (f"a#{ABSENT}", [])):
        found = api("GET", "/tasksets", params={"filter[tasks]": value}).json()["data"]
        assert [taskset["name"] for taskset in found] == names
    assert api("GET", "/tasksets?filter[kind]=evaluator").status_code == 400


@pytest.mark.parametrize("same", [True, False])
def test_five_writers_of_one_name_lose_and_double_nothing(w: World, same: bool):
    async def race() -> list[int]:
        def write(number: int) -> int:
            return Api(w)("PUT", "/tasks/t", json=body("same" if same else f"n{number}")).status_code

        return await asyncio.gather(*(asyncio.to_thread(write, number) for number in range(5)))

    statuses = sorted(asyncio.run(race()))
    revisions = [r["revision"] for r in Api(w)("GET", "/tasks/t/revisions").json()["data"]]
    cut = statuses.count(201)
    assert revisions == list(range(cut, 0, -1))
    assert statuses == ([200] * 4 + [201] if same else [201] * 5)


def test_every_failure_is_described_with_an_example(api: Api):
    schema = api("GET", "/apis/evals/openapi.json").json()
    put = schema["paths"]["/apis/evals/v2/workspaces/{workspace}/tasks/{name}"]["put"]
    assert {"200", "201", "400", "404", "409", "422", "503"} <= set(put["responses"])
    assert put["responses"]["422"]["content"]["application/json"]["example"]
    assert set(put["requestBody"]["content"]["application/json"]["examples"]) == {"evaluator", "harbor"}
