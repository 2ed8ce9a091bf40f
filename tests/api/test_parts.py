"""The API in parts says what the whole says, and a call makes no more routes than its own part's."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from harbor_assets.interfaces.api.app import PartedApp, create_app
from harbor_assets.interfaces.api.parts import PARTS, Part, part_of
from tests.interfaces.backends import World

_OWN = {"/openapi.json", "/healthz", "/apis/evals/v1/healthz", "/readyz"}
_PATHS = "/apis/evals/v2/workspaces/default"


def paths(app: Any) -> set[str]:
    return set(app.openapi()["paths"]) - _OWN


def filled(path: str) -> str:
    return path.replace("{workspace}", "my-space").replace("{", "").replace("}", "")


def test_every_route_is_its_own_parts(w: World):
    whole = create_app(w.backend)
    of_parts = {part.name: paths(create_app(w.backend, [part])) for part in PARTS}
    assert set().union(*of_parts.values()) == paths(whole)
    for name, own in of_parts.items():
        assert {part.name for path in own if (part := part_of(filled(path)))} == ({name} if own else set())
        assert all(part_of(filled(path)) for path in own)


@pytest.mark.parametrize("path", ["/", "/healthz", f"{_PATHS}/tasksx", f"{_PATHS}/agent-evaluate", "/other/tasks"])
def test_what_is_no_parts_is_the_wholes(path: str):
    assert part_of(path) is None


@pytest.mark.parametrize(
    "path",
    [
        "/healthz",
        "/apis/nowhere",
        f"{_PATHS}/tasks",
        f"{_PATHS}/agent-evaluate/runs/run-1/x",
        f"{_PATHS}/agent-evaluate/x",
    ],
)
def test_both_answer_alike(w: World, path: str):
    whole, parted = TestClient(create_app(w.backend)), TestClient(PartedApp(w.backend))
    for method in ("GET", "PATCH"):
        one, other = whole.request(method, path), parted.request(method, path)
        assert (one.status_code, one.content) == (other.status_code, other.content)


def test_a_call_makes_its_own_parts_routes_once(w: World, monkeypatch: pytest.MonkeyPatch):
    made: list[str] = []

    def counted(backend: Any, parts: "list[Part]", **options: Any) -> Any:
        made.extend(part.name for part in parts)
        return create_app(backend, parts, **options)

    monkeypatch.setattr("harbor_assets.interfaces.api.app.create_app", counted)
    http = TestClient(PartedApp(w.backend))
    for _ in range(2):
        assert http.get(f"{_PATHS}/agent-evaluate/runs").status_code == 200
    assert made == ["runs"]
