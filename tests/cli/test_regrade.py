"""`runs regrade`: what an ended run kept, verified again as a new run that names it."""

from typing import Any

import pytest

from harbor_assets.domain.errors import Refused
from harbor_assets.domain.outcomes import Reason
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.domain.requests import RunRequest, Spec, Target, TaskSelection
from harbor_assets.domain.tasks import TaskInput, TasksetInput
from tests.cli.conftest import Cli
from tests.cli.test_rerun import new_run
from tests.interfaces.backends import NOW, World, outcome, task_input

SEPARATE: dict[str, Any] = {"verifier": {"environment_mode": "separate"}, "artifacts": ["/app"]}


def changed(native_id: str, *, instruction: str = "Do it.", digest: str = "2", **config: Any) -> TaskInput:
    """Another revision of a task."""
    body = task_input(native_id, **(config or SEPARATE))
    spec = body.spec.model_copy(
        update={
            "instruction": instruction,
            "harbor_hash": body.spec.harbor_hash.model_copy(update={"digest": digest * 64}),
        }
    )
    return body.model_copy(update={"spec": spec})


def run_of(w: World, *ended: float | Reason, shared: tuple[str, ...] = (), n_attempts: int = 1) -> str:
    names = [f"t{at}" for at in range(len(ended))]
    for name in names:
        w.catalog.put_task("default", name, task_input(f"org/{name}", **({} if name in shared else SEPARATE)))
    w.catalog.put_taskset("default", "suite", TasksetInput(tasks=names))
    spec = Spec(tasks=TaskSelection(taskset="suite"), target=Target(n_attempts=n_attempts, max_retries=1))
    run_id = w.evaluations.submit("default", RunRequest(spec=spec)).run.id
    run = w.catalog.get_run(run_id)
    for task, end in zip(run.plan.tasks, ended, strict=True):
        w.catalog.add_outcome(outcome(run_id, task, end, evidence=f"evidence/{task.name}"))
    w.catalog.finish(run_id, RunPhase.COMPLETED, ResultState.READY, at=NOW)
    return run_id


def test_a_new_run_verifies_what_the_old_one_kept_and_names_it(cli: Cli, w: World) -> None:
    old = run_of(w, 1.0, Reason.VERIFIER_TIMEOUT, 0.0)
    before = [row.model_dump() for row in w.catalog.outcomes(old)]
    said = cli("runs", "regrade", old)
    assert said.code == 0, said.err
    new = new_run(w, old)
    assert f"Regrade of {old}: 3 tasks, by the tests of default/suite#" in said.out
    first, second = (w.catalog.get_run(run_id).plan for run_id in (old, new))
    own = {"run_id", "created_at", "regrade_of", "sandbox"}
    assert second.model_dump(exclude=own) == first.model_dump(exclude=own)  # the same tests: the same keys, too
    assert (second.regrade_of, second.rerun_of) == (old, None)
    assert f"regrade of {old}" in cli("runs", "list").out
    assert f"Regrades: {old}" in " ".join(cli("runs", "status", new).out.split())
    assert cli("runs", "status", new, "--json").json["run"]["regrade_of"] == old
    assert [row.model_dump() for row in w.catalog.outcomes(old)] == before


def test_newer_tests_are_taken_from_the_taskset_that_pins_them_and_change_the_key(cli: Cli, w: World) -> None:
    old = run_of(w, 1.0, 0.0)
    w.catalog.put_task("default", "t1", changed("org/t1"))
    refused = cli("runs", "regrade", old)
    assert (refused.code, "no taskset pins all of them" in refused.err) == (2, True), refused.err
    w.catalog.put_taskset("default", "later", TasksetInput(tasks=["t0", "t1"]))
    said = cli("runs", "regrade", old)
    assert said.code == 0, said.err
    assert "by the tests of default/later#" in said.out
    first, second = (w.catalog.get_run(run_id).plan.tasks for run_id in (old, new_run(w, old)))
    assert first[0].trial_key == second[0].trial_key
    assert first[1].trial_key != second[1].trial_key
    own = w.evaluations.submit("default", RunRequest(spec=Spec(tasks=TaskSelection(taskset="later"))))
    fresh = w.catalog.get_run(own.run.id).plan.tasks[1]
    assert second[1].trial_key != fresh.trial_key  # its agent worked on the earlier revision
    asked = cli("runs", "regrade", old, "--taskset", "suite", "--json")
    assert asked.json["run"]["taskset_ref"] == w.catalog.get_run(old).plan.taskset_ref


