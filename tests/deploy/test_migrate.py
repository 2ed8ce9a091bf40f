"""What comes before a deployment's programs: databases that are made, upgraded, or left to a newer program."""

import sqlite3
from pathlib import Path

import pytest

from harbor_assets.interfaces.deployment.migrate import migrate


@pytest.fixture
def dagster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A DAGSTER_HOME with storage of its own."""
    folder = tmp_path / "dagster"
    folder.mkdir()
    (folder / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    monkeypatch.setenv("DAGSTER_HOME", str(folder))
    monkeypatch.setenv("HARBOR_ASSETS_CATALOG_URL", f"sqlite:///{tmp_path / 'catalog.db'}")
    return folder


def version(folder: Path, new: str | None = None) -> str:
    with sqlite3.connect(folder / "history" / "runs.db") as connection:
        if new:
            connection.execute("UPDATE alembic_version SET version_num = ?", (new,))
        [(found,)] = connection.execute("SELECT version_num FROM alembic_version")
    connection.close()
    return found


def test_both_are_made_and_a_second_time_changes_nothing(dagster: Path):
    said: list[str] = []
    migrate(said.append, 0)
    made = version(dagster)
    migrate(said.append, 0)
    assert said == ["The catalog is up to date", "Dagster's storage is up to date"] * 2
    assert version(dagster) == made


def test_what_a_newer_dagster_made_is_left_to_an_earlier_version(dagster: Path):
    migrate(lambda _: None, 0)
    version(dagster, "ffffffffffff")
    said: list[str] = []
    migrate(said.append, 0)
    assert said[1] == "Dagster's storage was upgraded by a newer Dagster, and stays as it is"
    assert version(dagster) == "ffffffffffff"
