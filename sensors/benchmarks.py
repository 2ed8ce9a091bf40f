"""What is said of benchmarks that cannot be loaded, where Dagster shows it."""

from typing import Never

import dagster as dg

SECONDS = 600  # it says the same each time


def refused_benchmarks(why: str) -> dg.SensorDefinition:
    """A sensor whose every tick fails with `why`: none of the folder's benchmarks is there until it is mended."""

    @dg.sensor(
        name="benchmarks",
        minimum_interval_seconds=SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Scheduled benchmarks could not be loaded; its ticks say why.",
    )
    def benchmarks() -> Never:
        raise dg.DagsterInvalidDefinitionError(why)

    return benchmarks
