"""What the Launchpad's jobs use, as Dagster resources: the settings of the process in, the wired service out."""

import dagster as dg

from harbor_assets.engine.evaluations import Evaluations
from harbor_assets.engine.ranking import Rankings
from harbor_assets.interfaces.publisher import Publisher
from harbor_assets.settings import Settings
from harbor_assets.wiring import Services, local_services, wire


def of_instance(context: dg.InitResourceContext) -> Services:
    """The services, on the Dagster instance that asks: a worker's pod has no dagster.yaml, and of itself would find an
    empty instance."""
    settings = Settings.load()
    services = wire(settings)
    # A schedule's tick is not in a run: it is in the code server, which has one, and outlives the tick's instance.
    if settings.executor == "kubernetes" and context.instance is not None and context.run is not None:
        services.cluster_executions.instance = context.instance
    return services


class EvaluationsResource(dg.ConfigurableResource[Evaluations]):
    """Runs as a service, on the home or deployment that the environment names."""

    def create_resource(self, context: dg.InitResourceContext) -> Evaluations:
        """Nothing is opened before it is used."""
        return of_instance(context).evaluations


class PublisherResource(dg.ConfigurableResource[Publisher]):
    """Publishing suites to the home that the environment names."""

    def create_resource(self, context: dg.InitResourceContext) -> Publisher:
        """The home is made if it is missing."""
        return Publisher(local_services())


class RankingsResource(dg.ConfigurableResource[Rankings]):
    """The leaderboard of the home or deployment that the environment names."""

    def create_resource(self, context: dg.InitResourceContext) -> Rankings:
        """Nothing is opened before it is used."""
        return wire(Settings.load()).rankings
