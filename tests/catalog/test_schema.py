"""The tables, and the scripts that bring older ones up to date."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, text

from harbor_assets.catalog import database, migrations
from harbor_assets.catalog.schema import HEAD, METADATA, REVISIONS
from harbor_assets.catalog.store import Catalog
from harbor_assets.domain.errors import HomeUnusable
from tests.catalog.samples import A, body, plan


def engine_for(url: str) -> Engine:
    return create_engine(url)


def differences(connection: Connection) -> list[object]:
    context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
    return compare_metadata(context, METADATA)


def stored_version(connection: Connection) -> str | None:
    return connection.scalar(text("SELECT version_num FROM alembic_version"))


def scripts(folder: Path) -> ScriptDirectory:
    config = Config()
    config.set_main_option("script_location", str(folder))
    return ScriptDirectory.from_config(config)


def test_the_code_knows_every_script_in_order() -> None:
    known = [script.revision for script in scripts(Path(migrations.__file__).parent).walk_revisions()]
    assert tuple(reversed(known)) == REVISIONS
    assert REVISIONS[-1] == HEAD


def test_a_fresh_catalog_is_what_the_tables_say(url: str) -> None:
    with Catalog.open(url) as catalog:
        catalog.list_runs()
    with engine_for(url).connect() as connection:
        assert differences(connection) == []
        assert stored_version(connection) == HEAD


def test_the_scripts_from_nothing_lead_to_the_same_tables(url: str) -> None:
    with engine_for(url).begin() as connection:
        migrations.upgrade(connection)
        assert differences(connection) == []
        assert stored_version(connection) == HEAD
    with Catalog.open(url) as catalog:
        catalog.put_task("ws", "t", body())
        assert catalog.get_task("ws", "t").revision == 1


@pytest.fixture
def later_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This program as it will be once there is a script 0002. Returns that script, to be written by the test."""
    folder = tmp_path / "scripts % of later"
    shutil.copytree(Path(migrations.__file__).parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(migrations, "_SCRIPTS", folder)
    monkeypatch.setattr(database, "REVISIONS", (*REVISIONS, "next"))
    monkeypatch.setattr(database, "HEAD", "next")
    return folder / "versions" / "next.py"


NEXT = f"""
import sqlalchemy as sa
from alembic import op
revision, down_revision = "next", "{HEAD}"

def upgrade():
    with op.batch_alter_table("runs") as batch:
        batch.add_column(sa.Column("note", sa.Text()))
"""


def test_an_older_catalog_is_upgraded_and_keeps_its_rows(url: str, later_version: Path) -> None:
    frozen = plan()
    with pytest.MonkeyPatch.context() as now:
        now.setattr(database, "HEAD", HEAD)
        with Catalog.open(url) as catalog:
            catalog.add_run(frozen, request_digest=A)
    later_version.write_text(NEXT)
    with Catalog.open(url) as catalog:
        assert catalog.get_run(frozen.run_id).plan == frozen
    with engine_for(url).connect() as connection:
        assert stored_version(connection) == "next"
        connection.execute(text("SELECT note FROM runs"))


def test_an_upgrade_that_fails_changes_nothing(url: str, later_version: Path) -> None:
    with pytest.MonkeyPatch.context() as now:
        now.setattr(database, "HEAD", HEAD)
        with Catalog.open(url) as catalog:
            catalog.list_runs()
    later_version.write_text(NEXT + "    raise RuntimeError('half way')\n")
    with Catalog.open(url) as catalog, pytest.raises(RuntimeError, match="half way"):
        catalog.list_runs()
    with engine_for(url).connect() as connection:
        assert stored_version(connection) == HEAD
        assert differences(connection) == []


def test_a_catalog_of_a_newer_version_is_left_alone(url: str) -> None:
    with Catalog.open(url) as catalog:
        catalog.list_runs()
    with engine_for(url).begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'from-the-future'"))
    with Catalog.open(url) as catalog:
        for _ in range(2):
            with pytest.raises(HomeUnusable, match=r"(?s)from-the-future.*upgrade harbor-assets"):
                catalog.list_runs()
    with engine_for(url).connect() as connection:
        assert stored_version(connection) == "from-the-future"


def test_somebody_elses_database_is_left_alone(url: str) -> None:
    with engine_for(url).begin() as connection:
        connection.execute(text("CREATE TABLE runs (distance INTEGER)"))
    with Catalog.open(url) as catalog, pytest.raises(HomeUnusable, match="HARBOR_ASSETS_CATALOG_URL"):
        catalog.list_runs()
    with engine_for(url).connect() as connection:
        assert connection.dialect.get_table_names(connection) == ["runs"]


def test_alembic_and_the_orm_are_not_loaded_for_daily_work(tmp_path: Path) -> None:
    code = f"""
import sys
import harbor_assets.catalog
assert "sqlalchemy" not in sys.modules
catalog = harbor_assets.catalog.open_catalog("sqlite:///{tmp_path}/c.db")
assert catalog.list_runs().total == 0
print(sorted({{"alembic", "sqlalchemy.orm", "dagster", "harbor", "psycopg"}} & set(sys.modules)))
"""
    for _ in range(2):  # a fresh home, and an old one
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "[]\n"
