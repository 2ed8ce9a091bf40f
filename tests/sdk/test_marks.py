"""Marks, verifying a taskset, and verifying again, through the SDK: in process and served."""

from collections.abc import Iterator

import pytest

from harbor_assets.domain.marks import Mark
from harbor_assets.domain.phases import ResultState
from harbor_assets.interfaces.sdk.connection import Service
from harbor_assets.sdk import Client, Evaluator, NotFound, NotReady, Refused, Verdict
from tests.interfaces.backends import NOW, World


@pytest.fixture
def evaluator(service: Service) -> Iterator[Evaluator]:
    with Client.over(service) as client:
        yield Evaluator.from_client(client)


def test_a_taskset_is_verified_and_its_marks_are_read(w: World, evaluator: Evaluator) -> None:
    w.publish("a", "b")
    rewards = {"oracle": (1.0, 1.0), "nop": (0.0, 1.0)}
    w.executions.on_start = lambda run_id: w.end(run_id, *rewards[w.catalog.get_run(run_id).plan.agent.name])
    found = evaluator.marks.verify("suite", n_attempts=1)
    assert [task.verdict for task in found.tasks] == [Verdict.GOOD, Verdict.NOP_PASSES]
    assert evaluator.marks.judge(found.oracle_run, found.nop_run) == found
    refs = [task.task_ref for task in found.tasks]
    assert [mark.subject for mark in evaluator.marks.lookup([*refs, "other/x#" + "0" * 64])] == refs
    assert [mark.verdict for mark in evaluator.marks.list(verdict="nop_passes")] == [Verdict.NOP_PASSES]
    assert evaluator.marks.lookup([]) == []
    with pytest.raises(NotFound):
        evaluator.marks.judge("run-" + "0" * 16, found.nop_run)


def test_runs_that_go_on_are_not_judged(w: World, evaluator: Evaluator) -> None:
    w.publish("a")
    runs = [evaluator.runs.submit("suite", agent=agent).run.id for agent in ("oracle", "nop")]
    with pytest.raises(NotReady, match="has not ended"):
        evaluator.marks.judge(*runs)
    assert evaluator.marks.list().data == []


def test_what_warns_is_told_at_submit_and_stays_in_the_plan(w: World, evaluator: Evaluator) -> None:
    w.publish("a")
    ref = w.catalog.get_task("default", "a").ref
    bad = Mark(workspace="default", subject=ref, verdict=Verdict.BAD, who="ann", why="wrong", at=NOW)
    w.catalog.put_mark(bad)
    submitted = evaluator.runs.submit("suite", idempotency_key="k")
    assert submitted.marks == (bad,)
    w.catalog.withdraw_mark("default", ref, "judged")
    assert evaluator.runs.submit("suite", idempotency_key="k").marks == (bad,)
    assert evaluator.runs.submit("suite").marks == ()


def test_nothing_to_verify_again_is_refused_with_what_to_do(w: World, evaluator: Evaluator) -> None:
    w.publish("a")
    run_id = evaluator.runs.submit("suite").run.id
    with pytest.raises(NotReady):
        evaluator.runs.regrade(run_id)
    w.end(run_id, 1.0, state=ResultState.READY)
    with pytest.raises(Refused) as refused:
        evaluator.runs.regrade(run_id)
    assert "give the verifier a sandbox of its own" in refused.value.problems[0].message
