"""A scheduled benchmark as Dagster runs it, on a real catalog and service; the runs are ended by hand."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from harbor_assets.components.scheduled import BenchmarkYaml, ScheduledBenchmark
from harbor_assets.domain.errors import Refused
from harbor_assets.domain.outcomes import Measurements, Reason
from harbor_assets.domain.plans import RunPlan
from harbor_assets.engine.benchmarks import Benchmarks
from harbor_assets.events.benchmarks import benchmark_key, day_event
from harbor_assets.jobs import submit_evaluation
from tests.cli.conftest import Cli
from tests.interfaces.backends import World, outcome, world

TODAY = "2026-11-29"


class Clock:
    now = datetime(2026, 11, 29, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def w(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with world(tmp_path) as made:
        monkeypatch.setattr("harbor_assets.wiring.wire", lambda settings: made)
        monkeypatch.setenv("HARBOR_ASSETS_OWNER", "me")
        made.publish("one", "two")
        yield made


def benchmark(**changes: Any) -> BenchmarkYaml:
    values = {"name": "nightly", "taskset": "default/suite", "cron": "0 2 * * *", "start": date(2026, 11, 1)}
    return BenchmarkYaml.model_validate(values | changes)


class Place:
    """The definitions of one benchmark, and what fills its days."""

    def __init__(self, w: World, of: BenchmarkYaml, instance: dg.DagsterInstance) -> None:
        self.w, self.of, self.instance, self.clock = w, of, instance, Clock()
        w.evaluations._planner._clock = self.clock
        self.benchmarks = Benchmarks(
            evaluations=w.evaluations,
            runs=w.catalog,
            keys=w.catalog,
            owner="me",
            workspace="default",
            clock=self.clock,
        )
        self.repository = dg.Definitions.merge(
            ScheduledBenchmark(of).build_defs(), dg.Definitions(resources={"benchmarks": self.benchmarks})
        ).get_repository_def()

    def materialise(self, day: str = TODAY) -> dg.ExecuteInProcessResult:
        job = self.repository.get_job(f"benchmark_{self.of.name}")
        return job.execute_in_process(instance=self.instance, partition_key=day, raise_on_error=False)

    def tick(self, at: datetime = Clock.now) -> Any:
        context = dg.build_schedule_context(
            instance=self.instance, scheduled_execution_time=at, resources={"benchmarks": self.benchmarks},
            repository_def=self.repository,
        )  # fmt: skip
        return self.repository.get_schedule_def(f"benchmark_{self.of.name}").evaluate_tick(context)

    def runs(self) -> list[str]:
        return [run.id for run in self.w.catalog.list_runs("default").items]

    def end(self, *endings: float | Reason) -> None:
        """End the run begun last, and tell Dagster as settling does."""
        run_id = self.w.executions.started[-1]  # the clock stands: by time they are all alike
        self.w.end(run_id, *endings)
        run = self.w.catalog.get_run(run_id)
        of = self.benchmarks.day_of(run_id)
        assert of
        self.instance.report_runless_asset_event(
            day_event(of, run.plan, self.w.catalog.outcomes(run_id), phase=run.phase)
        )

    def filled(self) -> set[str]:
        return self.instance.get_materialized_partitions(benchmark_key(self.of.name))


@pytest.fixture
def place(w: World) -> Iterator[Place]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Place(w, benchmark(), instance)


def failure(result: dg.ExecuteInProcessResult) -> str:
    (event,) = [event for event in result.all_events if event.is_step_failure]
    assert event.step_failure_data.error
    return str(event.step_failure_data.error)


def same(plan: RunPlan) -> dict[str, Any]:
    """The plan but for its id and time."""
    return plan.model_dump(mode="json", exclude={"run_id", "created_at"})


def test_a_day_is_begun_by_the_schedule_and_filled_when_its_run_has_ended(place: Place) -> None:
    (asked,) = place.tick().run_requests
    assert (asked.partition_key, asked.run_key) == (TODAY, f"benchmark/nightly/{TODAY}")
    result = place.materialise(asked.partition_key)
    assert result.success
    (run_id,) = place.runs()
    assert place.w.executions.started == [run_id]
    assert place.filled() == set()
    (seen,) = place.instance.fetch_observations(benchmark_key("nightly"), limit=5).records
    assert seen.asset_observation.metadata["run"].value == run_id  # type: ignore[union-attr]
    assert place.tick().skip_message == f"{TODAY} has the run {run_id} already"
    place.end(1.0, 0.5)
    assert place.filled() == {TODAY}
    event = place.instance.get_latest_materialization_event(benchmark_key("nightly"))
    assert event
    metadata = event.asset_materialization.metadata  # type: ignore[union-attr]
    assert (metadata["run"].value, metadata["mean"].value, metadata["coverage"].value) == (run_id, 0.75, 1.0)
    assert isinstance(metadata["mean"], dg.FloatMetadataValue)
    assert "cost_usd" not in metadata  # nobody knows it
    assert metadata["trials_of_unknown_cost"].value == 2


def test_a_filled_day_is_not_run_twice_and_a_missed_one_is_filled_by_hand(place: Place) -> None:
    assert place.materialise("2026-11-20").success
    place.end(1.0, 1.0)
    assert place.materialise("2026-11-20").success
    assert len(place.runs()) == 1
    assert place.filled() == {"2026-11-20"}
    place.of = benchmark(attempts=2)  # also where the file has changed meanwhile
    again = Place(place.w, place.of, place.instance)
    assert again.materialise("2026-11-20").success
    assert len(place.runs()) == 1


def test_a_day_without_any_score_stays_open(place: Place) -> None:
    assert place.materialise().success
    place.end(Reason.WORKER_LOST, Reason.WORKER_LOST)
    assert place.filled() == set()
    assert place.tick().run_requests
    assert place.materialise().success
    assert len(place.runs()) == 2
    assert place.materialise().success  # the second goes on
    assert len(place.runs()) == 2
    place.end(1.0, Reason.WORKER_LOST)
    assert place.filled() == {TODAY}


def test_ticks_of_days_that_have_passed_and_days_out_of_range_are_not_run(place: Place) -> None:
    assert "2026-11-28 has passed" in place.tick(Clock.now - timedelta(days=1)).skip_message
    with pytest.raises(Refused, match="days go from 2026-11-01"):
        place.benchmarks.fill(place.of, "2026-12-01")
    assert place.runs() == []


def test_a_spent_budget_is_told_and_nothing_runs(w: World) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        place = Place(w, benchmark(budget={"usd": 1.0, "days": 7}), instance)
        assert place.materialise("2026-11-20").success
        (run_id,) = place.runs()
        run = w.catalog.get_run(run_id)
        for task, cost in zip(run.plan.tasks, (0.4, 0.8), strict=True):
            row = outcome(run_id, task, 1.0)
            w.catalog.add_outcome(row.model_copy(update={"measurements": Measurements(cost_usd=cost)}))
        told = "the budget is spent: 1.20 of 1.00 USD (budget.usd) in the last 7 days"
        assert told in place.tick().skip_message
        assert told in failure(place.materialise())
        place.clock.now += timedelta(days=8)
        assert place.tick(place.clock.now).run_requests
        assert place.runs() == [run_id]


def test_runs_a_day_are_counted_by_when_they_began(w: World) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        place = Place(w, benchmark(budget={"runs_a_day": 1}), instance)
        assert place.materialise("2026-11-20").success
        assert "1 of 1 runs a day (budget.runs_a_day)" in place.tick().skip_message


def test_the_day_is_that_of_the_time_zone(w: World) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        place = Place(w, benchmark(timezone="Asia/Tokyo", cron="0 1 * * *"), instance)
        place.clock.now = datetime(2026, 11, 29, 16, 0, tzinfo=UTC)  # 01:00 of the 30th there
        (asked,) = place.tick(place.clock.now).run_requests
        assert asked.partition_key == "2026-11-30"
        assert place.materialise("2026-11-30").success


def test_runs_of_schedule_pages_command_line_and_rest_are_the_same(
    w: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = Cli(monkeypatch, capsys)
    with dg.DagsterInstance.ephemeral() as instance:
        place = Place(w, benchmark(agent="nop", attempts=3, cap=2, sandbox="process"), instance)
        assert place.materialise().success
    config = {"taskset": "default/suite", "agent": "nop", "attempts": 3, "max_concurrent": 2, "sandbox": "process"}
    done = submit_evaluation.execute_in_process(
        run_config={"ops": {"submit": {"config": config}}}, resources={"evaluations": w.evaluations}
    )
    assert done.success
    said = cli(
        *("runs", "submit", "--taskset", "default/suite", "--agent", "nop", "-k", "3", "--sandbox", "process"),
        *("--n-concurrent", "2"),
    )
    assert said.code == 0, said.err
    plans = [run.plan for run in w.catalog.list_runs("default").items]
    assert len(plans) == 3
    assert same(plans[0]) == same(plans[1]) == same(plans[2])
    assert len({plan.run_id for plan in plans}) == 3
