"""The days of scheduled benchmarks as a Dagster resource."""

import dagster as dg

from harbor_assets.engine.benchmarks import Benchmarks
from resources.services import of_instance


class BenchmarksResource(dg.ConfigurableResource[Benchmarks]):
    """What fills days, on the home or deployment that the environment names."""

    def create_resource(self, context: dg.InitResourceContext) -> Benchmarks:
        """Nothing is opened before it is used."""
        return of_instance(context).benchmarks
