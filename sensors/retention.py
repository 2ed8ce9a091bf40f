"""Keeps Dagster's pages of a deployment quick. A laptop's worker does the same when its run has ended."""

from contextlib import nullcontext

import dagster as dg

from harbor_assets.events.retention import retire
from harbor_assets.settings import Settings
from harbor_assets.wiring import wire

SECONDS = 3600  # runs are many a day, not many an hour
_ACTIVE_MAX = 1000  # as many as the deployment looks after at once


def retention_sensor(settings: Settings) -> dg.SensorDefinition:
    """The sensor, running unless somebody stops it."""

    @dg.sensor(
        name="retention",
        minimum_interval_seconds=SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Retires the partitions of old runs, so that pages stay quick. Their history is kept.",
    )
    def retention(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        active = wire(settings).catalog.list_runs(active=True, page_size=_ACTIVE_MAX)
        kept = {*(run.id for run in active.items), *active.unreadable}
        # A key that goes while others are added is no harm to Postgres.
        retired = retire(context.instance, keep=settings.partitions_kept, active=kept, lock=nullcontext)
        return dg.SkipReason(str(retired) if retired.keys or retired.left else "nothing to do")

    return retention
