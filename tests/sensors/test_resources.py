"""What Dagster's resources make of the process they are in."""

import dagster as dg
import pytest

from resources.upkeep import UpkeepResource


def test_what_settles_a_run_asks_the_instance_it_runs_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not that of DAGSTER_HOME: the pod that settles has none, and would find that no worker was ever lost."""
    monkeypatch.setenv("HARBOR_ASSETS_EXECUTOR", "kubernetes")
    with dg.DagsterInstance.ephemeral() as instance:
        upkeep = UpkeepResource().create_resource(dg.build_init_resource_context(instance=instance))
        assert upkeep._executions.instance is instance
