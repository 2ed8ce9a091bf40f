"""How calls are made: what is asked again and when, and where a token goes."""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from harbor_assets.domain.errors import NotFound, Refused, ServiceUnavailable
from harbor_assets.interfaces.api.app import create_app
from harbor_assets.interfaces.sdk import http
from harbor_assets.sdk import AsyncClient, Client, Evaluator
from tests.interfaces.backends import NOW, World
from tests.interfaces.served import served

type Reply = tuple[int, dict[str, str]]
PAGE = {
    "data": [],
    "pagination": {"page": 1, "page_size": 100, "current_page_size": 0, "total_pages": 0, "total_results": 0},
}


@contextmanager
def saying(*replies: Reply, seen: list[dict[str, str]] | None = None) -> Iterator[str]:
    """A service that answers so, one after another, the last one ever after."""
    left = list(replies)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        status, headers = left.pop(0) if len(left) > 1 else left[0]
        if seen is not None:
            seen.append({k.decode(): v.decode() for k, v in scope["headers"]} | {"method": scope["method"]})
        body = b"" if status == 204 else json.dumps(PAGE if status == 200 else {"detail": "so it is"}).encode()
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(k.encode(), v.encode()) for k, v in headers.items()],
            }
        )
        await send({"type": "http.response.body", "body": body})

    with served(app) as url:
        yield url


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that calls make, which take no time here."""
    made: list[float] = []

    async def sleep(seconds: float) -> None:
        made.append(seconds)

    monkeypatch.setattr(http, "sleep", sleep)
    return made


def within(made: Sequence[float], wanted: Sequence[float]) -> bool:
    return len(made) == len(wanted) and all(
        want <= one <= want * (1 + http.JITTER) for one, want in zip(made, wanted, strict=True)
    )


@pytest.mark.parametrize(
    ("headers", "first"),
    [
        ({}, 0.2),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0"}, 0.2),
        ({"retry-after": "soon"}, 0.2),
        ({"retry-after": format_datetime(NOW.replace(year=2001))}, 0.2),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_service_is_asked_again_when_it_says(
    pauses: list[float], status: int, headers: dict[str, str], first: float
):
    with saying((status, headers), (status, {}), (200, {})) as url, Evaluator(url) as evaluator:
        assert evaluator.tasks.list().data == []
    assert within(pauses, [first, 0.5])


def test_who_is_to_wait_for_long_is_told_instead(pauses: list[float]):
    said = r"so it is\. It asks to be left alone for 3600 s"
    with (
        saying((429, {"retry-after": "3600"})) as url,
        Evaluator(url) as evaluator,
        pytest.raises(ServiceUnavailable, match=said),
    ):
        evaluator.tasks.list()
    assert pauses == []


def test_too_many_requests_were_not_done_so_that_every_one_is_repeated(pauses: list[float]):
    seen: list[dict[str, str]] = []
    with (
        saying((429, {}), (409, {}), seen=seen) as url,
        Evaluator(url) as evaluator,
        pytest.raises(Refused, match="so it is"),
    ):
        evaluator.metrics.create("m", metric={"type": "f1", "reference": "x"})
    assert [one["method"] for one in seen] == ["POST", "POST"]


@pytest.mark.parametrize(
    ("replies", "fails"), [([(503, {}), (404, {})], False), ([(429, {}), (404, {})], True), ([(404, {})], True)]
)
def test_a_repeated_delete_finds_its_work_done(pauses: list[float], replies: list[Reply], fails: bool):
    with saying(*replies) as url, Evaluator(url) as evaluator:
        if fails:
            with pytest.raises(NotFound):
                evaluator.tasks.delete("a")
        else:
            evaluator.tasks.delete("a")


def test_a_token_goes_to_the_service_and_into_no_text(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    secret, seen = "s3cret.token-~+/==", list[dict[str, str]]()
    with saying((200, {}), (401, {}), seen=seen) as url:
        with Evaluator(url, token=secret) as evaluator:
            evaluator.tasks.list()
            with pytest.raises(Refused) as refused:
                evaluator.tasks.list()
            shown = [repr(each) for each in (evaluator, evaluator.client, evaluator.client.service, evaluator.tasks)]
            shown += [repr(evaluator.client.twin.http._client), str(refused.value), repr(refused.value), caplog.text]
        monkeypatch.setenv("HARBOR_ASSETS_TOKEN", "from.environment")
        with Evaluator(url) as evaluator, pytest.raises(Refused):
            evaluator.tasks.list()
    assert [one["authorization"] for one in seen] == [f"Bearer {secret}", f"Bearer {secret}", "Bearer from.environment"]
    assert not [text for text in shown if "s3cret" in text]


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("token", ["", "two words", "line\nend", "ümlaut"])
def test_what_is_no_token_is_refused_and_not_repeated(token: str, kind: Callable[..., object]):
    with pytest.raises(Refused, match="not sent") as refused:
        kind("http://127.0.0.1:1", token=token)
    assert not token or token not in str(refused.value)


def test_a_token_follows_no_redirect(pauses: list[float]):
    seen: list[dict[str, str]] = []
    with (
        saying((200, {}), seen=seen) as elsewhere,
        saying((307, {"location": f"{elsewhere}/x"})) as url,
        Evaluator(url, token="secret") as evaluator,
        pytest.raises(Refused, match="is the URL right"),
    ):
        evaluator.tasks.list()
    assert seen == []


def test_a_service_and_a_home_are_two_places(tmp_path: object):
    with pytest.raises(Refused, match="two places"):
        Evaluator("http://127.0.0.1:1", home=str(tmp_path))


def test_a_download_that_breaks_off_goes_on_with_the_same_file(w: World, pauses: list[float], tmp_path: Path):
    api, big, broken = create_app(w.backend), b"x" * 3_000_000, list[str]()

    async def breaking(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not scope["path"].endswith("/big") or len(broken) == 2:
            await api(scope, receive, send)
            return
        broken.append(scope["path"])
        if len(broken) == 1:
            length = str(len(big)).encode()
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
            await send({"type": "http.response.body", "body": big[:1000], "more_body": True})
        else:
            await send({"type": "http.response.start", "status": 503, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    w.publish("a")
    told: list[tuple[int, int]] = []
    with served(breaking) as url, Evaluator(url) as evaluator:
        run_id = evaluator.runs.submit("suite").run.id
        w.end(run_id, 1.0)
        w.put_bundle(run_id, {"small": b"text", "big": big})
        folder = evaluator.runs.download(run_id, tmp_path / "out", lambda done, total: told.append((done, total)))
    assert ((folder / "big").read_bytes(), (folder / "small").read_bytes()) == (big, b"text")
    assert told[-1] == (len(big) + 4, len(big) + 4)
    assert len(pauses) == 2
