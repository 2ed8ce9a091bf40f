"""The tables, and the scripts that bring older ones up to date."""

import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, Inspector, create_engine, inspect, text

from harbor_assets.catalog import database, migrations
from harbor_assets.catalog.schema import HEAD, METADATA, REVISIONS, works_here
from harbor_assets.catalog.store import Catalog
from harbor_assets.domain.errors import HomeUnusable
from tests.catalog.samples import A, body, outcome, plan


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


ADDED = "0042_since_0006"  # a later version, which only adds
ADDING = [
    "CREATE TABLE notes (id INTEGER PRIMARY KEY)",
    "ALTER TABLE runs ADD COLUMN note TEXT",
    "ALTER TABLE outcomes ADD COLUMN seen BOOLEAN DEFAULT FALSE NOT NULL",
]


def test_an_earlier_version_goes_on_working_on_a_schema_that_only_got_more(url: str) -> None:
    """What makes going back after a failed upgrade possible, and lets runs under way go on through one."""
    with Catalog.open(url) as catalog:
        catalog.add_run(plan(), request_digest=A)
    with engine_for(url).begin() as connection:
        for statement in ADDING:
            connection.execute(text(statement))
        connection.execute(text(f"UPDATE alembic_version SET version_num = '{ADDED}'"))
    frozen = plan()
    with Catalog.open(url) as catalog:
        catalog.add_run(frozen, request_digest=A)
        assert catalog.list_runs().total == 2
        catalog.mark_started(frozen.run_id, datetime.now(UTC))
        assert catalog.add_outcome(outcome(frozen.run_id))
        assert len(catalog.outcomes(frozen.run_id)) == 1
    with engine_for(url).connect() as connection:
        assert stored_version(connection) == ADDED  # what the newer program did is not undone


@pytest.mark.parametrize(
    ("version", "head", "works"),
    [
        ("0007_since_0006", "0006", True),
        ("0009_since_0006", "0007_since_0006", True),
        ("0009_since_0009", "0008_since_0006", False),
        ("0007_since_0006", "0005", False),
        ("0007_since_0006", "0007_since_0007", False),  # no newer one: another program's
        ("0007", "0006", False),
        ("0007_since_0006 ", "0006", False),
        ("0007_since_0006", "next", False),
    ],
)
def test_a_version_says_by_its_name_who_works_on_it(version: str, head: str, works: bool) -> None:
    assert works_here(version, head) is works


def lost(before: Connection, after: Connection) -> list[str]:
    """What a program of the schema before would miss in the one after, or stumble over when it writes."""
    old, new, found = inspect(before), inspect(after), []
    for table in old.get_table_names():
        if table not in new.get_table_names():
            found.append(f"{table} is gone")
            continue
        was = {column["name"]: column for column in old.get_columns(table)}
        now = {column["name"]: column for column in new.get_columns(table)}
        for name, column in was.items():
            if name not in now:
                found.append(f"{table}.{name} is gone")
            elif str(now[name]["type"]) != str(column["type"]) or (column["nullable"] and not now[name]["nullable"]):
                found.append(f"{table}.{name} has changed")
        for name in now.keys() - was.keys():
            if not now[name]["nullable"] and now[name].get("default") is None:
                found.append(f"{table}.{name} has to be written")

        def uniques(inspector: Inspector, table: str = table) -> set[tuple[str, ...]]:
            return {tuple(unique["column_names"]) for unique in inspector.get_unique_constraints(table)}

        found += [f"{table}{columns} became unique" for columns in uniques(new) - uniques(old)]
    return found


def test_names_after_0006_say_who_works_on_them_and_the_scripts_keep_it(tmp_path: Path) -> None:
    for place, name in enumerate(REVISIONS[6:], start=7):
        assert re.fullmatch(rf"{place:04}_since_[0-9]{{4}}", name), f"{name}: see schema.REVISIONS"
        since = next(known for known in REVISIONS if known[:4] == name[-4:])
        urls = {version: f"sqlite:///{tmp_path / f'{place}-{version}.db'}" for version in (since, name)}
        for version, url in urls.items():
            with engine_for(url).begin() as connection:
                migrations.upgrade(connection, version)
        with engine_for(urls[since]).connect() as before, engine_for(urls[name]).connect() as after:
            assert lost(before, after) == []


def test_a_change_that_an_earlier_version_would_break_on_is_found(tmp_path: Path) -> None:
    engines = [engine_for(f"sqlite:///{tmp_path / name}") for name in ("a", "b")]
    for engine in engines:
        with engine.begin() as connection:
            migrations.upgrade(connection)
    with engines[1].begin() as connection:
        for statement in ADDING:
            connection.execute(text(statement))
    with engines[0].connect() as before, engines[1].connect() as after:
        assert lost(before, after) == []
    with engines[1].begin() as connection:
        connection.execute(text("ALTER TABLE runs DROP COLUMN error"))
        connection.execute(text("DROP TABLE tries"))
        connection.execute(text("ALTER TABLE plans RENAME COLUMN plan TO frozen"))
    with engines[0].connect() as before, engines[1].connect() as after:
        assert lost(before, after) == [
            "plans.plan is gone",
            "plans.frozen has to be written",
            "runs.error is gone",
            "tries is gone",
        ]


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
