"""What Dagster's resources make of the process they are in."""

import dagster as dg
import pytest

from harbor_assets.wiring import Services
from resources.benchmarks import BenchmarksResource
from resources.services import EvaluationsResource
from resources.upkeep import UpkeepResource


def test_what_settles_a_run_asks_the_instance_it_runs_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not that of DAGSTER_HOME: the pod that settles has none, and would find that no worker was ever lost."""
    monkeypatch.setenv("HARBOR_ASSETS_EXECUTOR", "kubernetes")
    with dg.DagsterInstance.ephemeral() as instance:
        upkeep = UpkeepResource().create_resource(dg.build_init_resource_context(instance=instance))
        assert upkeep._executions.instance is instance


@pytest.mark.parametrize("kind", [EvaluationsResource, BenchmarksResource])
def test_what_submits_in_a_pod_asks_the_instance_it_runs_in_and_a_tick_does_not_leave_its_own(
    monkeypatch: pytest.MonkeyPatch, kind: type
) -> None:
    monkeypatch.setenv("HARBOR_ASSETS_EXECUTOR", "kubernetes")
    made: list[Services] = []
    monkeypatch.setattr("resources.services.wire", lambda settings: made.append(Services(settings)) or made[-1])

    @dg.op
    def ask(context: dg.OpExecutionContext, service: dg.ResourceParam[object]) -> None: ...

    @dg.job(resource_defs={"service": kind().get_resource_definition()})
    def asking() -> None:
        ask()

    with dg.DagsterInstance.ephemeral() as instance:
        assert asking.execute_in_process(instance=instance).success
        assert made[-1].cluster_executions.instance is instance
        kind().create_resource(dg.build_init_resource_context(instance=instance))
        assert "instance" not in vars(made[-1].cluster_executions)
