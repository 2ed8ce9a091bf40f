"""`runs rerun`: an ended run's tasks again, as a new run that names it."""

import pytest

from harbor_assets.domain.outcomes import Reason
from harbor_assets.domain.requests import (
    AgentSource,
    Execution,
    RunRequest,
    SandboxRequest,
    Spec,
    Target,
    TaskSelection,
)
from tests.cli.conftest import Cli
from tests.cli.test_runs import ended, submit
from tests.interfaces.backends import World


def new_run(w: World, old: str) -> str:
    return next(run.id for run in w.catalog.list_runs("default").items if run.id != old)


def test_what_was_not_scored_runs_again_and_the_old_run_stays(cli: Cli, w: World):
    old = ended(w, 1.0, Reason.REWARD_MISSING, 0.0, Reason.SANDBOX_LOST)
    before = [row.model_dump() for row in w.catalog.outcomes(old)]
    said = cli("runs", "rerun", old, "--failed")
    assert said.code == 0, said.err
    new = new_run(w, old)
    assert f"Rerun of {old}: 2 tasks of default/suite#" in said.out
    assert f"Run {new} accepted: 2 tasks" in said.out
    assert [task.index for task in w.catalog.get_run(new).plan.tasks] == [1, 3]  # a zero is a score
    assert w.executions.started[-1] == new
    assert f"Rerun of: {old}" in " ".join(cli("runs", "status", new).out.split())
    assert cli("runs", "status", new, "--json").json["run"]["rerun_of"] == old
    assert cli("runs", "status", old, "--json").json["run"]["rerun_of"] is None
    assert [row.model_dump() for row in w.catalog.outcomes(old)] == before


def test_it_has_the_settings_of_the_old_one_and_its_trials_the_same_keys(cli: Cli, w: World):
    target = Target(
        source=AgentSource(name="nop"),
        n_attempts=3,
        max_retries=2,
        reward_key="speed",
        agent_kwargs={"a": 1},
        env_vars={"SPEED": "fast"},
        agent_timeout_multiplier=0.5,
    )
    execution = Execution(sandbox=SandboxRequest(cpus=2, memory_mb=512, storage_mb=99), max_concurrent_task_jobs=2)
    spec = Spec(tasks=TaskSelection(taskset=w.publish("a", "b", "c"), select=["a", "c"]), target=target)
    request = RunRequest(spec=spec, execution=execution, timeout_seconds=77, min_coverage=0.5)
    old = w.evaluations.submit("default", request).run.id
    assert cli("runs", "rerun", old).code == 0
    first, second = (w.catalog.get_run(run_id).plan for run_id in (old, new_run(w, old)))
    own = {"run_id", "created_at", "rerun_of", "sandbox"}
    assert second.model_dump(exclude=own) == first.model_dump(exclude=own)
    assert [task.trial_key for task in second.tasks] == [task.trial_key for task in first.tasks]


def test_named_tasks_are_those_of_the_run_by_its_own_indexes(cli: Cli, w: World):
    spec = Spec(tasks=TaskSelection(taskset=w.publish("a", "b", "c"), select=["b", "c"]))
    old = w.evaluations.submit("default", RunRequest(spec=spec)).run.id
    assert cli("runs", "rerun", old, "--tasks", "2, b").code == 0
    assert [task.index for task in w.catalog.get_run(new_run(w, old)).plan.tasks] == [1, 2]
    for names, said in (("0", "is the index of no task of"), ("a", "task 'a'"), ("", "names no task")):
        refused = cli("runs", "rerun", old, "--tasks", names)
        assert (refused.code, said in refused.err) == (2, True), refused.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--failed"], "nothing of it failed"),
        (["--failed", "--tasks", "0"], "two selections"),
        (["--idempotency-key", " "], "idempotency key is empty"),
    ],
)
def test_what_makes_no_sense_is_refused(cli: Cli, w: World, words: list[str], said: str):
    old = ended(w, 1.0)
    refused = cli("runs", "rerun", old, *words)
    assert (refused.code, said in refused.err) == (2, True), refused.err
    assert len(w.catalog.list_runs("default").items) == 1


def test_a_run_that_goes_on_has_no_failed_tasks_yet(cli: Cli, w: World):
    old = submit(w, "a")
    refused = cli("runs", "rerun", old, "--failed")
    assert (refused.code, "has not ended" in refused.err) == (2, True), refused.err


def test_the_same_key_is_the_same_rerun(cli: Cli, w: World):
    old = ended(w, Reason.REWARD_MISSING)
    first, second = (cli("runs", "rerun", old, "--failed", "--idempotency-key", "k", "--json").json for _ in range(2))
    assert (first["created"], second["created"]) == (True, False)
    assert first["run"]["id"] == second["run"]["id"]


def test_a_run_of_another_workspace_is_not_found(cli: Cli, w: World):
    old = ended(w, Reason.REWARD_MISSING)
    assert cli("runs", "rerun", old, "--workspace", "other").code == 2
    ref = w.catalog.get_run(old).plan.taskset_ref
    request = RunRequest(spec=Spec(tasks=TaskSelection(taskset=ref)), rerun_of="run-0000000000000000")
    with pytest.raises(Exception, match="Run not found"):
        w.evaluations.submit("default", request)
