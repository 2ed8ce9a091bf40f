"""What a monitoring system reads: Prometheus' own parser says whether it can."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from harbor_assets.domain.access import Caller, Role
from harbor_assets.domain.errors import ServiceUnavailable, Unauthenticated
from harbor_assets.domain.outcomes import Outcome
from harbor_assets.domain.phases import RunPhase
from harbor_assets.domain.runs import Tally
from harbor_assets.interfaces.api import figures
from harbor_assets.interfaces.api.app import create_app
from harbor_assets.interfaces.api.figures import Figures
from harbor_assets.interfaces.api.guard import FIGURES
from tests.catalog.samples import A, plan
from tests.interfaces.backends import World

type Samples = dict[tuple[str, ...], float]


class Known:
    """Tokens are names of callers."""

    callers = {"monitor": Caller("monitor", {"*": Role.READER}), "ann": Caller("ann", {"default": Role.ADMIN})}

    def authenticate(self, token: str) -> Caller:
        if token not in self.callers:
            raise Unauthenticated("no")
        return self.callers[token]


def service(world: World, tally: Callable[[], Tally] | None = None, authenticator: Any = None) -> Any:
    app = create_app(world.backend, authenticator=authenticator)
    Figures(tally or world.catalog.tally).serve_in(app)

    def ask(path: str, token: str | None = None, method: str = "GET") -> httpx.Response:
        async def call() -> httpx.Response:
            transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                return await client.request(method, path, headers=headers)

        return asyncio.run(call())

    return ask


def read(answer: httpx.Response) -> Samples:
    """Values by name and labels."""
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_runs_trials_queue_and_versions(w: World) -> None:
    w.catalog.add_run(plan(), request_digest=A)
    found = read(service(w)(FIGURES))
    assert found["harbor_assets_catalog_up",] == 1
    assert found["harbor_assets_runs", "phase=accepted"] == 1
    assert {key[1] for key in found if key[0] == "harbor_assets_runs"} == {f"phase={p.value}" for p in RunPhase}
    assert {key[1] for key in found if key[0] == "harbor_assets_trials"} == {f"outcome={o.value}" for o in Outcome}
    assert found["harbor_assets_queue_oldest_seconds",] > 0
    [build] = [key for key in found if key[0] == "harbor_assets_build_info"]
    assert {label.partition("=")[0] for label in build[1:]} == {"dagster", "harbor", "python", "version"}


def test_requests_are_counted_by_their_route_and_made_up_paths_are_one(w: World) -> None:
    ask = service(w)
    for _ in range(3):
        ask("/healthz")
    ask("/apis/evals/v2/workspaces/secret-name/tasks/other-name")
    for n in range(4):
        ask(f"/made-up-{n}")
    ask("/healthz", method="BREW")
    answer = ask(FIGURES)
    found = read(answer)
    count = "harbor_assets_http_requests_total"
    assert found[count, "method=GET", "route=/healthz", "status=200"] == 3
    assert found[count, "method=GET", "route=other", "status=404"] == 4
    assert found[count, "method=GET", "route=/tasks/{name}", "status=404"] == 1
    assert [key for key in found if key[0] == count and "method=other" in key]
    assert found["harbor_assets_http_request_seconds_count", "method=GET"] == 8
    assert "_created" not in answer.text  # a time for each, which nobody asks for
    for name in ("secret-name", "other-name", "made-up", "BREW"):
        assert name not in answer.text


def test_a_look_does_not_ask_the_database_each_time(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def tally() -> Tally:
        asked.append(1)
        return w.catalog.tally()

    ask = service(w, tally)
    for _ in range(3):
        read(ask(FIGURES))
    assert len(asked) == 1
    monkeypatch.setattr(figures, "KEPT_SECONDS", 0.0)
    ask = service(w, tally)
    read(ask(FIGURES))
    read(ask(FIGURES))
    assert len(asked) == 3


def test_a_catalog_that_is_away_is_said_and_the_rest_still_told(w: World) -> None:
    def away() -> Tally:
        raise ServiceUnavailable("postgresql://harbor:***@db is away")

    answer = service(w, away)(FIGURES)
    found = read(answer)
    assert found["harbor_assets_catalog_up",] == 0
    assert not [key for key in found if key[0] in ("harbor_assets_runs", "harbor_assets_trials")]
    assert [key for key in found if key[0] == "harbor_assets_build_info"]
    assert "postgresql" not in answer.text


def test_with_an_access_file_it_takes_a_reader_of_every_workspace(w: World) -> None:
    ask = service(w, authenticator=Known())
    assert ask(FIGURES).status_code == 401
    assert ask(FIGURES, "ann").status_code == 403
    found = read(ask(FIGURES, "monitor"))
    refused = {key[-1] for key in found if key[0] == "harbor_assets_http_requests_total"}
    assert {"status=401", "status=403"} <= refused
