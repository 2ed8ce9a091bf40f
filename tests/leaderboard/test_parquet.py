from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from harbor_assets.domain.errors import Broken
from harbor_assets.domain.outcomes import Reason
from harbor_assets.engine.ports import BundleTables
from harbor_assets.leaderboard.parquet import BATCH_ROWS, SCORE_COLUMNS, TRIAL_COLUMNS, ParquetTables
from tests.fakes.accounts import START, agent_error, make_bundle, make_plan, make_row


def query(path: Path, what: str = "*") -> list[tuple[Any, ...]]:
    with duckdb.connect(":memory:") as connection:
        return connection.execute(f"SELECT {what} FROM read_parquet(?)", [str(path)]).fetchall()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def types(path: Path) -> dict[str, str]:
    with duckdb.connect(":memory:") as connection:
        found = connection.execute("DESCRIBE SELECT * FROM read_parquet(?)", [str(path)]).fetchall()
    return {name: kind.replace("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ") for name, kind, *_ in found}


def test_the_rows_of_a_bundle_come_back_typed(tmp_path: Path):
    plan = make_plan(["alpha", "beta"])
    rows = [
        make_row(plan, 0, 1, 0.5, flags=("a", "b'\"\u2028"), error=agent_error()),
        make_row(plan, 1, 1, Reason.NEVER_STARTED, message="line\nbreak \U0001f600\udcff"),
    ]
    ParquetTables().write(make_bundle(plan, rows).tables, tmp_path)
    assert types(tmp_path / "trials.parquet") == dict(TRIAL_COLUMNS)
    assert types(tmp_path / "scores.parquet") == dict(SCORE_COLUMNS)
    columns = "k, outcome, reward, flags, error_type, message, evidence, epoch(started_at), duration_sec"
    assert query(tmp_path / "trials.parquet", columns) == [
        (1, "scored", 0.5, ["a", "b'\"\u2028"], "AgentTimeoutError", None, rows[0].evidence, START.timestamp(), 1.5),
        (1, "not_started", None, [], None, "line\nbreak \U0001f600?", None, None, None),
    ]
    assert query(tmp_path / "scores.parquet", "output, state, value") == [
        ("reward", "observed", 0.5),
        ("reward", "trial_failed", None),
    ]
    assert names(tmp_path) == ["scores.parquet", "trials.parquet"]


def test_times_are_kept_as_instants(tmp_path: Path):
    plan = make_plan(["alpha"])
    ParquetTables().write(make_bundle(plan, [make_row(plan, 0)]).tables, tmp_path)
    ((start,),) = query(tmp_path / "trials.parquet", "started_at")
    assert start.astimezone(UTC) == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_no_rows_still_make_typed_tables(tmp_path: Path):
    ParquetTables().write(BundleTables(trials=[], scores=[]), tmp_path)
    assert types(tmp_path / "trials.parquet") == dict(TRIAL_COLUMNS)
    assert query(tmp_path / "scores.parquet") == []


def test_more_rows_than_a_batch_are_all_there(tmp_path: Path):
    plan = make_plan(["alpha"])
    (row,) = make_bundle(plan, [make_row(plan, 0)]).tables.trials
    many = [{**row, "k": k} for k in range(BATCH_ROWS + 1)]
    ParquetTables().write(BundleTables(trials=many, scores=[]), tmp_path)
    assert query(tmp_path / "trials.parquet", "count(DISTINCT k)") == [(BATCH_ROWS + 1,)]


@pytest.mark.parametrize("change", [{"surprise": 1}, {"k": "many"}])
def test_a_row_that_does_not_fit_leaves_the_old_file(tmp_path: Path, change: dict[str, Any]):
    plan = make_plan(["alpha"])
    tables = make_bundle(plan, [make_row(plan, 0)]).tables
    ParquetTables().write(tables, tmp_path)
    (row,) = tables.trials
    with pytest.raises(Broken):
        ParquetTables().write(BundleTables(trials=[{**row, **change}], scores=[]), tmp_path)
    assert query(tmp_path / "trials.parquet", "k") == [(1,)]
    assert names(tmp_path) == ["scores.parquet", "trials.parquet"]


def test_a_folder_with_quotes_in_its_name(tmp_path: Path):
    folder = tmp_path / "it's [a] *"
    folder.mkdir()
    ParquetTables().write(BundleTables(trials=[], scores=[]), folder)
    assert names(folder) == ["scores.parquet", "trials.parquet"]
