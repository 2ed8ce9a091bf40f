"""The client over a real connection: the same answers as in process, and what a network adds."""

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harbor_assets.domain.archives import archive_key, fileset_ref
from harbor_assets.domain.errors import IdempotencyConflict, NotFound, NotReady, Refused, ServiceUnavailable
from harbor_assets.domain.requests import RunRequest, Spec, TaskSelection
from harbor_assets.domain.runs import bundle_key
from harbor_assets.engine.account import evidence_path
from harbor_assets.engine.recovery import Recovered
from harbor_assets.interfaces.api.app import create_app
from harbor_assets.interfaces.sdk import http
from harbor_assets.interfaces.sdk.evaluator import Evaluator
from harbor_assets.interfaces.sdk.http import service_url
from harbor_assets.interfaces.sdk.readers import read_bundle
from tests.interfaces.backends import NOW, World, outcome, task_input
from tests.interfaces.served import free_port, served


@pytest.fixture
def url(w: World) -> Iterator[str]:
    with served(create_app(w.backend)) as base:
        yield base


@pytest.fixture
def evaluator(url: str) -> Iterator[Evaluator]:
    with Evaluator(url) as made:
        yield made


def ask(taskset: str) -> RunRequest:
    return RunRequest(spec=Spec(tasks=TaskSelection(taskset=taskset)))


def archive(folder: Path, size: int = 3_000_000) -> tuple[Path, str]:
    path = folder / "archive"
    path.write_bytes(bytes(range(256)) * (size // 256))
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_run_is_submitted_followed_and_fetched_over_the_network(w: World, evaluator: Evaluator, tmp_path: Path):
    task, cut = evaluator.publishing.put_task("default", "a", task_input("org/a"))
    assert (cut, w.catalog.get_task("default", "a").ref) == (True, task.ref)
    run = evaluator.runs.submit_request(ask(w.publish("a")), idempotency_key="k").run
    assert evaluator.runs.submit_request(ask(w.publish("a")), idempotency_key="k").run.id == run.id
    with pytest.raises(IdempotencyConflict):
        evaluator.runs.submit_request(ask(w.publish("b", taskset="other")), idempotency_key="k")
    with pytest.raises(NotReady):
        evaluator.runs.results(run.id)
    w.end(run.id, 0.5)
    w.merge(run.id)
    assert evaluator.runs.results(run.id).account.policies.scored_only.mean == 0.5
    assert (evaluator.runs.download(run.id, tmp_path) / "report.html").read_bytes() == b"<html>"
    assert evaluator.runs.bundle_location(run.id, "report.html").startswith(f"{evaluator.base_url}/apis/evals/v2/")
    assert evaluator.recover() == Recovered()


def test_an_archive_is_sent_once_whole_and_checked(w: World, evaluator: Evaluator, tmp_path: Path):
    path, digest = archive(tmp_path)
    ref = fileset_ref("default", "task", digest)
    assert evaluator.publishing.has_archive(ref, digest) is False
    evaluator.publishing.put_archive(ref, digest, path)
    assert w.artifacts.objects[archive_key(ref)] == path.read_bytes()
    assert evaluator.publishing.has_archive(ref, digest) is True
    evaluator.publishing.put_archive(ref, digest, path)  # again: what is there stays
    other = fileset_ref("default", "task", "0" * 64)
    with pytest.raises(Refused, match="has SHA-256"):
        evaluator.publishing.put_archive(other, "0" * 64, path)
    assert evaluator.publishing.has_archive(other, "0" * 64) is False


@pytest.mark.parametrize("text", ["", "evals", "ftp://host", "http://", "http://user:secret@host", "http://host?x=1"])
def test_what_is_no_url_of_a_service_is_refused_without_repeating_a_password(text: str):
    with pytest.raises(Refused, match="http://HOST:PORT") as refused:
        service_url(text)
    assert "secret" not in str(refused.value)


def test_nobody_there_is_told_with_the_url_and_what_to_check(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http, "RETRY_PAUSES", (0.01,))
    where = f"http://127.0.0.1:{free_port()}"
    with Evaluator(where) as evaluator, pytest.raises(ServiceUnavailable, match="No service answers at") as lost:
        evaluator.runs.list()
    assert f"curl {where}/healthz" in str(lost.value)


def test_something_else_at_the_url_is_told(monkeypatch: pytest.MonkeyPatch):
    async def page(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 302, "headers": [(b"location", b"/login")]})
            await send({"type": "http.response.body", "body": b""})

    with served(page) as base, Evaluator(base) as evaluator, pytest.raises(Refused, match="is the URL right"):
        evaluator.runs.list()


def test_a_request_holds_only_what_was_asked_for():
    """An earlier service refuses fields that it does not know, also those that say nothing."""
    sent: list[bytes] = []

    async def earlier(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            sent.append((await receive())["body"])
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b'{"detail": "no"}'})

    with served(earlier) as base, Evaluator(base) as evaluator, pytest.raises(NotFound):
        evaluator.runs.submit("suite", n_attempts=3)
    assert json.loads(sent[0]) == {"spec": {"tasks": {"taskset": "suite"}, "target": {"n_attempts": 3}}}


