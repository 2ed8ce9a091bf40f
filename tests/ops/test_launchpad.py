"""The Launchpad's jobs: what they ask the engine for, and what is refused before anything is stored."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import dagster as dg
import pytest

from harbor_assets.definitions import defs
from harbor_assets.domain.errors import Problem, Refused
from harbor_assets.domain.requests import RunRequest, SandboxRequest
from harbor_assets.interfaces.publisher import Publisher
from harbor_assets.jobs import publish_suite, submit_evaluation
from harbor_assets.ops.submit import Sandbox, Submission
from harbor_assets.partitions import run_task_key
from harbor_assets.wiring import local_services
from tests.suites.make import bad_toml, make_suite, make_task

RUN = "run-0123456789abcdef"


class Evaluations:
    """Remembers what was asked for, or refuses it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[tuple[str, RunRequest, str | None]] = []
        self.error = error

    def submit(self, workspace: str, request: RunRequest, *, idempotency_key: str | None = None) -> Any:
        if self.error:
            raise self.error
        self.asked.append((workspace, request, idempotency_key))
        run = SimpleNamespace(
            id=RUN, n_tasks=2, n_trials=6, taskset_ref="w/s#abc", agent="nop", sandbox="process", sandbox_why="asked"
        )
        return SimpleNamespace(run=run, already_running=())


def submit(evaluations: Evaluations, **config: Any) -> dg.ExecuteInProcessResult:
    return submit_evaluation.execute_in_process(
        run_config={"ops": {"submit": {"config": config}}},
        resources={"evaluations": evaluations},
        raise_on_error=False,
    )


def failure(result: dg.ExecuteInProcessResult) -> str:
    (event,) = [event for event in result.all_events if event.is_step_failure]
    error = event.step_failure_data.error
    assert error is not None
    return str(error)


def test_a_submission_is_the_request_of_the_command_line():
    evaluations = Evaluations()
    result = submit(
        evaluations,
        taskset="w/s",
        agent="nop",
        agent_env={"LOG_LEVEL": "debug"},
        agent_timeout_multiplier=2.0,
        tasks=["0", "b"],
        attempts=3,
        max_concurrent=2,
        cpus=1.5,
        workspace="w",
    )
    assert result.success
    ((workspace, request, key),) = evaluations.asked
    assert (workspace, key) == ("w", f"dagster-{result.run_id}")
    assert request.spec.tasks.select == ["0", "b"]
    assert (request.spec.target.source.name, request.spec.target.n_attempts) == ("nop", 3)
    assert (request.spec.target.env_vars, request.spec.target.agent_timeout_multiplier) == ({"LOG_LEVEL": "debug"}, 2)
    assert (request.execution.sandbox.kind, request.execution.sandbox.cpus) == ("auto", 1.5)
    assert request.execution.max_concurrent_task_jobs == 2


def test_a_value_that_breaks_a_rule_is_named_and_nothing_is_asked_for():
    evaluations = Evaluations()
    assert "n_attempts 0: " in failure(submit(evaluations, taskset="w/s", attempts=0))
    secret = failure(submit(evaluations, taskset="w/s", agent_env={"API_KEY": "hush"}))
    assert "API_KEY is named like a credential" in secret
    assert "hush" not in secret
    assert evaluations.asked == []


def test_what_the_engine_refuses_is_said_in_its_words():
    refused = Refused("The run was not accepted:", [Problem("agent 'orcale'", "did you mean oracle?")])
    assert "did you mean oracle?" in failure(submit(Evaluations(refused), taskset="w/s"))


def test_the_launchpad_offers_the_sandboxes_that_a_request_takes():
    assert [kind.value for kind in Sandbox] == list(get_args(SandboxRequest.model_fields["kind"].annotation))


def publish(instance: dg.DagsterInstance, **config: Any) -> dg.ExecuteInProcessResult:
    return publish_suite.execute_in_process(
        run_config={"ops": {"publish": {"config": config}}},
        resources={"publisher": Publisher(local_services())},
        instance=instance,
        raise_on_error=False,
    )


def test_a_folder_is_published_as_partitions_twice_the_same(tmp_path: Path):
    suite = make_suite(tmp_path / "suite", 2)
    with dg.DagsterInstance.ephemeral() as instance:
        for _ in range(2):
            assert publish(instance, folder=str(suite)).success
        tasks = instance.get_dynamic_partitions("task")
        assert len(tasks) == 2
        assert instance.get_materialized_partitions(dg.AssetKey("harbor_task")) == set(tasks)
        assert len(instance.get_dynamic_partitions("taskset")) == 1
        assert publish(instance, folder=str(suite), limit=1).success
        assert len(instance.get_dynamic_partitions("task")) == 2
        assert len(instance.get_dynamic_partitions("taskset")) == 2


def test_a_broken_suite_is_refused_by_name(tmp_path: Path):
    make_task(tmp_path, "good")
    bad_toml(tmp_path)
    with dg.DagsterInstance.ephemeral() as instance:
        assert "bad-toml" in failure(publish(instance, folder=str(tmp_path)))
        assert publish(instance, folder=str(tmp_path), skip_invalid=True).success
        assert "not a full path" in failure(publish(instance, folder="suite"))


def test_trial_results_made_by_hand_leave_nothing_behind():
    key = run_task_key(RUN, 0)
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("run_task", [key])
        job = defs.resolve_job_def("evaluate")
        with pytest.raises(dg.DagsterInvalidConfigError, match="job submit_evaluation"):
            job.execute_in_process(instance=instance, partition_key=key, tags={"harbor/run_id": RUN})
        assert instance.get_runs() == []


def test_no_value_of_an_agents_variable_is_told() -> None:
    for variables in ({"API_TOKEN": "s3cr3t-value"}, {"LOG": "s3cr3t-value" * 4000}):
        with pytest.raises(dg.Failure) as refused:
            Submission(taskset="w/s", agent_env=variables).request()
        assert "The run was not submitted" in str(refused.value)
        assert "s3cr3t" not in str(refused.value)