def test_of_some_nothing_is_kept_and_they_are_named(cli: Cli, w: World) -> None:
    old = run_of(w, 1.0, 1.0, Reason.CANCELLED_BY_USER, shared=("t1",))
    said = cli("runs", "regrade", old)
    assert said.code == 0
    assert "Nothing kept: t1: its verifier works in the agent's own sandbox" in said.out
    assert "Nothing kept: t2: it ended cancelled" in said.out
    assert len(w.catalog.get_run(new_run(w, old)).plan.tasks) == 3  # each has its row, and counts in the coverage


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tasks", "t1"], 'environment_mode = "separate") and name what it needs under `artifacts`'),
        (["--tasks", "9"], "is the index of no task of"),
        (["--taskset", "other"], "does not pin t0, t1. Name another taskset"),
        (["--taskset", "nowhere"], "not found"),
        (["--idempotency-key", " "], "idempotency key is empty"),
    ],
)
def test_what_cannot_be_verified_again_is_refused_with_what_to_do(
    cli: Cli, w: World, words: list[str], said: str
) -> None:
    old = run_of(w, 1.0, 1.0, shared=("t1",))
    w.catalog.put_task("default", "x", task_input("org/x"))
    w.catalog.put_taskset("default", "other", TasksetInput(tasks=["x"]))
    refused = cli("runs", "regrade", old, *words)
    assert refused.code == 2
    assert said in " ".join(refused.err.split()), refused.err
    assert len(w.catalog.list_runs("default").items) == 1


def test_a_task_that_is_gone_from_the_newer_taskset_is_named_with_the_tasks_that_work(cli: Cli, w: World) -> None:
    old = run_of(w, 1.0, 0.0, 0.5)
    own = w.catalog.get_run(old).plan.taskset_ref
    w.catalog.put_task("default", "t1", changed("org/t1"))
    w.catalog.put_taskset("default", "suite", TasksetInput(tasks=["t0", "t1"]))
    later = w.catalog.get_taskset("default", "suite").ref
    refused = cli("runs", "regrade", old)
    assert refused.code == 2
    said = f"{later}, does not pin t2. Leave them out with --tasks 0,1, or verify all of them by the run's own tests"
    assert said in " ".join(refused.err.split()), refused.err
    named = cli("runs", "regrade", old, "--taskset", "suite")
    assert named.code == 2
    assert f"{later} does not pin t2. Leave them out with --tasks 0,1" in " ".join(named.err.split()), named.err
    assert cli("runs", "regrade", old, "--tasks", "0,1").code == 0
    assert cli("runs", "regrade", old, "--taskset", own).code == 0


def test_one_reason_is_said_once(cli: Cli, w: World) -> None:
    old = run_of(w, *[1.0] * 14, shared=tuple(f"t{at}" for at in range(12)))
    said = cli("runs", "regrade", old)
    assert said.out.count("Nothing kept: ") == 1
    assert "Nothing kept: 12 tasks (t0, t1, " in said.out
    assert ", …): its verifier works in" in said.out
    refused = cli("runs", "regrade", old, "--tasks", "0,1")
    assert (refused.code, refused.err.count("its verifier works in")) == (2, 1)
    assert "2 tasks (t0, t1): its verifier works in" in refused.err


def test_an_agent_that_was_told_something_else_is_not_graded_by_these_tests(cli: Cli, w: World) -> None:
    old = run_of(w, 1.0)
    w.catalog.put_task("default", "t0", changed("org/t0", instruction="Do something else."))
    w.catalog.put_taskset("default", "later", TasksetInput(tasks=["t0"]))
    refused = cli("runs", "regrade", old)
    assert (refused.code, "the agent was asked for something else" in refused.err) == (2, True), refused.err


def test_a_run_that_goes_on_is_waited_for_and_a_request_must_fit_the_old_run(cli: Cli, w: World) -> None:
    old = run_of(w, 1.0)
    running = w.evaluations.submit("default", RunRequest(spec=Spec(tasks=TaskSelection(taskset="suite")))).run.id
    assert "has not ended" in cli("runs", "regrade", running).err
    spec = Spec(tasks=TaskSelection(taskset="suite"), target=Target(n_attempts=2))
    with pytest.raises(Refused, match="must name the agent and the number of attempts"):
        w.evaluations.submit("default", RunRequest(spec=spec, regrade_of=old))


def test_a_regraded_run_shows_nothing_of_the_oracle(cli: Cli, w: World) -> None:
    old = run_of(w, 1.0)
    cli("runs", "regrade", old)
    with pytest.raises(Refused, match="no agent ran in it"):
        w.verifications.judge("default", new_run(w, old), old)
