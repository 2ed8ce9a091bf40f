"""Tells Dagster of what was published through the service: revisions of tasks and tasksets, and images.

Services publish without Dagster, since no request may wait for it; a sensor with a cursor follows.
"""

import dagster as dg

from harbor_assets.assets.publications import Followed, Found, Publications
from harbor_assets.local import locks
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
        if settings.executor == "local":
            _tell(context.instance, found, settings)
            told = f"told of {len(found.events)}" if found.events else "nothing new"
            return dg.SensorResult(skip_reason=told, cursor=found.followed.text())
        return dg.SensorResult(
            skip_reason=None if found.events else "nothing new",
            asset_events=found.events,
            dynamic_partitions_requests=[
                dg.AddDynamicPartitionsRequest(name, keys) for name, keys in found.partitions.items()
            ],
            cursor=found.followed.text(),
        )

    return publications


def _tell(instance: dg.DagsterInstance, found: Found, settings: Settings) -> None:
    """Events, then keys, under the lock of this home's workers: SQLite fails both if two add keys at once, and the
    daemon, which adds those of an answer, does not know the lock."""
    for event in found.events:
        instance.report_runless_asset_event(event)
    with locks.lock(settings.locks, "partitions"):
        for name, keys in found.partitions.items():
            instance.add_dynamic_partitions(name, keys)
