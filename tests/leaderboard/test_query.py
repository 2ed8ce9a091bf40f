"""Questions in SQL: what may be asked, what nobody gets at, and what an answer may cost."""

from pathlib import Path

import pytest

from harbor_assets.domain.asking import Limits, SqlAnswer
from harbor_assets.domain.errors import Refused
from harbor_assets.domain.outcomes import Reason
from harbor_assets.leaderboard.query import answer
from harbor_assets.leaderboard.schema import TABLES, VIEWS
from harbor_assets.leaderboard.store import DuckDbLeaderboard
from tests.leaderboard.bundles import run_id, small


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("asked")
    store = DuckDbLeaderboard(folder / "leaderboard.duckdb")
    store.write([[small(folder, 1, 1.0, Reason.EVICTED), small(folder, 2, 0.5, 0.0, workspace="other")]])
    return store.file_of("default")


def ask(file: Path | None, query: str, **limits: float) -> SqlAnswer:
    return answer(file, query, Limits(**{"seconds": 5.0, **limits}))  # type: ignore[arg-type]


def test_rows_come_back_as_json_has_them(file: Path):
    found = ask(
        file,
        "SELECT run_id, reward, started_at, flags, 1.5 AS d, sum(k) OVER () AS h, INTERVAL 90 SECOND AS i, "
        "'nan'::DOUBLE AS n, DATE '2026-01-02' AS day, {'a': 1} AS s, '\\xFF'::BLOB AS b FROM trials ORDER BY task",
    )
    assert found.rows[0] == [
        run_id(1), 1.0, "2026-01-02T03:04:05+00:00", [], 1.5, 2, 90.0, "nan", "2026-01-02", {"a": 1}, "ff",
    ]  # fmt: skip
    assert [column.type for column in found.columns][:3] == ["VARCHAR", "DOUBLE", "TIMESTAMP WITH TIME ZONE"]
    assert (len(found.rows), found.cut) == (2, None)
    assert ask(file, "SELECT 1 AS a, 2 AS a, 3 AS a").objects() == [{"a": 1, "a_2": 2, "a_3": 3}]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1",
        "SELECT 1;",
        "FROM trials",
        "TABLE runs",
        "VALUES (1), (2)",
        "WITH a AS (SELECT * FROM trials) SELECT count(*) FROM a JOIN main.runs USING (run_id)",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 5) SELECT * FROM t",
        "SELECT * FROM range(3), (SELECT max(reward) FROM trials WHERE EXISTS (SELECT 1 FROM scores))",
        "DESCRIBE trials",
        "SHOW TABLES",
        "SUMMARIZE runs",
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'trials'",
        "SELECT unnest(flags) FROM trials",
        "SELECT * FROM (SELECT agent, reward FROM trials) UNPIVOT (v FOR n IN (reward))",
        *(f"SELECT * FROM {name}" for name in (*TABLES, *VIEWS)),
    ],
)
def test_what_may_be_asked(file: Path, query: str):
    assert ask(file, query).columns
    assert ask(None, query).columns, "an empty store has the same tables"


