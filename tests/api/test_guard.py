"""Who may call what: every route of the API stands in a table here, with the role that it needs."""

import asyncio
import re
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute

from harbor_assets.domain.access import Caller, Role
from harbor_assets.domain.errors import ServiceUnavailable, Unauthenticated
from harbor_assets.domain.requests import RunRequest, Spec, TaskSelection
from harbor_assets.interfaces.api.app import create_app
from harbor_assets.interfaces.api.guard import OPEN, needed
from tests.interfaces.backends import World, task_input

CALLERS = {
    "reader": Caller("ann", {"default": Role.READER}),
    "writer": Caller("bob", {"default": Role.WRITER, "shared": Role.READER}),
    "admin": Caller("cleo", {"default": Role.ADMIN}),
    "elsewhere": Caller("dan", {"other": Role.ADMIN}),
    "root": Caller("eve", {"*": Role.ADMIN}),
}
R, W, A = Role.READER, Role.WRITER, Role.ADMIN
EVALS, FILES, INTAKE = (f"/apis/{part}/v2/workspaces/{{workspace}}" for part in ("evals", "files", "intake"))
# A new endpoint is not let through this test before somebody has said here who may call it.
ROLES: dict[str, Mapping[str, Role]] = {
    f"{EVALS}/tasks": {"GET": R},
    f"{EVALS}/tasks/{{name}}": {"GET": R, "POST": W, "PUT": W, "DELETE": W},
    f"{EVALS}/tasks/{{name}}/revisions": {"GET": R},
    f"{EVALS}/tasks/{{name}}/revisions/{{revision}}": {"GET": R},
    f"{EVALS}/tasks/{{name}}/tags/{{tag}}": {"PUT": W},
    f"{EVALS}/tasks:lookup": {"POST": R},
    f"{EVALS}/tasksets": {"GET": R},
    f"{EVALS}/tasksets/{{name}}": {"GET": R, "POST": W, "PUT": W, "DELETE": W},
    f"{EVALS}/tasksets/{{name}}/revisions": {"GET": R},
    f"{EVALS}/tasksets/{{name}}/revisions/{{revision}}": {"GET": R},
    f"{EVALS}/tasksets/{{name}}/tags/{{tag}}": {"PUT": W},
    f"{EVALS}/tasksets/{{name}}/images": {"GET": R, "POST": W},
    f"{EVALS}/images/{{key}}/log": {"GET": R},
    f"{EVALS}/marks": {"GET": R, "POST": W, "DELETE": W},
    f"{EVALS}/marks:lookup": {"POST": R},
    f"{EVALS}/marks:touching": {"POST": R},
    f"{EVALS}/lineage": {"GET": R},
    f"{EVALS}/agent-evaluate/verifications": {"POST": W},
    f"{EVALS}/metrics": {"GET": R},
    f"{EVALS}/metrics/{{name}}": {"GET": R, "POST": W, "DELETE": W},
    f"{EVALS}/projects": {"GET": R},
    f"{EVALS}/projects/{{name}}": {"PUT": A, "DELETE": A},
    f"{EVALS}/agent-evaluate/jobs": {"GET": R, "POST": W},
    f"{EVALS}/agent-evaluate/jobs/{{name}}": {"GET": R},
    f"{EVALS}/agent-eval-results": {"GET": R},
    f"{EVALS}/agent-eval-results/{{name}}": {"GET": R, "DELETE": W},
    f"{EVALS}/agent-eval-results/{{name}}/bundle": {"GET": R},
    f"{EVALS}/agent-eval-results/{{name}}/bundle/{{path}}": {"GET": R},
    f"{EVALS}/eval-results": {"GET": R},
    f"{EVALS}/eval-results/{{name}}": {"GET": R, "DELETE": W},
    f"{EVALS}/agent-evaluate/runs:check": {"POST": W},
    f"{EVALS}/agent-evaluate/runs": {"GET": R, "POST": W},
    f"{EVALS}/agent-evaluate/runs/{{run_id}}": {"GET": R},
    f"{EVALS}/agent-evaluate/runs/{{run_id}}/tasks": {"GET": R},
    f"{EVALS}/agent-evaluate/runs/{{run_id}}/cancel": {"POST": W},
    f"{EVALS}/agent-evaluate/runs/{{run_id}}/rerun": {"POST": W},
    f"{EVALS}/agent-evaluate/runs/{{run_id}}/resume": {"POST": W},
    f"{EVALS}/agent-evaluate/runs/{{run_id}}/publish": {"POST": W},
    f"{EVALS}/agent-evaluate/runs/{{run_id}}/regrade": {"POST": W},
    f"{EVALS}/agent-evaluate/runs/{{run_id}}/outcomes": {"GET": R},
    f"{EVALS}/agent-evaluate/runs/{{run_id}}/compare/{{other}}": {"GET": R},
    f"{EVALS}/agent-evaluate/runs/{{run_id}}/bundle": {"GET": R},
    f"{EVALS}/agent-evaluate/runs/{{run_id}}/bundle/{{path:path}}": {"GET": R},
    f"{EVALS}/agent-evaluate/runs/{{run_id}}/tasks/{{index}}/bundle": {"GET": R},
    f"{EVALS}/agent-evaluate/runs/{{run_id}}/tasks/{{index}}/bundle/{{path:path}}": {"GET": R},
    f"{EVALS}/agent-evaluate/runs/{{run_id}}/tasks/{{index}}/trace": {"GET": R},
    f"{EVALS}/agent-evaluate/runs/{{run_id}}/logs": {"GET": R},
    f"{EVALS}/leaderboard": {"GET": R},
    f"{EVALS}/leaderboard:rebuild": {"POST": A},
    f"{EVALS}/leaderboard:sql": {"POST": R},
    f"{EVALS}/leaderboard/tables/{{table}}": {"GET": R},
    f"{INTAKE}/experiments": {"GET": R, "POST": W},
    f"{INTAKE}/experiments/{{name}}": {"GET": R, "PUT": W, "DELETE": W},
    f"{INTAKE}/evaluations": {"GET": R, "POST": W},
    f"{INTAKE}/evaluations/{{name}}": {"GET": R, "PATCH": W, "PUT": W, "DELETE": W},
    f"{INTAKE}/evaluations/{{name}}/pin": {"POST": W, "DELETE": W},
    f"{INTAKE}/evaluations/{{name}}/sessions": {"GET": R},
    f"{INTAKE}/sessions/{{session_id}}": {"GET": R},
    f"{INTAKE}/sessions/{{session_id}}/spans": {"GET": R},
    f"{INTAKE}/evaluator-results": {"POST": W},
    f"{INTAKE}/ingest/atif": {"POST": W},
    f"{INTAKE}/ingest/otlp/v1/traces": {"POST": W},
    f"{FILES}/filesets": {"POST": W},
    f"{FILES}/filesets/{{name}}": {"GET": R},
    f"{FILES}/filesets/{{name}}/-/{{path:path}}": {"GET": R, "HEAD": R, "PUT": W},
}


