"""What a deployment looks after by itself. The sensors say when; `cluster/upkeep.py` knows what to do."""

from collections.abc import Sequence

import dagster as dg

from harbor_assets.jobs import settle as settle_job
from harbor_assets.partitions import RUN_TAG, RUNS
from harbor_assets.settings import Settings
from harbor_assets.wiring import wire
from sensors.notifications import notification_sensor
from sensors.publications import publication_sensor
from sensors.retention import retention_sensor
from sensors.trials import trial_sensor


def deployment_sensors(settings: Settings) -> list[dg.SensorDefinition]:
    """Sensors at the intervals that the settings name, running unless somebody stops them."""
    often, seldom = round(settings.settle_seconds), round(settings.reap_seconds)
    running = dg.DefaultSensorStatus.RUNNING

    @dg.sensor(
        name="settle",
        job=settle_job,
        minimum_interval_seconds=often,
        default_status=running,
        description="Has the results of ended runs merged, and lets runs go on that have lost their worker.",
    )
    def settle(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        lines, orders = wire(settings).upkeep.attend()
        for line in lines:
            context.log.info(line)
        # A run that was cancelled before its first execution has no key yet.
        keys = dg.AddDynamicPartitionsRequest(str(RUNS.name), [order.run_id for order in orders])
        return dg.SensorResult(
            skip_reason=None if orders else "\n".join(lines) or "nothing to do",
            dynamic_partitions_requests=[keys] if orders else [],
            run_requests=[
                dg.RunRequest(run_key=order.key, partition_key=order.run_id, tags={RUN_TAG: order.run_id})
                for order in orders
            ],
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
        description="Deletes what runs that have ended left in the cluster, and says how much that was.",
    )
    def reaper(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        lines = wire(settings).upkeep.reap().lines()
        for line in lines:
            context.log.info(line)
        return _say(lines)

    told = [notification_sensor(settings)] if settings.webhook_url else []
    followed = [publication_sensor(settings), trial_sensor(settings), *told]
    return [settle, deadlines, reaper, *followed, retention_sensor(settings)]


def _say(lines: Sequence[str]) -> dg.SkipReason:
    return dg.SkipReason("\n".join(lines) or "nothing to do")
