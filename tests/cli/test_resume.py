"""`runs resume`: a run goes on by hand, and it is said what that means."""

from datetime import UTC, datetime

from harbor_assets.domain.admission import Admission, Hold, Stop
from harbor_assets.domain.endings import Ending, trial_error
from harbor_assets.domain.outcomes import Reason, Try
from harbor_assets.domain.plans import trial_id
from harbor_assets.engine.account import row
from harbor_assets.engine.tries import keep_try
from tests.cli.conftest import Cli
from tests.cli.test_runs import ended, submit
from tests.interfaces.backends import World

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def without_worker(w: World, *names: str) -> str:
    run_id = submit(w, *names)
    w.catalog.begin_execution(run_id)
    w.catalog.mark_started(run_id, NOON)
    w.executions.dead.add(run_id)
    w.executions.started.clear()
    return run_id


def test_it_says_what_is_run_again_and_what_that_had_cost(cli: Cli, w: World):
    run_id = without_worker(w, "a", "b", "c")
    plan = w.catalog.get_run(run_id).plan
    w.catalog.add_outcome(row(plan, plan.tasks[0], 1, Ending(Reason.GRADED, reward=1.0)))
    before = w.catalog.outcomes(run_id)[0].model_dump_json()
    for second in (1, 2):
        w.catalog.add_try(run_id, 1, 1, NOON.replace(second=second), "evidence")
    tried = Try(start=NOON, end=NOON, cost=0.25, reason=Reason.EVICTED, error=trial_error("Evicted", "x"))
    keep_try(w.artifacts, run_id, trial_id(plan.tasks[1], 1), 1, tried)
    said = cli("runs", "resume", run_id)
    assert said.code == 0, said.err
    assert f"{run_id} goes on: 2 trials to run; 1 of 3 had ended and stay as they are" in said.out
    assert "Run again, since they had begun: 1 trial\n" in said.out
    assert (
        "  1 b: 2 tries, 1 lost with the worker, the last begun 2030-01-01 12:00:02Z, for $0.2500 that are known of"
    ) in said.out
    assert w.executions.started == [run_id]
    assert w.catalog.outcomes(run_id)[0].model_dump_json() == before
    again = cli("runs", "resume", run_id)
    assert (again.code, "has a worker at work already" in again.out) == (0, True)
    assert w.executions.started == [run_id]


def test_a_worker_lost_before_does_not_count_against_a_run_that_a_person_lets_go_on(cli: Cli, w: World):
    run_id = without_worker(w, "a")
    for _ in range(2):
        w.catalog.begin_execution(run_id)
    assert w.catalog.get_run(run_id).lost_workers == 2
    assert cli("runs", "resume", run_id, "--json").json["started"]
    assert w.catalog.begin_execution(run_id).lost_workers == 2


def test_an_ended_run_is_refused_with_the_way_to_go(cli: Cli, w: World):
    run_id = ended(w, 1.0, Reason.SANDBOX_LOST)
    refused = cli("runs", "resume", run_id)
    assert refused.code == 2
    assert f"harbor-assets runs rerun {run_id} --failed" in refused.err
    assert "an ended run never changes" in refused.err


def test_a_paused_run_is_opened_and_a_stopped_one_refused(cli: Cli, w: World):
    run_id = submit(w, "a")
    hold = Hold(reason=Reason.SANDBOX_LOST, message="x", since=NOON, next_at=NOON.replace(year=2090), failed=4)
    w.catalog.change_admission(run_id, lambda state: Admission(hold=hold))
    status = " ".join(cli("runs", "status", run_id).out.split())
    assert "Waiting: paused since 12:00:00 UTC, as 3 trials in a row ended with sandbox_lost; 4 failed since" in status
    said = cli("runs", "resume", run_id, "--json")
    assert (said.json["reopened"], said.json["at_work"], said.json["started"]) == (True, True, False)
    opened = w.catalog.admission(run_id).hold
    assert opened
    assert (opened.failed, opened.next_at < hold.next_at) == (0, True)
    stop = Stop(reason=Reason.PROVIDER_REFUSED, message="provider_refused: no key", at=NOON)
    w.catalog.change_admission(run_id, lambda state: Admission(stop=stop))
    refused = cli("runs", "resume", run_id)
    assert (refused.code, "provider_refused: no key" in refused.err) == (2, True)


def test_a_run_that_is_being_cancelled_does_not_go_on(cli: Cli, w: World):
    run_id = submit(w, "a")
    w.catalog.request_cancel(run_id, NOON)
    assert cli("runs", "resume", run_id).code == 2