class Known:
    """Takes the name of a caller as their token."""

    def __init__(self) -> None:
        self.away = False

    def authenticate(self, token: str) -> Caller:
        if self.away:
            raise ServiceUnavailable("The keys cannot be had now")
        if token not in CALLERS:
            raise Unauthenticated("This token is not known here")
        return CALLERS[token]


class Guarded:
    """The application with a guard, asked synchronously by one of the callers."""

    def __init__(self, world: World) -> None:
        self.known = Known()
        self.app = create_app(world.backend, authenticator=self.known)

    def __call__(self, who: str | None, method: str, path: str, **options: Any) -> httpx.Response:
        headers = {**({"Authorization": f"Bearer {who}"} if who else {}), **options.pop("headers", {})}

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.request(method, path, headers=headers, **options)

        return asyncio.run(ask())


@pytest.fixture
def ask(w: World) -> Guarded:
    return Guarded(w)


def routes(app: Any) -> Iterator[tuple[str, str]]:
    for path, methods in app.openapi()["paths"].items():
        yield from ((method.upper(), path) for method in methods)


def test_every_route_stands_in_the_table(w: World):
    from harbor_assets.engine.ranking import Rankings

    w.rankings = object.__new__(Rankings)
    import dataclasses

    app = create_app(dataclasses.replace(w.backend, rankings=w.rankings))
    plain = {re.sub(r":path\}", "}", path): path for path in ROLES}
    there = {(method, plain.get(path, path)) for method, path in routes(app) if path not in OPEN}
    assert there == {(method, path) for path, methods in ROLES.items() for method in methods}
    assert not [route for route in app.routes if isinstance(route, APIRoute) and route.path not in {*ROLES, *OPEN}]


@pytest.mark.parametrize("path", ROLES)
def test_each_needs_the_role_that_the_table_says(path: str):
    called = path.replace("{workspace}", "default").replace("{path:path}", "a/b").replace("{index}", "0")
    called = re.sub(r"\{\w+\}", "x", called)
    for method, role in ROLES[path].items():
        everywhere = path.endswith(":rebuild")
        assert needed(method, called) == (role, "*" if everywhere else "default")


