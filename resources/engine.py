"""The engine as a Dagster resource: the settings of the process in, the wired engine out."""

import dagster as dg

from harbor_assets.engine.lifecycle import RunEngine
from harbor_assets.settings import Settings
from harbor_assets.wiring import wire


class EngineResource(dg.ConfigurableResource[RunEngine]):
    """What runs and settles runs, on the home or deployment that the environment names."""

    def create_resource(self, context: dg.InitResourceContext) -> RunEngine:
        """Nothing is opened before it is used."""
        return wire(Settings.load()).engine