def test_a_service_that_is_away_for_a_moment_is_asked_again(w: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http, "RETRY_PAUSES", (0.05,) * 100)
    port = free_port()
    with Evaluator(f"http://127.0.0.1:{port}") as evaluator:
        back = threading.Event()

        def come_back() -> None:
            time.sleep(0.2)
            with served(create_app(w.backend), port):
                back.wait(20)

        service = threading.Thread(target=come_back)
        service.start()
        try:
            assert evaluator.runs.list().pagination.total_results == 0
        finally:
            back.set()
            service.join(30)


def test_503_is_asked_again_for_what_may_be_repeated_and_for_nothing_else(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http, "RETRY_PAUSES", (0.01, 0.01))
    seen: list[str] = []

    async def busy(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            seen.append(scope["method"])
            body = json.dumps({"detail": "the catalog is away", "error": "ServiceUnavailable"}).encode()
            await send({"type": "http.response.start", "status": 503, "headers": []})
            await send({"type": "http.response.body", "body": body})

    with served(busy) as base, Evaluator(base) as evaluator:
        with pytest.raises(ServiceUnavailable, match="the catalog is away"):
            evaluator.runs.list()
        with pytest.raises(ServiceUnavailable):
            evaluator.tasks.create("a", task=task_input("org/a"))
        assert seen == ["GET", "GET", "GET", "POST"]
        with pytest.raises(ServiceUnavailable):  # it has a key, given or made: one submission however often it is sent
            evaluator.runs.submit_request(ask("suite"))
    assert seen[4:] == ["POST", "POST", "POST"]


def test_one_tasks_own_bundle_is_there_when_the_task_has_ended(w: World, evaluator: Evaluator, tmp_path: Path):
    run_id = evaluator.runs.submit_request(ask(w.publish("a", "b"))).run.id
    plan = w.catalog.get_run(run_id).plan
    with pytest.raises(NotReady, match="0 of its 1 trials"):
        evaluator.runs.download(run_id, tmp_path, task=1)
    with pytest.raises(NotFound, match="its indexes are 0, 1"):
        evaluator.runs.download(run_id, tmp_path, task=7)
    w.catalog.mark_started(run_id, NOW)
    for task, reward in zip(plan.tasks, (0.0, 0.75), strict=True):
        where = evidence_path(run_id, task, 1)
        w.artifacts.put_bytes(f"{bundle_key(run_id)}/{where}/trial.log", f"log of {task.index}".encode())
        w.catalog.add_outcome(outcome(run_id, task, reward).model_copy(update={"evidence": where}))
    folder = evaluator.runs.download(run_id, tmp_path, task=1)  # the run itself goes on
    assert folder == tmp_path / f"{run_id}-task-1" / "agent-eval-results"
    bundle = read_bundle(folder)
    assert bundle.outcome_summary is not None
    assert bundle.outcome_summary.policies.scored_only.mean == 0.75
    assert [(task.id, trial.metadata["reward"]) for task, trial in zip(bundle.tasks, bundle.trials, strict=True)] == [
        ("org/b", 0.75)
    ]
    logs = list(folder.rglob("trial.log"))
    assert [log.read_text() for log in logs] == ["log of 1"]
    assert bundle.run.dashboard_path is None
    assert evaluator.runs.download(run_id, tmp_path, task=1) == folder
