"""Runs through the SDK: in process and served, for plain and for asynchronous code."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from harbor_assets.domain.outcomes import Reason
from harbor_assets.interfaces.sdk.connection import Service
from harbor_assets.interfaces.sdk.http import Http
from harbor_assets.sdk import (
    AsyncClient,
    AsyncEvaluator,
    Client,
    Evaluator,
    IdempotencyConflict,
    NotReady,
    Refused,
    RunPhase,
    ServiceUnavailable,
    read_bundle,
)
from tests.interfaces.backends import NOW, World, outcome


@pytest.fixture
def evaluator(service: Service) -> Iterator[Evaluator]:
    with Client.over(service) as client:
        yield Evaluator.from_client(client)


def test_a_run_is_submitted_waited_for_and_read(w: World, evaluator: Evaluator, tmp_path: Path):
    w.publish("a", "b")
    submitted = evaluator.runs.submit("suite", agent="nop", n_attempts=1, sandbox="process", select=["0"])
    run_id = submitted.run.id
    assert (submitted.created, submitted.run.agent, submitted.run.n_tasks) == (True, "nop", 1)
    with pytest.raises(NotReady, match=r"not ended after 0.01 s; it goes on"):
        evaluator.runs.wait(run_id, timeout_seconds=0.01)
    with pytest.raises(NotReady):
        evaluator.runs.results(run_id)
    w.end(run_id, 0.5)
    w.merge(run_id)
    assert evaluator.runs.wait(run_id).phase is RunPhase.COMPLETED
    assert evaluator.runs.results(run_id).account.policies.scored_only.mean == 0.5
    assert (evaluator.runs.download(run_id, tmp_path) / "report.html").is_file()
    assert [run.id for run in evaluator.runs.list()] == [run_id]
    assert [task.task for task in evaluator.runs.tasks(run_id)] == ["a"]
    assert evaluator.runs.cancel(run_id).phase is RunPhase.COMPLETED


def test_the_same_key_is_the_same_run(w: World, evaluator: Evaluator):
    w.publish("a")
    first = evaluator.runs.submit("suite", idempotency_key="k")
    again = evaluator.runs.submit("suite", idempotency_key="k")
    assert (first.created, again.created, again.run.id) == (True, False, first.run.id)
    with pytest.raises(IdempotencyConflict):
        evaluator.runs.submit("suite", n_attempts=2, idempotency_key="k")
    assert evaluator.runs.submit("suite").run.id != evaluator.runs.submit("suite").run.id


def test_a_request_that_cannot_be_is_refused_with_its_problems(w: World, evaluator: Evaluator):
    w.publish("a")
    with pytest.raises(Refused) as refused:
        evaluator.runs.submit("suite", n_attempts=0, timeout_seconds=-1)
    assert {problem.subject for problem in refused.value.problems} == {"spec.target.n_attempts", "timeout_seconds"}
    with pytest.raises(Refused, match="claude-code"):
        evaluator.runs.submit("suite", agent="claude-code")
    assert evaluator.runs.list().pagination.total_results == 0


def test_following_tells_of_each_change_and_ends_with_the_run(w: World, service: Service):
    w.publish("a", "b")

    async def main() -> list[tuple[str, int]]:
        async with AsyncClient.over(service) as client:
            runs = AsyncEvaluator.from_client(client).runs
            run_id = (await runs.submit("suite")).run.id
            told: list[tuple[str, int]] = []
            async for status in runs.follow(run_id, poll_seconds=0.01):
                told.append((status.run.phase, sum(status.run.counts.values())))
                match told:
                    case [_]:
                        w.catalog.mark_started(run_id, NOW)
                        task = w.catalog.get_run(run_id).plan.tasks[1]
                        w.catalog.add_outcome(outcome(run_id, task, Reason.REWARD_MISSING))
                    case [_, _]:
                        w.catalog.add_outcome(outcome(run_id, w.catalog.get_run(run_id).plan.tasks[0], 1.0))
                        w.catalog.finish(run_id, RunPhase.COMPLETED, status.run.result_state.READY, at=NOW)
            return told

    assert asyncio.run(main()) == [("accepted", 0), ("running", 1), ("completed", 2)]


def test_following_in_plain_code_may_end_early(w: World, evaluator: Evaluator):
    w.publish("a")
    run_id = evaluator.runs.submit("suite").run.id
    for status in evaluator.runs.follow(run_id, poll_seconds=0.01):
        assert status.run.phase == "accepted"
        break
    w.end(run_id, 1.0)
    assert [status.run.phase for status in evaluator.runs.follow(run_id)] == ["completed"]


def test_an_outage_is_waited_out_and_a_long_one_is_told(
    w: World, evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch
):
    w.publish("a")
    run_id = evaluator.runs.submit("suite").run.id
    w.end(run_id, 1.0)
    real, left = Http.call, [3]

    async def flaky(self: Http, *words: object, **more: object) -> object:
        if left[0]:
            left[0] -= 1
            raise ServiceUnavailable("away")
        return await real(self, *words, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Http, "call", flaky)
    assert evaluator.runs.wait(run_id, poll_seconds=0.01).phase is RunPhase.COMPLETED
    left[0] = 1
    assert len(list(evaluator.runs.follow(run_id, poll_seconds=0.01))) == 1
    left[0] = 10_000
    monkeypatch.setattr("harbor_assets.interfaces.sdk.runs.OUTAGE_SECONDS", 0.05)
    for wait in (lambda: evaluator.runs.wait(run_id, poll_seconds=0.01), lambda: [*evaluator.runs.follow(run_id)]):
        monkeypatch.setattr("harbor_assets.interfaces.sdk.runs.POLL_SECONDS", 0.01)
        with pytest.raises(ServiceUnavailable, match="away"):
            wait()


def test_a_run_that_lost_its_worker_goes_on_while_it_is_waited_for(w: World):
    w.publish("a")
    with Client.over(Service("default", backend=w.backend)) as client:
        runs = Evaluator.from_client(client).runs
        run_id = runs.submit("suite").run.id
        w.executions.dead.add(run_id)
        w.executions.on_start = lambda started: w.end(started, 1.0)
        assert runs.wait(run_id, poll_seconds=0.01).phase is RunPhase.COMPLETED


@pytest.mark.req_root
def test_a_home_that_was_never_used_is_all_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The whole way in one process: a real trial in the process sandbox, started and read by the SDK alone."""
    from harbor_assets.examples import hello_world
    from harbor_assets.interfaces.publisher import Publication, Publisher
    from harbor_assets.settings import Settings
    from harbor_assets.wiring import wire

    home = tmp_path / "home"
    monkeypatch.setenv("HARBOR_ASSETS_HOME", str(home))
    told = Publisher(wire(Settings.load())).publish(Publication(folder=str(hello_world())))
    with Evaluator(home=home) as evaluator:
        run = evaluator.runs.submit(told.published.taskset.ref, agent="oracle", sandbox="process").run
        phases = [status.run.phase for status in evaluator.runs.follow(run.id)]
        assert phases[-1] is RunPhase.COMPLETED
        bundle = evaluator.runs.bundle(run.id, tmp_path / "out")
    assert bundle.outcome_summary is not None
    assert bundle.outcome_summary.policies.scored_only.mean == 1.0
    assert bundle == read_bundle(bundle.folder)
