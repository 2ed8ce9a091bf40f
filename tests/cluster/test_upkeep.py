"""Executions and upkeep with a real Dagster instance and a real catalog; the cluster and the trials are played."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from harbor_assets.cluster import executions as module
from harbor_assets.cluster.executions import ClusterExecutions, partition_key
from harbor_assets.cluster.reaper import Why
from harbor_assets.cluster.settlement import TRIES_MAX, Order
from harbor_assets.cluster.upkeep import Upkeep
from harbor_assets.domain.endings import Ending
from harbor_assets.domain.errors import Broken, Refused, ServiceUnavailable
from harbor_assets.domain.outcomes import Reason
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.engine.account import row
from harbor_assets.partitions import RUN_TASKS, RUNS, run_task_key
from tests.engine.test_execution import RUN, House, graded
from tests.fakes.cluster import MemoryCluster

STRANGE = "run-ffffffffffffffff"
WORKSPACE = "load_from: [{grpc_server: {host: code, port: 4000, location_name: harbor_assets}}]"
INSTANCE = """
run_coordinator: {module: dagster.core.run_coordinator, class: QueuedRunCoordinator}
run_launcher: {module: tests.cluster.test_upkeep, class: NoLauncher}
telemetry: {enabled: false}
"""


class NoLauncher(dg._core.launcher.RunLauncher, dg._serdes.ConfigurableClass):  # type: ignore[name-defined]
    """Never launches: a test says what became of a Dagster run. `real` is what `ClusterRunLauncher` stands for."""

    def __init__(self, inst_data: Any = None) -> None:
        self._inst_data = inst_data
        super().__init__()

    inst_data = property(lambda self: self._inst_data)
    real = property(lambda self: self)

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        return {}

    @classmethod
    def from_config_value(cls, inst_data: Any, config_value: Any) -> "NoLauncher":
        return cls(inst_data)

    def launch_run(self, context: Any) -> None: ...

    def terminate(self, run_id: str) -> bool:
        run = self._instance.get_run_by_id(run_id)
        assert run
        self._instance.report_run_canceling(run)
        return True


@dg.job(name="settle")
def _settle() -> None: ...


class Place:
    """A deployment of one run with three tasks."""

    def __init__(self, root: Path) -> None:
        self.house = House(root, graded, n_concurrent=50)
        self.cluster, self.orders = MemoryCluster(), list[Order]()
        self.executions = ClusterExecutions(
            runs=self.house.catalog,
            client=self.cluster,  # type: ignore[arg-type]
            has_work=self.house.engine.has_work,
            image="registry/worker:1",
            max_concurrent=20,
        )
        self.upkeep = Upkeep(
            runs=self.house.catalog,
            engine=self.house.engine,
            executions=self.executions,
            client=self.cluster,  # type: ignore[arg-type]
        )

    @property
    def run(self) -> Any:
        return self.house.catalog.get_run(RUN)

    def dagster(self) -> list[str]:
        return [run.status.value for run in self.executions.executions(RUN)]

    def settle(self) -> list[str]:
        """One look, and what it orders carried out as the asset does it."""
        lines, orders = self.upkeep.attend()
        self.orders += orders
        for order in orders:
            assert order.run_id == RUN
            run, settled = self.upkeep.settle(RUN)
            assert not run.phase.terminal
            self.upkeep.finish(RUN, settled)
            return [f"{RUN}: {settled.phase}, result {settled.state}"]
        return lines

    def settling_run(self, tag: str = RUN) -> dg.DagsterRun:
        """A Dagster run that is to settle the run, as the daemon makes it."""
        job = dg.Definitions(jobs=[_settle]).resolve_job_def("settle")
        return self.executions.instance.create_run_for_job(job, tags={"harbor/run_id": tag})

    def score(self, *indexes: int) -> None:
        for index in indexes:
            task = self.run.plan.task(index)
            self.house.catalog.add_outcome(row(self.run.plan, task, 1, Ending(Reason.GRADED, reward=1.0)))

    def fail_run(self, **lost: str) -> None:
        """The Dagster run ends; `lost` is why the worker of a task was lost, as the executor records it."""
        instance, run = self.executions.instance, self.executions.unfinished(RUN)[0]
        for key, why in lost.items():
            step = f"trial_results.trial[t{int(key.removeprefix('t')):05d}]"
            error = dg._utils.error.SerializableErrorInfo(f"Step {step} failed health check: {why}", [], None)
            data = dg._core.execution.plan.objects.StepFailureData(error=error, user_failure_data=None)
            event = dg.DagsterEvent("STEP_FAILURE", "evaluate", step_key=step, event_specific_data=data)
            instance.report_dagster_event(event, run.run_id)
        instance.report_run_failed(run)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    home = tmp_path / "dagster"
    home.mkdir()
    (home / "workspace.yaml").write_text(WORKSPACE)
    (home / "dagster.yaml").write_text(INSTANCE)
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    monkeypatch.setenv("HARBOR_ASSETS_EXECUTOR", "kubernetes")
    monkeypatch.delitem(sys.modules, "harbor_assets.definitions", raising=False)  # it looks there when it is imported
    it = Place(tmp_path)
    yield it
    it.executions.instance.dispose()
    sys.modules.pop("harbor_assets.definitions", None)


def test_names_are_those_of_the_partitions() -> None:
    assert [RUN_TASKS.name, RUNS.name] == [module.PARTITIONS, module.RUN_PARTITIONS]
    assert partition_key(RUN, 7) == run_task_key(RUN, 7)


def test_an_execution_is_a_queued_dagster_run_that_says_whose_it_is(place: Place) -> None:
    assert place.executions.start(RUN)
    (run,) = place.executions.executions(RUN)
    assert run.status is dg.DagsterRunStatus.QUEUED
    assert run.tags.items() >= {"harbor/run_id": RUN, "harbor/execution": "1", "harbor/agent": "oracle"}.items()
    assert run.run_config["execution"] == {"config": {"max_concurrent": 20}}  # the deployment's cap, below 50
    assert run.run_config["ops"]["trial_results"]["ops"]["plan"]["config"] == {"submitted_run": RUN}
    assert run.job_code_origin.repository_origin.container_image == "registry/worker:1"
    assert run.remote_job_origin.location_name == "harbor_assets"
    keys = place.executions.instance.get_dynamic_partitions("run_task")
    assert keys == [f"{RUN}|{i:05d}" for i in range(3)]
    assert place.executions.alive(RUN)
    assert not place.executions.start(RUN)
    assert len(place.dagster()) == 1


def test_no_image_is_refused_by_name(place: Place) -> None:
    place.executions._image = ""
    with pytest.raises(Refused, match="HARBOR_ASSETS_WORKER_IMAGE"):
        place.executions.start(RUN)


def test_a_run_that_ended_is_settled_once_its_pods_are_gone(place: Place) -> None:
    place.executions.start(RUN)
    place.score(0, 1, 2)
    assert place.settle() == []  # the Dagster run goes on
    place.cluster.add_pod("sandbox", {"harbor/run-id": RUN})
    place.fail_run()
    assert "still there" in place.settle()[0]
    assert place.run.phase is RunPhase.ACCEPTED
    place.settle()
    assert not place.orders
    place.cluster.end_pods()
    assert place.settle() == [f"{RUN}: completed, result ready"]
    assert [order.key for order in place.orders] == [f"settle-{RUN}-1"]
    assert place.run.phase is RunPhase.COMPLETED
    assert place.settle() == []


def test_a_lost_task_runs_again_while_there_is_progress_then_is_told(place: Place) -> None:
    place.executions.start(RUN)
    place.score(0, 1)
    why = "Job x failed: container OOMKilled, exit code 137"
    place.house.catalog.add_try(RUN, 2, 1, datetime.now(UTC), "x")
    for execution in (1, 2, 3, 4):
        assert place.run.executions == execution
        place.fail_run(t2=why)
        said = place.settle()
        assert said == ([f"{RUN}: goes on as its next execution"] if execution < 4 else [])
    assert place.settle() == [f"{RUN}: completed, result ready"]
    lost = place.house.catalog.outcomes(RUN)[2]
    assert (lost.reason, lost.message) == (Reason.WORKER_LOST, why)
    assert place.dagster() == ["FAILURE"] * 4


def test_settling_is_not_ordered_twice_and_tried_again_with_pauses(place: Place) -> None:
    place.executions.start(RUN)
    place.score(0, 1, 2)
    with pytest.raises(Refused, match="has not ended"):
        place.upkeep.settle(RUN)
    place.fail_run()
    going_on = place.settling_run()
    place.settling_run("run-ffffffffffffffff")
    assert place.upkeep.attend() == ([], [])
    place.executions.instance.report_run_failed(going_on, "the worker was lost")
    assert place.upkeep.attend() == ([], [])  # too soon
    assert place.dagster() == ["FAILURE"]  # what settles is no execution


def test_settling_that_fails_again_and_again_ends_the_run_without_a_bundle(place: Place) -> None:
    place.executions.start(RUN)
    place.score(0, 1, 2)
    place.fail_run()
    for _ in range(TRIES_MAX):
        place.executions.instance.report_run_failed(place.settling_run())
    (said,) = place.settle()
    assert "completed, result failed" in said
    assert "materialise merged_bundle" in (place.run.error or "")
    assert place.run.result_state is ResultState.FAILED
    run, settled = place.upkeep.settle(RUN)  # as the UI's button does it
    assert run.phase is RunPhase.COMPLETED
    assert settled.state is ResultState.READY


def test_a_run_without_a_worker_is_started_at_the_next_look(place: Place) -> None:
    assert place.settle() == [f"{RUN}: goes on as its next execution"]
    assert place.dagster() == ["QUEUED"]


def test_a_cancel_from_the_queue_ends_at_once(place: Place) -> None:
    place.executions.start(RUN)
    place.house.catalog.request_cancel(RUN, datetime.now(UTC))
    assert not place.executions.start(RUN)  # what a cancel calls
    assert place.dagster() == ["CANCELED"]
    assert place.settle() == [f"{RUN}: cancelled, result none"]


def test_a_cancel_whose_worker_is_dead_needs_no_answer_of_it(place: Place) -> None:
    place.executions.start(RUN)
    place.score(0)
    instance, run = place.executions.instance, place.executions.executions(RUN)[0]
    instance.report_dagster_event(dg.DagsterEvent("PIPELINE_START", "evaluate"), run.run_id)
    marks = {"harbor/run-id": RUN, "dagster/run-id": run.run_id, "app.kubernetes.io/component": "run_worker"}
    place.cluster.add_pod("worker", marks)
    place.house.catalog.request_cancel(RUN, datetime.now(UTC))
    assert place.upkeep.stop_overdue() == [f"{RUN}: stopped: cancelled"]
    assert place.dagster() == ["CANCELING"]
    place.upkeep.stop_overdue()
    assert place.dagster() == ["CANCELING"]  # its pod is still there: it may yet write a row
    place.cluster.end_pods()
    place.upkeep.stop_overdue()
    assert place.dagster() == ["CANCELED"]
    assert place.settle() == [f"{RUN}: cancelled, result ready"]


def test_terminate_in_the_ui_is_a_cancel(place: Place) -> None:
    place.executions.start(RUN)
    place.score(0)
    place.executions.instance.run_coordinator.cancel_run(place.executions.executions(RUN)[0].run_id)
    assert place.settle() == [f"{RUN}: cancelled, result ready"]
    assert place.run.cancel_requested_at


def test_a_run_out_of_time_is_stopped_and_expires(place: Place) -> None:
    place.executions.start(RUN)
    place.house.engine.take_slot(RUN)
    place.house.engine._clock = lambda: datetime.now(UTC) + timedelta(days=2)
    assert place.upkeep.stop_overdue() == [f"{RUN}: stopped: out of time"]
    assert place.settle() == [f"{RUN}: expired, result none"]
    assert not place.run.cancel_requested_at


def test_a_cluster_that_does_not_answer_loses_nothing(place: Place) -> None:
    place.executions.start(RUN)
    place.score(0, 1, 2)
    place.fail_run()
    place.cluster.fail = ServiceUnavailable("no answer")
    assert place.settle() == [f"{RUN}: left for the next look: no answer"]
    place.cluster.fail = None
    assert place.settle() == [f"{RUN}: completed, result ready"]


def test_the_reaper_takes_what_ended_and_unknown_runs_left_and_nothing_else(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harbor_assets.cluster.reaper.MIN_AGE_SECONDS", -5.0)
    for name, run_id in (("mine", RUN), ("strange", STRANGE)):
        place.cluster.add_pod(name, {"harbor/run-id": run_id})
    place.cluster.add_pod("neighbour", {"app": "other"})
    assert [(run, why) for run, (why, _) in place.upkeep.reap(dry_run=True).runs.items()] == [(STRANGE, Why.UNKNOWN)]
    total, line = place.upkeep.reap().lines()
    assert total.startswith("1 runs: deleted 0 Jobs, 1 pods")
    assert line.startswith(f"{STRANGE}: deleted 0 Jobs, 1 pods")
    assert line.endswith("(the catalog knows no such run)")
    place.cluster.end_pods()
    assert set(place.cluster.pods) == {"mine", "neighbour"}


def test_the_reaper_of_a_run_whose_plan_cannot_be_read(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harbor_assets.cluster.reaper.MIN_AGE_SECONDS", -5.0)
    place.cluster.add_pod("mine", {"harbor/run-id": RUN})

    def broken(run_id: str) -> Any:
        raise Broken(f"plan_unreadable: run {run_id}")

    monkeypatch.setattr(place.house.catalog, "get_run", broken)
    assert place.upkeep.reap().lines() == []  # it goes on
    monkeypatch.setattr(place.house.catalog, "ended_runs", lambda: [RUN])
    assert place.upkeep.reap().total.pods == 1
