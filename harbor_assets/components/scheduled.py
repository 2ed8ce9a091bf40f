"""A benchmark that runs by a schedule: one asset whose partitions are days, the job that fills one, its schedule."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice, pairwise
from typing import Self

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition
from pydantic import BaseModel, field_validator

from harbor_assets.domain.benchmarks import Benchmark
from harbor_assets.domain.errors import HarborAssetsError
from harbor_assets.domain.plans import RUN_TIMEOUT_SECONDS
from harbor_assets.engine.benchmarks import Benchmarks
from harbor_assets.events.benchmarks import begun_event, benchmark_key, day_metadata
from harbor_assets.partitions import RUN_TAG, quietly

CRON_FIELDS = 5
_TICKS_LOOKED_AT = 400  # of a cron: more than a year of days
_MOMENT = 1_800_000_000.0  # from which ticks are looked at; any does
_OLDEST_TICK = timedelta(days=400)


class BenchmarkYaml(Benchmark):
    """The attributes of a `defs.yaml`: a benchmark, whose times are read as Dagster reads them."""

    @field_validator("cron")
    @classmethod
    def _fires_once_a_day(cls, text: str) -> str:
        from dagster._utils.schedules import cron_string_iterator, is_valid_cron_string

        if len(text.split()) != CRON_FIELDS or not is_valid_cron_string(text):
            raise ValueError(
                f"{text[:60]!r} is no cron expression of five fields (minute hour day month weekday), as 0 2 * * *"
            )
        ticks = list(islice(cron_string_iterator(_MOMENT, text, "UTC"), _TICKS_LOOKED_AT))
        if any(one.date() == other.date() for one, other in pairwise(ticks)):
            raise ValueError(f"{text[:60]!r} fires more than once a day; each day is filled by one run")
        if ticks[1] - ticks[0] > _OLDEST_TICK:
            raise ValueError(f"{text[:60]!r} fires less than once a year")
        return text


@dataclass
class ScheduledBenchmark(dg.Component):
    """Runs a taskset with an agent at the times of a cron expression, and records which run filled which day.

    Attributes: name, taskset, agent, model, cron, timezone, start, cap, attempts, max_retries, tasks, sandbox, profile,
    timeout_seconds, experiment, budget (usd, days, runs_a_day), workspace, enabled. See docs/schedules.md.
    """

    benchmark: BenchmarkYaml

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        """The shape of `attributes`."""
        return BenchmarkYaml

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Self:
        """From a `defs.yaml` in a project of `dg`."""
        assert isinstance(attributes, BenchmarkYaml)
        return cls(attributes)

    def build_defs(self, context: dg.ComponentLoadContext | None = None) -> dg.Definitions:
        """Asset, job and schedule; the asset asks for the resource `benchmarks`."""
        filling = _asset(self.benchmark)
        job = dg.define_asset_job(
            f"benchmark_{self.benchmark.name}",
            selection=[filling.key],
            executor_def=dg.in_process_executor,  # it submits a run and ends
            description=f"Begins the run of one day of the benchmark {self.benchmark.name}.",
        )
        return dg.Definitions(assets=[filling], jobs=[job], schedules=[_schedule(self.benchmark, job)])


def _asset(benchmark: Benchmark) -> dg.AssetsDefinition:
    agent = benchmark.agent + (f" with {benchmark.model}" if benchmark.model else "")
    with quietly():
        policy = dg.FreshnessPolicy.time_window(fail_window=patience(benchmark))

    @dg.asset(
        key=benchmark_key(benchmark.name),
        partitions_def=dg.DailyPartitionsDefinition(
            start_date=benchmark.start.isoformat(), timezone=benchmark.timezone, end_offset=1
        ),
        output_required=False,
        description=f"Days of a benchmark: {agent} on {benchmark.taskset}, at {benchmark.cron} {benchmark.timezone}. "
        "A day is filled by the first of its runs that ends with a score; materialising an open day begins its run.",
        group_name="benchmarks",
        kinds={"harbor"},
        owners=["team:evals"],
        freshness_policy=policy,
        metadata={"taskset": benchmark.taskset, "agent": agent, "cron": benchmark.cron, "timezone": benchmark.timezone},
    )
    def fill(
        context: dg.AssetExecutionContext, benchmarks: dg.ResourceParam[Benchmarks]
    ) -> Iterator[dg.MaterializeResult]:
        day = context.partition_key
        try:
            filled = benchmarks.fill(benchmark, day)
            run = filled.run
            context.instance.add_run_tags(context.run.run_id, {RUN_TAG: run.id})
            if run.phase.terminal:  # told again: nothing is run twice
                context.log.info(f"{day} was filled by {run.id}")
                yield dg.MaterializeResult(metadata=day_metadata(run.plan, benchmarks.outcomes(run), phase=run.phase))
                return
        except HarborAssetsError as error:
            raise dg.Failure(str(error), allow_retries=False) from None
        context.log_event(begun_event(benchmark.name, day, run.id))
        context.log.info(
            f"{run.id} {'was begun for' if filled.begun else 'goes on for'} {day}; the day is filled when it ends"
        )

    return fill


def _schedule(benchmark: Benchmark, job: UnresolvedAssetJobDefinition) -> dg.ScheduleDefinition:
    @dg.schedule(
        name=f"benchmark_{benchmark.name}",
        job=job,
        cron_schedule=benchmark.cron,
        execution_timezone=benchmark.timezone,
        default_status=dg.DefaultScheduleStatus.RUNNING if benchmark.enabled else dg.DefaultScheduleStatus.STOPPED,
        description=f"Begins the run of the day of the benchmark {benchmark.name}, unless its budget is spent.",
    )
    def tick(
        context: dg.ScheduleEvaluationContext, benchmarks: dg.ResourceParam[Benchmarks]
    ) -> dg.RunRequest | dg.SkipReason:
        at = context.scheduled_execution_time.astimezone(benchmark.zone)
        day = at.date().isoformat()
        if at.date() != benchmarks.today(benchmark):  # Dagster makes up for ticks that nobody saw
            return dg.SkipReason(f"{day} has passed without a run; materialise that day to fill it")
        there = benchmarks.day(benchmark, day)
        if there is not None and not there.open:
            return dg.SkipReason(f"{day} has the run {there.run.id} already")
        if why := benchmarks.forbidden(benchmark, day):
            return dg.SkipReason(f"{day} is not filled: {why}")
        return dg.RunRequest(run_key=benchmark.key(day), partition_key=day, tags={"harbor/benchmark": benchmark.name})

    return tick


def patience(benchmark: Benchmark) -> timedelta:
    """How old the newest day's result may be: the longest pause between two ticks, and the time a run may take."""
    from dagster._utils.schedules import cron_string_iterator

    ticks = islice(cron_string_iterator(_MOMENT, benchmark.cron, "UTC"), _TICKS_LOOKED_AT)
    longest = max(later - earlier for earlier, later in pairwise(ticks))
    return longest + timedelta(seconds=benchmark.timeout_seconds or RUN_TIMEOUT_SECONDS)
