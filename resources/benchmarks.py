"""The days of scheduled benchmarks as a Dagster resource."""

import dagster as dg

from harbor_assets.engine.benchmarks import Benchmarks
from harbor_assets.settings import Settings
from harbor_assets.wiring import wire


class BenchmarksResource(dg.ConfigurableResource[Benchmarks]):
    """What fills days, on the home or deployment that the environment names."""

    def create_resource(self, context: dg.InitResourceContext) -> Benchmarks:
        """Nothing is opened before it is used."""
        return wire(Settings.load()).benchmarks
