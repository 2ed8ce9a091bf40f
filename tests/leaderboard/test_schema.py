"""The schema is a promise: `docs/store.md` lists it as it is."""

from pathlib import Path

from harbor_assets.leaderboard.schema import TABLES, VIEWS, Column

DOCS = Path(__file__).parents[2] / "docs" / "store.md"


def rows(columns: tuple[Column, ...]) -> str:
    return "\n".join(f"| `{column.name}` | {column.kind} | {column.what} |" for column in columns)


def test_the_guide_lists_every_column_as_it_is():
    text = DOCS.read_text()
    for table, columns in TABLES.items():
        if table != "pairings":
            assert f"\n### `{table}`\n\n| column | type | what |\n|---|---|---|\n{rows(columns)}\n\n" in text, table
    for view, (what, _) in VIEWS.items():
        assert f"| `{view}` | {what} |" in text
    assert "pairings" in text


def test_names_are_once_in_a_table_and_none_needs_quotes():
    reserved = {"primary", "end", "binary", "order", "group", "table", "select", "index", "try"}
    for columns in TABLES.values():
        names = [column.name for column in columns]
        assert len(set(names)) == len(names)
        assert not reserved.intersection(names)
