"""`sql` and `leaderboard export` as people and programs use them, here and through a service."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from harbor_assets.engine.ranking import Rankings
from harbor_assets.interfaces.api.app import create_app
from harbor_assets.interfaces.cli.asking import TABLES
from harbor_assets.leaderboard.store import EXPORTED
from tests.cli.conftest import Cli
from tests.cli.test_leaderboard import rankings, settle
from tests.interfaces.backends import World
from tests.interfaces.served import served

__all__ = ["rankings"]


@pytest.fixture
def run_id(w: World, rankings: Rankings, tmp_path: Path) -> str:
    found = settle(w, tmp_path, 1.0, 0.5)
    rankings.settled(found)
    return found


def test_a_list_of_row_objects_a_table_and_csv(cli: Cli, run_id: str):
    query = "SELECT run_id, task, reward, cost_usd FROM trials ORDER BY task"
    assert cli("sql", query, "--json").json == [
        {"run_id": run_id, "task": "a", "reward": 1.0, "cost_usd": None},
        {"run_id": run_id, "task": "b", "reward": 0.5, "cost_usd": None},
    ]
    assert cli("sql", query).out.split() == [
        *("run_id task reward cost_usd".split()), run_id, "a", "1", "-", run_id, "b", "0.5", "-",
    ]  # fmt: skip
    assert [row["reward"] for row in csv.DictReader(io.StringIO(cli("sql", query, "--csv").out))] == ["1.0", "0.5"]
    assert cli("sql", query, "--csv", "--json").code == 2


def test_what_is_left_out_or_missing_is_said_beside_the_rows(cli: Cli, w: World, run_id: str, tmp_path: Path):
    settle(w, tmp_path, 0.0)
    said = cli("sql", "SELECT task FROM trials", "--limit", "1", "--json")
    assert len(said.json) == 1
    assert "Cut after 1 rows" in said.err
    assert "Not in the store yet: 1 ended run" in said.err


def test_that_runs_of_the_store_are_stale_is_said_beside_the_rows(cli: Cli, w: World, run_id: str, tmp_path: Path):
    query = "SELECT avg(reward) AS mean FROM trials"
    assert cli("sql", query).err == ""
    w.marking.mark_bad("default", "b", "no good")
    said = cli("sql", query, "--json")
    assert said.json == [{"mean": 0.75}]
    assert "Stale: 1 run of the store rests on what a person marked bad" in said.err
    assert "harbor-assets marks" in said.err
    assert cli("sql", query, "--csv").out == "mean\n0.75\n"
    assert "Stale" not in cli("sql", "SELECT 1", "--workspace", "empty").err
    w.marking.withdraw("default", "b")
    w.marking.mark_bad("default", run_id, "a wrong model")
    assert "Stale: 1 run" in cli("sql", query).err
    w.marking.withdraw("default", run_id)
    assert "Stale" not in cli("sql", query).err


def test_errors_show_the_place_and_are_usage(cli: Cli, run_id: str):
    said = cli("sql", "SELECT rewrad FROM trials")
    assert said.code == 2
    assert "LINE 1" in said.err
    assert "^" in said.err
    assert cli("sql", "DROP TABLE trials").code == 2
    for empty in ("", "  "):
        said = cli("sql", empty)
        assert (said.code, "The query is empty; write one SELECT" in said.err) == (2, True)
    assert cli("sql", "SELECT 1", "--workspace", "empty", "--json").json == [{"1": 1}]
    assert cli("sql", "SELECT * FROM trials", "--workspace", "empty", "--json").json == []


def test_tables_are_exported_as_parquet(cli: Cli, run_id: str, tmp_path: Path):
    assert TABLES == EXPORTED
    folder = tmp_path / "out" / "it's"
    files = cli("leaderboard", "export", str(folder), "--json").json["files"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"{table}.parquet" for table in TABLES)
    assert files["trials"]["bytes"] == (folder / "trials.parquet").stat().st_size
    with duckdb.connect(":memory:") as connection:
        found = connection.execute("SELECT reward FROM read_parquet(?)", [str(folder / "trials.parquet")]).fetchall()
    assert sorted(found) == [(0.5,), (1.0,)]
    assert "exists" in cli("leaderboard", "export", str(folder)).err


def test_a_service_answers_the_same(cli: Cli, w: World, rankings: Rankings, run_id: str, tmp_path: Path):
    with served(create_app(replace(w.backend, rankings=rankings))) as url:
        query = "SELECT * FROM lineage"
        assert cli("sql", query, "--json", "--base-url", url).json == cli("sql", query, "--json").json
        assert "LINE 1" in cli("sql", "SELEC", "--base-url", url).err
        assert cli("leaderboard", "export", str(tmp_path / "far"), "--base-url", url).code == 0
        assert (tmp_path / "far" / "lineage.parquet").stat().st_size > 100
