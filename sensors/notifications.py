"""Tells a deployment's webhook of ended runs. On a laptop a run's worker does it at its end."""

from datetime import UTC, datetime

import dagster as dg

from harbor_assets.engine.notices import Told
from harbor_assets.settings import Settings
from harbor_assets.wiring import wire


def notification_sensor(settings: Settings) -> dg.SensorDefinition:
    """Running unless somebody stops it. Its cursor says what was told: reset, it tells what ends from then on."""

    @dg.sensor(
        name="notifications",
        minimum_interval_seconds=round(settings.settle_seconds),
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Tells the webhook of runs that have ended, failed, or are worse than the one before.",
    )
    def notifications(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        notices = wire(settings).notices
        if notices is None:
            return dg.SensorResult(skip_reason="there is no webhook")
        told, lines = notices.follow(Told.read(context.cursor, datetime.now(UTC)))
        for line in lines:
            context.log.info(line)
        return dg.SensorResult(skip_reason="\n".join(lines) or "nothing to tell", cursor=told.model_dump_json())

    return notifications
