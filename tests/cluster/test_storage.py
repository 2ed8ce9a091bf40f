"""Connections of Dagster's storage: kept while they are used, closed when not."""

import os
import time
from pathlib import Path
from types import SimpleNamespace as Played

import pytest
import yaml
from sqlalchemy import Engine, create_engine, event, make_url
from sqlalchemy.pool import QueuePool

from harbor_assets.cluster.storage import DeploymentStorage, IdleCloser

INSTANCE = Path(__file__).parents[2] / "deploy" / "base" / "instance" / "dagster.yaml"
POSTGRES = os.environ.get("HARBOR_ASSETS_TEST_POSTGRES")


def counted(engine: Engine) -> tuple[list[object], list[object]]:
    """What the engine opened and closed since."""
    opened: list[object] = []
    closed: list[object] = []
    event.listen(engine, "connect", lambda raw, _: opened.append(raw))
    event.listen(engine, "close", lambda raw, _: closed.append(raw))
    return opened, closed


def ask(engine: Engine) -> None:
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1


def eventually(closed: list[object], number: int) -> None:
    until = time.monotonic() + 10
    while len(closed) < number:
        assert time.monotonic() < until, f"{len(closed)} closed"
        time.sleep(0.02)


def test_a_connection_serves_many_statements_and_is_closed_when_idle(tmp_path: Path):
    engine = create_engine(f"sqlite:///{tmp_path}/x.db", poolclass=QueuePool, pool_size=1, max_overflow=-1)
    opened, closed = counted(engine)
    IdleCloser(engine, idle_seconds=0.3)
    for _ in range(4):  # longer than idle_seconds in all
        ask(engine)
        time.sleep(0.1)
    assert (len(opened), closed) == (1, [])
    eventually(closed, 1)
    ask(engine)  # opens another, which goes in its turn
    eventually(closed, 2)
    assert len(opened) == 2


def test_a_connection_in_use_is_not_closed_under_its_user(tmp_path: Path):
    engine = create_engine(f"sqlite:///{tmp_path}/x.db", poolclass=QueuePool, pool_size=1, max_overflow=-1)
    _, closed = counted(engine)
    IdleCloser(engine, idle_seconds=0.05)
    with engine.connect() as long:
        ask(engine)  # a second one, which starts the clock
        eventually(closed, 1)
        time.sleep(0.2)
        assert long.exec_driver_sql("SELECT 1").scalar() == 1
    eventually(closed, 2)


def test_the_instance_of_a_deployment_names_it():
    said = yaml.safe_load(INSTANCE.read_text())["storage"]["custom"]
    assert (said["module"], said["class"]) == (DeploymentStorage.__module__, DeploymentStorage.__name__)


@pytest.mark.skipif(POSTGRES is None, reason="needs a Postgres server: HARBOR_ASSETS_TEST_POSTGRES not set")
def test_an_instance_on_postgres_keeps_one_connection(tmp_path: Path):
    import dagster as dg
    from dagster._core.instance.ref import InstanceRef

    url = make_url(POSTGRES or "").set(drivername="postgresql+psycopg2").render_as_string(hide_password=False)
    custom = {"module": DeploymentStorage.__module__, "class": "DeploymentStorage", "config": {"postgres_url": url}}
    ref = InstanceRef.from_dir(str(tmp_path), overrides={"storage": {"custom": custom}})
    with dg.DagsterInstance.from_ref(ref) as instance:
        opened, _ = counted(instance.run_storage._engine)  # type: ignore[attr-defined]
        for _ in range(3):
            instance.get_runs_count()
            instance.all_asset_keys()
            instance.all_instigator_state()
            with dg.DagsterInstance.from_ref(ref) as another:  # as the code server makes for a tick
                another.get_runs_count()
        assert len(opened) == 1


def test_tables_are_looked_for_once_a_process_and_connections_shared(monkeypatch: pytest.MonkeyPatch):
    looked: list[bool] = []

    def made(self: DeploymentStorage, url: str, should_autocreate_tables: bool, **_: object) -> None:
        looked.append(should_autocreate_tables)
        self._run_storage = self._event_log_storage = self._schedule_storage = Played()  # type: ignore[assignment]

    monkeypatch.setattr("dagster_postgres.DagsterPostgresStorage.__init__", made)
    one, two, other, never = (
        DeploymentStorage("postgresql+psycopg2://nobody@127.0.0.1/looked-once", inst_data=None),
        DeploymentStorage("postgresql+psycopg2://nobody@127.0.0.1/looked-once", inst_data=None),
        DeploymentStorage("postgresql+psycopg2://nobody@127.0.0.1/another", inst_data=None),
        DeploymentStorage("postgresql+psycopg2://nobody@127.0.0.1/third", should_autocreate_tables=False),
    )
    assert looked == [True, False, True, False]
    engines = [it._run_storage._engine for it in (one, two, other, never)]
    assert engines[0] is engines[1]
    assert len({id(engine) for engine in engines}) == 3