@pytest.mark.parametrize("path", ROLES)
def test_nobody_gets_in_without_a_token_and_nobody_from_elsewhere(ask: Guarded, path: str):
    called = re.sub(r"\{\w+(:path)?\}", "x", path.replace("{workspace}", "default"))
    for method in ROLES[path]:
        nobody = ask(None, method, called)
        assert nobody.status_code == 401
        assert nobody.headers["WWW-Authenticate"] == 'Bearer realm="harbor-assets"'
        assert ask("elsewhere", method, called).status_code == 403


@pytest.mark.parametrize("path", sorted(OPEN - {"/readyz"}))
def test_what_probes_and_tools_read_is_open(ask: Guarded, path: str):
    assert ask(None, "GET", path).status_code == 200


def test_readiness_says_nothing_but_that(ask: Guarded):
    assert ask(None, "GET", "/readyz").json() == {"status": "ok"}


def test_roles_in_use(ask: Guarded):
    task = {"spec": {"kind": "evaluator", "intent": "Say hello"}}
    at = "/apis/evals/v2/workspaces/default"
    assert ask("reader", "PUT", f"{at}/tasks/t", json=task).status_code == 403
    assert ask("writer", "PUT", f"{at}/tasks/t", json=task).status_code == 201
    assert ask("reader", "GET", f"{at}/tasks/t").status_code == 200
    assert ask("writer", "PUT", f"{at}/projects/p").status_code == 403
    assert ask("admin", "PUT", f"{at}/projects/p").status_code == 201
    assert ask("reader", "POST", f"{at}/tasks:lookup", json={"names": ["t"]}).status_code == 200
    assert ask("admin", "POST", f"{at}/leaderboard:rebuild").status_code == 403
    assert ask("writer", "DELETE", f"{at}/tasks/t").status_code == 204


def test_what_is_forbidden_is_named_and_tells_nothing_of_what_is_there(ask: Guarded, w: World):
    w.catalog.put_task("secret", "t", task_input("org/t"))
    there = ask("writer", "GET", "/apis/evals/v2/workspaces/secret/tasks/t")
    absent = ask("writer", "GET", "/apis/evals/v2/workspaces/secret/tasks/absent")
    nowhere = ask("writer", "GET", "/apis/evals/v2/workspaces/nowhere/tasks/t")
    assert there.json() == absent.json()
    assert there.json() == {
        "detail": "'bob' does not have the role reader in workspace 'secret', which this needs",
        "error": "Forbidden",
    }
    assert nowhere.text.replace("nowhere", "secret") == there.text
    assert {answer.status_code for answer in (there, absent, nowhere)} == {403}
    assert there.headers["WWW-Authenticate"] == 'Bearer error="insufficient_scope"'


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Basic reader", "reader", "Bearer nobody", "Bearer reader reader", "Token reader"],
)
def test_what_is_no_good_token_is_401(ask: Guarded, header: str):
    answer = ask(None, "GET", "/apis/evals/v2/workspaces/default/tasks", headers={"Authorization": header})
    assert answer.status_code == 401
    assert "nobody" not in answer.text


