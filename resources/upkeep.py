"""The upkeep of a deployment as a Dagster resource."""

import dagster as dg

from harbor_assets.cluster.upkeep import Upkeep
from harbor_assets.settings import Settings
from harbor_assets.wiring import wire


class UpkeepResource(dg.ConfigurableResource[Upkeep]):
    """What settles runs on the deployment that the environment names."""

    def create_resource(self, context: dg.InitResourceContext) -> Upkeep:
        """Nothing is opened before it is used."""
        services = wire(Settings.load())
        if (
            context.instance is not None
        ):  # a worker's pod has no dagster.yaml: of itself it would find an empty instance
            services.cluster_executions.instance = context.instance
        return services.upkeep
