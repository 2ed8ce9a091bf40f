"""What every run catalog does, the fake one too."""

import threading
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from harbor_assets.domain.admission import Admission, Stop
from harbor_assets.domain.errors import Conflict, IdempotencyConflict, NotFound, Refused
from harbor_assets.domain.outcomes import Outcome, Reason, Try
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.domain.runs import RunMarks
from harbor_assets.engine.admission_ports import GatedRuns
from harbor_assets.engine.benchmark_ports import KeyedRuns
from harbor_assets.engine.lineage_ports import MentionCatalog
from harbor_assets.engine.notice_ports import EndedRuns
from harbor_assets.engine.ports import RunCatalog
from tests.catalog.samples import A, B, outcome, plan

NOON = datetime(2030, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
ENDINGS = [phase for phase in RunPhase if phase.terminal]


def accepted(catalog: RunCatalog, **values: object) -> str:
    run, created = catalog.add_run(plan(**values), request_digest=A)
    assert created
    return run.id


def test_a_run_begins_accepted_and_keeps_its_plan(catalog: RunCatalog) -> None:
    frozen = plan(tasks=3, created_at=NOON.astimezone(timezone(timedelta(hours=5))))
    run, created = catalog.add_run(frozen, request_digest=A)
    assert created
    assert run == catalog.get_run(frozen.run_id)
    assert run.plan == frozen
    assert (run.phase, run.result_state) == (RunPhase.ACCEPTED, ResultState.PENDING)
    assert run.created_at == NOON
    assert (run.started_at, run.ended_at, run.cancel_requested_at, run.error) == (None, None, None, None)
    assert (run.executions, run.lost_workers) == (0, 0)


def test_an_id_is_never_given_twice(catalog: RunCatalog) -> None:
    frozen = plan()
    catalog.add_run(frozen, request_digest=A)
    with pytest.raises(Conflict, match=frozen.run_id):
        catalog.add_run(frozen, request_digest=A)


def test_the_same_key_and_request_is_the_same_run(catalog: RunCatalog) -> None:
    first, _ = catalog.add_run(plan(), request_digest=A, idempotency_key="k")
    again, created = catalog.add_run(plan(), request_digest=A, idempotency_key="k")
    assert not created
    assert again.id == first.id
    catalog.finish(first.id, RunPhase.COMPLETED, ResultState.READY, at=NOON)
    again, created = catalog.add_run(plan(), request_digest=A, idempotency_key="k")
    assert not created
    assert again.phase is RunPhase.COMPLETED
    with pytest.raises(IdempotencyConflict, match=first.id):
        catalog.add_run(plan(), request_digest=B, idempotency_key="k")
    assert catalog.list_runs().total == 1


def test_a_refused_key_names_what_changed(catalog: RunCatalog) -> None:
    catalog.add_run(plan(), request_digest=A, request='{"spec": {"a": 1}}', idempotency_key="k")
    with pytest.raises(IdempotencyConflict, match=r"changed: spec\.a, timeout_seconds\."):
        catalog.add_run(
            plan(), request_digest=B, request='{"spec": {"a": 2}, "timeout_seconds": 3}', idempotency_key="k"
        )


def test_ended_runs_are_known_by_their_ids(catalog: RunCatalog) -> None:
    old, young = (catalog.add_run(plan(), request_digest=A)[0].id for _ in range(2))
    assert catalog.ended_runs() == []
    for run_id in (young, old):
        catalog.finish(run_id, RunPhase.FAILED, ResultState.NONE, at=NOON)
    assert catalog.ended_runs() == [old, young]
    assert catalog.ended_runs("default") == [old, young]
    assert catalog.ended_runs("other") == []


def test_all_there_is_can_be_counted(catalog: RunCatalog) -> None:
    nothing = catalog.tally()
    assert set(nothing.runs) == set(RunPhase)
    assert set(nothing.trials) == set(Outcome)
    assert (sum(nothing.runs.values()), sum(nothing.trials.values()), nothing.waiting_since) == (0, 0, None)
    first = accepted(catalog, created_at=NOON)
    accepted(catalog, created_at=NOON + timedelta(hours=1), workspace="other")
    ended = accepted(catalog, created_at=NOON - timedelta(hours=1))
    catalog.add_outcome(outcome(ended))
    catalog.finish(ended, RunPhase.COMPLETED, ResultState.READY, at=NOON)
    found = catalog.tally()
    assert {phase: n for phase, n in found.runs.items() if n} == {RunPhase.ACCEPTED: 2, RunPhase.COMPLETED: 1}
    assert {kind: n for kind, n in found.trials.items() if n} == {Outcome.SCORED: 1}
    assert found.waiting_since == NOON
    catalog.mark_started(first, NOON)
    assert catalog.tally().waiting_since == NOON + timedelta(hours=1)


def test_keys_belong_to_an_owner_and_a_workspace(catalog: RunCatalog) -> None:
    for values in ({}, {"owner": "max"}, {"workspace": "other"}):
        assert catalog.add_run(plan(**values), request_digest=A, idempotency_key="k")[1]
    assert catalog.add_run(plan(), request_digest=A)[1], "without a key nothing is repeated"


def test_lists_are_newest_first_and_filtered(catalog: RunCatalog) -> None:
    ids = {}
    for number, (workspace, owner) in enumerate([("a", "eva"), ("a", "max"), ("b", "eva"), ("a", "eva")]):
        at = NOON + timedelta(microseconds=(number * 7) % 5)  # 0, 2, 4, 1
        ids[number] = accepted(catalog, workspace=workspace, owner=owner, created_at=at)
    catalog.finish(ids[0], RunPhase.FAILED, ResultState.NONE, at=NOON)

    def listed(*args: str, **filters: object) -> list[int]:
        by_id = {run_id: number for number, run_id in ids.items()}
        return [by_id[run.id] for run in catalog.list_runs(*args, **filters).items]  # type: ignore[arg-type]

    assert listed() == [2, 1, 3, 0]
    assert listed("a") == [1, 3, 0]
    assert listed("a", owner="eva") == [3, 0]
    assert listed(owner="eva", active=True) == [2, 3]
    assert listed("nowhere") == []
    page = catalog.list_runs("a", page=2, page_size=2)
    assert ([run.id for run in page.items], page.total, page.unreadable) == ([ids[0]], 3, ())
    assert catalog.list_runs(page=9).items == []
    with pytest.raises(Refused):
        catalog.list_runs(page=0)


def test_an_unknown_run_is_told_with_the_nearest(catalog: RunCatalog) -> None:
    run_id = accepted(catalog)
    wrong = run_id[:-1] + ("0" if run_id[-1] != "0" else "1")
    calls = [
        lambda: catalog.get_run(wrong),
        lambda: catalog.marks(wrong),
        lambda: catalog.begin_execution(wrong),
        lambda: catalog.release(wrong),
        lambda: catalog.mark_started(wrong, NOON),
        lambda: catalog.request_cancel(wrong, NOON),
        lambda: catalog.finish(wrong, RunPhase.FAILED, ResultState.NONE, at=NOON),
        lambda: catalog.add_outcome(outcome(wrong)),
        lambda: catalog.outcomes(wrong),
        lambda: catalog.add_try(wrong, 0, 1, NOON, "x"),
        lambda: catalog.tries(wrong),
    ]
    for call in calls:
        with pytest.raises(NotFound, match=run_id):
            call()


def test_the_first_start_and_the_first_cancel_are_kept(catalog: RunCatalog) -> None:
    run_id = accepted(catalog)
    later = NOON + timedelta(seconds=1)
    run = catalog.mark_started(run_id, NOON)
    assert (run.phase, run.started_at) == (RunPhase.RUNNING, NOON)
    assert catalog.mark_started(run_id, later).started_at == NOON
    assert catalog.request_cancel(run_id, NOON).cancel_requested_at == NOON
    run = catalog.request_cancel(run_id, later)
    assert (run.cancel_requested_at, run.phase) == (NOON, RunPhase.RUNNING)
    assert catalog.marks(run_id) == RunMarks(started_at=NOON, cancel_requested_at=NOON)
    assert catalog.marks(accepted(catalog)) == RunMarks()


@pytest.mark.parametrize("phase", ENDINGS)
def test_a_terminal_run_never_changes(catalog: RunCatalog, phase: RunPhase) -> None:
    run_id = accepted(catalog)
    ended = catalog.finish(run_id, phase, ResultState.READY, at=NOON, error="why")
    assert (ended.phase, ended.result_state, ended.ended_at, ended.error) == (phase, ResultState.READY, NOON, "why")
    later = NOON + timedelta(seconds=1)
    assert catalog.finish(run_id, RunPhase.FAILED, ResultState.NONE, at=later, error="other") == ended
    assert catalog.begin_execution(run_id) == ended
    assert catalog.mark_started(run_id, later) == ended
    assert catalog.request_cancel(run_id, later) == ended
    catalog.release(run_id)
    assert not catalog.add_outcome(outcome(run_id))
    with pytest.raises(Refused, match=phase):
        catalog.add_try(run_id, 0, 1, NOON, "x")
    assert catalog.outcomes(run_id) == []
    assert catalog.tries(run_id) == {}
    assert catalog.get_run(run_id) == ended


@pytest.mark.parametrize(
    ("phase", "state"),
    [
        (RunPhase.ACCEPTED, ResultState.READY),
        (RunPhase.RUNNING, ResultState.NONE),
        (RunPhase.FAILED, ResultState.PENDING),
    ],
)
def test_an_end_that_is_none_is_a_bug_of_ours(catalog: RunCatalog, phase: RunPhase, state: ResultState) -> None:
    run_id = accepted(catalog)
    with pytest.raises(ValueError, match="does not end"):
        catalog.finish(run_id, phase, state, at=NOON)
    assert catalog.get_run(run_id).phase is RunPhase.ACCEPTED


def test_workers_lost_in_a_row_are_counted(catalog: RunCatalog) -> None:
    run_id = accepted(catalog)
    counts = [(run.executions, run.lost_workers) for run in (catalog.begin_execution(run_id) for _ in range(3))]
    assert counts == [(1, 0), (2, 1), (3, 2)]
    catalog.add_outcome(outcome(run_id))
    run = catalog.begin_execution(run_id)
    assert (run.executions, run.lost_workers) == (4, 0), "an outcome since then is progress"
    assert catalog.begin_execution(run_id).lost_workers == 1


def test_a_worker_that_let_go_is_not_lost(catalog: RunCatalog) -> None:
    run_id = accepted(catalog)
    catalog.begin_execution(run_id)
    catalog.begin_execution(run_id)
    catalog.release(run_id)
    run = catalog.begin_execution(run_id)
    assert (run.executions, run.lost_workers) == (3, 1), "what was lost before is still counted"
    catalog.add_outcome(outcome(run_id))
    catalog.release(run_id)
    assert catalog.begin_execution(run_id).lost_workers == 0


def test_the_first_outcome_wins(catalog: RunCatalog) -> None:
    run_id = accepted(catalog)
    first = outcome(
        run_id, message="\0 \x1b é 日本", details={"n": 1.0, "deep": [None, True]}, tries=(Try(start=NOON, cost=0.1),)
    )
    assert catalog.add_outcome(first)
    assert not catalog.add_outcome(outcome(run_id, reason=Reason.NEVER_STARTED))
    assert catalog.outcomes(run_id) == [first]


def test_outcomes_come_by_index_and_k(catalog: RunCatalog) -> None:
    run_id, other = accepted(catalog), accepted(catalog)
    for index, k in ((10, 1), (2, 2), (2, 1), (0, 1)):
        assert catalog.add_outcome(outcome(run_id, index, k))
    assert catalog.add_outcome(outcome(other))
    assert [(row.index, row.k) for row in catalog.outcomes(run_id)] == [(0, 1), (2, 1), (2, 2), (10, 1)]
    assert [(row.index, row.k) for row in catalog.outcomes(run_id, 2)] == [(2, 1), (2, 2)]
    assert catalog.outcomes(run_id, 3) == []


def test_outcomes_are_counted_by_run(catalog: RunCatalog) -> None:
    one, two, none = (accepted(catalog) for _ in range(3))
    for index in range(3):
        catalog.add_outcome(outcome(one, index))
    catalog.add_outcome(outcome(one, 3, reason=Reason.NEVER_STARTED))
    catalog.add_outcome(outcome(two))
    assert catalog.count_outcomes([one, two, none]) == {
        one: {"scored": 3, "not_started": 1},
        two: {"scored": 1},
        none: {},
    }
    assert catalog.count_outcomes([]) == {}


def test_tries_are_kept_oldest_first(catalog: RunCatalog) -> None:
    run_id = accepted(catalog)
    later = NOON + timedelta(minutes=1)
    catalog.add_try(run_id, 0, 1, later, "b")
    catalog.add_try(run_id, 0, 1, NOON, "a")
    catalog.add_try(run_id, 0, 1, NOON, "a")
    catalog.add_try(run_id, 1, 2, NOON, "c")
    assert catalog.tries(run_id) == {(0, 1): [(NOON, "a"), (later, "b")], (1, 2): [(NOON, "c")]}
    assert catalog.tries(run_id, 1) == {(1, 2): [(NOON, "c")]}
    assert catalog.tries(accepted(catalog)) == {}


def test_a_lock_is_held_by_one_at_a_time(catalog: RunCatalog) -> None:
    inside, most = 0, 0

    def hold() -> None:
        nonlocal inside, most
        with catalog.lock("partitions"):
            inside += 1
            most = max(most, inside)
            time.sleep(0.02)
            inside -= 1

    threads = [threading.Thread(target=hold) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    with catalog.lock("partitions"), catalog.lock("other"):
        catalog.list_runs()


def test_runs_are_found_by_the_beginning_of_their_key(catalog: RunCatalog) -> None:
    keyed: KeyedRuns = catalog  # type: ignore[assignment]  # every catalog is both
    ids = {
        key: catalog.add_run(plan(), request_digest=A, idempotency_key=key)[0].id
        for key in ("b/a_b/1", "b/a_b/2", "b/aXb/1", "B/a_b/3")
    }
    plain = accepted(catalog)
    other = catalog.add_run(plan(owner="somebody"), request_digest=A, idempotency_key="b/a_b/9")[0]
    run = catalog.get_run(plain)
    found = keyed.runs_by_key(run.plan.workspace, run.plan.owner, "b/a_b/")
    assert [tuple(each) for each in found] == [(key, ids[key]) for key in ("b/a_b/1", "b/a_b/2")]
    assert keyed.runs_by_key("elsewhere", run.plan.owner, "b/") == []
    assert [keyed.key_of(run_id) for run_id in (ids["b/aXb/1"], other.id, plain)] == ["b/aXb/1", "b/a_b/9", None]


def test_the_state_of_the_gate_is_kept_with_the_run(catalog: GatedRuns) -> None:
    run_id = accepted(catalog)
    assert catalog.admission(run_id) == Admission() == catalog.get_run(run_id).admission
    stop = Admission(proven=True, stop=Stop(reason=Reason.PROVIDER_REFUSED, message="a 'key' \\x00 é", at=NOON))
    assert catalog.change_admission(run_id, lambda before: stop if before == Admission() else before) == stop
    assert catalog.admission(run_id) == stop == catalog.get_run(run_id).admission
    catalog.finish(run_id, RunPhase.FAILED, ResultState.NONE, at=NOON)
    catalog.change_admission(run_id, lambda before: Admission())
    assert catalog.admission(run_id) == stop
    with pytest.raises(NotFound):
        catalog.admission("run-ffffffffffffffff")
    with pytest.raises(NotFound):
        catalog.change_admission("run-ffffffffffffffff", lambda before: before)


def test_runs_are_found_by_what_their_plans_name(catalog: RunCatalog) -> None:
    mentions: MentionCatalog = catalog  # type: ignore[assignment]  # every catalog is both
    ids = [accepted(catalog, tasks=2, created_at=NOON + timedelta(hours=hour)) for hour in range(3)]
    accepted(catalog, tasks=1, workspace="elsewhere")
    run = catalog.get_run(ids[0])
    ref, workspace = run.plan.tasks[1].ref, run.plan.workspace
    found = mentions.runs_mentioning(workspace, f'"{ref}"', limit=2)
    assert ([each.id for each in found.items], found.total) == ([ids[2], ids[1]], 3)
    for text in (f'"{ref[:-1]}"', f'"{ref.replace("suite", "s%")}"', f'"{ref.upper()}"'):
        assert not mentions.runs_mentioning(workspace, text, limit=5).items


def test_ended_runs_are_found_by_when_they_ended(catalog: RunCatalog) -> None:
    ended: EndedRuns = catalog  # type: ignore[assignment]  # every catalog is both
    ids = [accepted(catalog) for _ in range(4)]
    for hour, run_id in zip((2, 0, 1), ids, strict=False):
        catalog.finish(run_id, RunPhase.FAILED, ResultState.NONE, at=NOON + timedelta(hours=hour))
    found = ended.ended_since(NOON + timedelta(hours=1), limit=5)
    assert [tuple(each) for each in found] == [(NOON + timedelta(hours=1), ids[2]), (NOON + timedelta(hours=2), ids[0])]
    assert [each.run_id for each in ended.ended_since(NOON, limit=1)] == [ids[1]]
