"""Components for `dg`: what a team writes as YAML and Dagster runs."""

from harbor_assets.components.scheduled import ScheduledBenchmark

__all__ = ["ScheduledBenchmark"]