def test_two_tokens_are_none(ask: Guarded):
    async def twice() -> httpx.Response:
        transport = httpx.ASGITransport(app=ask.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            headers = [("Authorization", "Bearer reader"), ("Authorization", "Bearer root")]
            return await client.get("/apis/evals/v2/workspaces/default/tasks", headers=headers)

    assert asyncio.run(twice()).status_code == 401


def test_keys_that_are_away_are_503_and_let_nobody_in(ask: Guarded):
    ask.known.away = True
    answer = ask("root", "GET", "/apis/evals/v2/workspaces/default/tasks")
    assert (answer.status_code, answer.json()["error"]) == (503, "ServiceUnavailable")


@pytest.mark.parametrize(
    "path", ["/apis", "/apis/nothing", "/apis/evals/v2/workspaces/", "/apis/evals/v2/workspaces//tasks"]
)
def test_paths_of_no_workspace_are_shut_too(ask: Guarded, path: str):
    assert ask(None, "GET", path).status_code == 401
    assert ask("reader", "GET", path).status_code == 404


def test_an_encoded_slash_leads_into_no_other_workspace(ask: Guarded):
    assert ask("elsewhere", "GET", "/apis/evals/v2/workspaces/default%2Ftasks").status_code == 403
    assert ask("elsewhere", "GET", "/apis/evals/v2/workspaces/other%2F..%2Fdefault/tasks").status_code in (403, 404)
    assert ask("elsewhere", "GET", "/apis/evals/v2/workspaces/other/../default/tasks").status_code == 403


# --- references into other workspaces ---------------------------------------------------------------------------------


def harbor(fileset: str) -> dict[str, Any]:
    body = task_input("org/t").model_dump(mode="json")
    body["spec"]["source"]["fileset_ref"] = f"{fileset}/harbor-tasks#a/b/task_archive"
    return body


def evaluator(*metrics: str) -> dict[str, Any]:
    return {"spec": {"kind": "evaluator", "intent": "x", "metrics": list(metrics)}}


def evaluation(tasks: Any) -> dict[str, Any]:
    return {"spec": {"tasks": tasks, "trials": []}}


FOREIGN: list[tuple[str, str, Any]] = [
    ("PUT", "/tasks/t", lambda at: harbor(at)),
    ("PUT", "/tasks/t", lambda at: evaluator("mine", f"{at}/m")),
    ("PUT", "/tasksets/s", lambda at: {"tasks": [f"{at}/t"]}),
    ("POST", "/tasksets/s", lambda at: {"tasks": [], "files_ref": f"{at}/f#p"}),
    ("POST", "/tasks:lookup", lambda at: {"refs": [f"{at}/t#{'0' * 64}"]}),
    ("POST", "/agent-evaluate/runs", lambda at: {"spec": {"tasks": {"taskset": f"{at}/s"}}}),
    ("POST", "/agent-evaluate/jobs", lambda at: evaluation(f"{at}/s#tag")),
    ("POST", "/agent-evaluate/jobs", lambda at: evaluation([{"id": "1", "intent": "x", "metrics": [f"{at}/m"]}])),
]


@pytest.mark.parametrize(("method", "path", "body"), FOREIGN)
def test_a_reference_is_as_good_as_a_read(ask: Guarded, method: str, path: str, body: Any):
    url = f"/apis/evals/v2/workspaces/default{path}"
    refused = ask("writer", method, url, json=body("secret"))
    assert refused.status_code == 403
    assert "the role reader in workspace 'secret'" in refused.json()["detail"]
    assert ask("writer", method, url, json=body("shared")).status_code != 403
    assert ask("root", method, url, json=body("secret")).status_code != 403


def test_an_id_of_a_task_elsewhere_is_no_id(ask: Guarded, w: World):
    secret, _ = w.catalog.put_task("secret", "t", task_input("org/t"))
    shared, _ = w.catalog.put_task("shared", "t", task_input("org/t"))
    url = "/apis/evals/v2/workspaces/default/tasksets/s"
    refused = ask("writer", "PUT", url, json={"task_ids": [secret.id]})
    assert refused.status_code == 422
    assert "is the id of no task" in refused.text
    assert "secret" not in refused.text
    assert ask("writer", "PUT", url, json={"task_ids": [shared.id]}).status_code == 201


def test_a_run_elsewhere_is_named_to_those_alone_who_may_read_it(ask: Guarded, w: World):
    w.publish("a")
    request = RunRequest(spec=Spec(tasks=TaskSelection(taskset="default/suite")))
    run_id = w.evaluations.submit("secret", request).run.id
    url = f"/apis/evals/v2/workspaces/default/agent-evaluate/runs/{run_id}"
    for path in (url, url[:-1], f"{url}/outcomes", f"{url}/bundle", f"{url}/compare/run-{0:016x}"):
        refused = ask("writer", "GET", path)
        assert refused.status_code == 404
        assert "or none that you may read" in refused.json()["detail"]
        assert "secret" not in refused.text
    assert run_id not in ask("writer", "GET", url[:-1]).text, "nor as one that is near"
    assert "but in 'secret'" in ask("root", "GET", url).json()["detail"]
    assert run_id in ask("root", "GET", url[:-1]).json()["detail"]


def test_runs_are_submitted_in_the_name_of_the_token(ask: Guarded, w: World):
    w.publish("a")
    url = "/apis/evals/v2/workspaces/default/agent-evaluate/runs"
    body = {"spec": {"tasks": {"taskset": "suite"}}}
    made = ask("writer", "POST", url, json=body)
    assert made.json()["run"]["owner"] == "bob"
    ask("admin", "POST", url, json=body)
    mine = ask("writer", "GET", f"{url}?mine=true").json()["data"]
    assert [run["owner"] for run in mine] == ["bob"]


def test_the_same_idempotency_key_of_two_callers_is_two(ask: Guarded, w: World):
    w.publish("a")
    url = "/apis/evals/v2/workspaces/default/agent-evaluate/runs"
    body = {"spec": {"tasks": {"taskset": "suite"}}}
    ids = {
        ask(who, "POST", url, json=body, headers={"Idempotency-Key": "k"}).json()["run"]["id"]
        for who in ("writer", "admin", "writer")
    }
    assert len(ids) == 2