@pytest.mark.parametrize(
    "query",
    [
        "",
        "-- nothing",
        "SELECT 1; SELECT 2",
        "INSERT INTO trials SELECT * FROM trials",
        "WITH a AS (INSERT INTO trials SELECT * FROM trials RETURNING *) SELECT * FROM a",
        "DELETE FROM trials",
        "CREATE TABLE t AS SELECT 1",
        "COPY trials TO '/tmp/x.csv'",
        "EXPORT DATABASE '/tmp/x'",
        "ATTACH ':memory:' AS x",
        "ATTACH '{other}' AS x",
        "DETACH store",
        "USE memory",
        "SET threads = 9",
        "RESET lock_configuration",
        "PRAGMA database_list",
        "CALL duckdb_settings()",
        "INSTALL httpfs",
        "LOAD httpfs",
        "EXPLAIN SELECT 1",
        "PREPARE a AS SELECT 1",
        "EXECUTE a",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM 'http://127.0.0.1/a.parquet'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_blob('{other}')",
        "SELECT * FROM read_parquet('/tmp/*')",
        "SELECT * FROM parquet_metadata('/tmp/x')",
        "SELECT * FROM glob('/*')",
        "SELECT (SELECT content FROM read_text('/etc/passwd'))",
        "WITH read AS (SELECT * FROM read_text('/etc/passwd')) SELECT * FROM read",
        "SELECT * FROM query('SELECT 1')",
        "SELECT * FROM query_table('trials')",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM duckdb_databases",
        "SELECT * FROM duckdb_databases()",
        "SELECT * FROM pragma_database_list",
        "SELECT * FROM system.main.duckdb_databases",
        "SELECT * FROM store.main.trials",
        "SELECT * FROM duckdb_secrets()",
        "SELECT * FROM duckdb_extensions()",
        "SELECT * FROM sqlite_scan('a', 'b')",
        "SELECT * FROM pg_catalog.pg_settings",
        "SELECT current_setting('allowed_paths')",
        "SELECT CURRENT_SETTING('home_directory') FROM trials",
        "SELECT getenv('HOME')",
        "SELECT * FROM trials WHERE run_id IN (SELECT path FROM duckdb_databases())",
        "SELECT list_transform([1], x -> current_setting('allowed_paths'))",
        "DESCRIBE SELECT * FROM read_csv('/etc/passwd')",
        "SUMMARIZE '/etc/passwd'",
        "SELECT * FROM trials POSITIONAL JOIN read_text('/etc/passwd')",
    ],
)
def test_nothing_else_is_answered(file: Path, query: str):
    other = next(path for path in file.parent.glob("*.duckdb") if path != file)
    with pytest.raises(Refused) as refused:
        ask(file, query.format(other=other) if "{other}" in query else query)
    assert "root:" not in str(refused.value)
    assert str(file) not in str(refused.value)


def test_errors_show_the_place(file: Path):
    with pytest.raises(Refused, match=r"(?s)syntax error.*LINE 1: SELEC 1\n\s*\^"):
        ask(file, "SELEC 1")
    with pytest.raises(Refused, match=r"(?s)rewrad.*reward.*LINE 2:.*\^"):
        ask(file, "SELECT\nrewrad FROM trials")
    with pytest.raises(Refused, match="There is no table 'trails' to be asked; there are runs, "):
        ask(file, "SELECT * FROM trails")


def test_an_answer_is_cut_after_rows_or_bytes_and_says_so(file: Path):
    assert ask(file, "SELECT * FROM range(1000)", rows=7).cut == "7 rows"
    assert len(ask(file, "SELECT * FROM range(1000)", rows=7).rows) == 7
    assert ask(file, "SELECT * FROM range(7)", rows=7).cut is None
    wide = ask(file, "SELECT repeat('x', 1000) FROM range(1000)", bytes=10_500)
    assert (len(wide.rows), wide.cut) == (10, "10500 bytes")
    with pytest.raises(Refused, match="first row alone is larger than the 500 bytes"):
        ask(file, "SELECT repeat('x', 1000)", bytes=500)
    assert len(ask(file, "SELECT range(1000) FROM range(1000)", bytes=50_000).rows) < 20


def test_a_query_may_take_only_so_long_and_so_much(file: Path):
    with pytest.raises(Refused, match=r"longer than 0\.3 s"):
        ask(file, "SELECT sum(hash(a.range, b.range)) FROM range(1000000) a, range(1000000) b", seconds=0.3)
    with pytest.raises(Refused, match="more than 64 MB"):
        ask(file, "SELECT list(range) FROM range(100000000)", memory_mb=64)
    with pytest.raises(Refused, match="characters"):
        ask(file, f"SELECT '{'x' * 200_000}'")
    for deep in ("(SELECT " * 900 + "1" + ")" * 900, "[" * 600 + "]" * 600, "+".join("1" * 3000)):
        with pytest.raises(Refused):
            ask(file, f"SELECT {deep}")
    assert ask(file, "SELECT count(*) FROM trials").rows == [[2]], "and the next is answered"


def test_a_query_sees_its_own_workspace(file: Path):
    assert ask(file, "SELECT DISTINCT workspace FROM trials").rows == [["default"]]
    assert ask(file, "SELECT DISTINCT database_name FROM duckdb_tables").rows == [["store"]]


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("pivot trials on task using sum(reward)", "PIVOT"),
        ("-- of mine\n install httpfs", "INSTALL"),
        ("/* a */ drop table trials", "DROP"),
        ("select 1; delete from trials", "SELECT, DELETE"),
    ],
)
def test_what_is_no_select_is_called_by_its_own_word(file: Path, query: str, word: str):
    with pytest.raises(Refused, match=f"not: {word}$"):
        ask(file, query)
