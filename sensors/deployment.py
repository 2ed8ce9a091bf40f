"""What a deployment looks after by itself. The sensors say when; `cluster/upkeep.py` knows what to do."""

from collections.abc import Sequence

import dagster as dg

from harbor_assets.domain.runs import Run
from harbor_assets.engine.lifecycle import Settled
from harbor_assets.events.settling import report_published, report_settled
from harbor_assets.settings import Settings
from harbor_assets.wiring import Services, wire


def deployment_sensors(settings: Settings) -> list[dg.SensorDefinition]:
    """Sensors at the intervals that the settings name, running unless somebody stops them."""
    often, seldom = round(settings.settle_seconds), round(settings.reap_seconds)
    running = dg.DefaultSensorStatus.RUNNING

    @dg.sensor(
        name="settle",
        minimum_interval_seconds=often,
        default_status=running,
        description="Merges the results of runs that have ended, and lets runs go on that have lost their worker.",
    )
    def settle(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        services = wire(settings)
        return _say(
            services.upkeep.settle_ended(lambda run, settled: _report(context.instance, services, run, settled))
        )

    @dg.sensor(
        name="deadlines",
        minimum_interval_seconds=often,
        default_status=running,
        description="Stops runs that were cancelled, are out of time, or waited too long for a slot.",
    )
    def deadlines(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        return _say(wire(settings).upkeep.stop_overdue())

    @dg.sensor(
        name="reaper",
        minimum_interval_seconds=seldom,
        default_status=running,
        description="Deletes what runs that have ended left in the cluster.",
    )
    def reaper(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        return _say(wire(settings).upkeep.reap())

    return [settle, deadlines, reaper]


def _report(instance: dg.DagsterInstance, services: Services, run: Run, settled: Settled) -> None:
    engine, one_by_one = services.engine, lambda: services.catalog.lock("executions")
    report_published(instance, run.plan, lock=one_by_one)
    report_settled(
        instance,
        run.plan,
        settled,
        engine.outcomes(run.id),
        list(engine.inspect(run.id)),
        place=lambda path: engine.place(run.id, path),
        lock=one_by_one,
    )


def _say(lines: Sequence[str]) -> dg.SkipReason:
    return dg.SkipReason("\n".join(lines) or "nothing to do")
