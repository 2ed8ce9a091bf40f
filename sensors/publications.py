"""Tells Dagster of what was published through the service: revisions of tasks and tasksets, and images.

Services publish without Dagster, since no request may wait for it; a sensor with a cursor follows.
"""

import dagster as dg

from harbor_assets.assets.publications import Followed, Publications
from harbor_assets.settings import Settings
from harbor_assets.wiring import wire


def publication_sensor(settings: Settings) -> dg.SensorDefinition:
    """Running unless somebody stops it."""

    @dg.sensor(
        name="publications",
        minimum_interval_seconds=round(settings.settle_seconds),
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Reports tasks, tasksets and images that were published since it last looked.",
    )
    def publications(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        services = wire(settings)
        found = Publications(services.catalog, services.catalog, services.engine).since(
            Followed.read(context.cursor), known=lambda name: set(context.instance.get_dynamic_partitions(name))
        )
        for line in found.problems:
            context.log.warning(line)
        return dg.SensorResult(
            skip_reason=None if found.events else "nothing new",
            asset_events=found.events,
            dynamic_partitions_requests=[
                dg.AddDynamicPartitionsRequest(name, keys) for name, keys in found.partitions.items()
            ],
            cursor=found.followed.text(),
        )

    return publications
