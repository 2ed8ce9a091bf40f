"""What a deployment looks after by itself. The sensors say when; `cluster/upkeep.py` knows what to do."""

from collections.abc import Sequence

import dagster as dg

from harbor_assets.assets.cluster import report_settled
from harbor_assets.settings import Settings
from harbor_assets.wiring import wire


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
        upkeep = wire(settings).upkeep
        return _say(upkeep.settle_ended(lambda run, settled: report_settled(context.instance, run.plan, settled)))

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


def _say(lines: Sequence[str]) -> dg.SkipReason:
    return dg.SkipReason("\n".join(lines) or "nothing to do")
