"""A question in SQL to the store of results, and its answer."""

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field, JsonValue

ROWS = 10_000  # of an answer, if not asked otherwise
ROWS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Limits:
    """What an answer may cost. `bytes`: of the values; `memory_mb`: of the database while it answers."""

    rows: int = ROWS
    seconds: float = 30.0
    memory_mb: int = 512
    bytes: int = 64 * 1024 * 1024
    characters: int = 100_000


class SqlQuestion(BaseModel):
    """One SELECT over the tables and views of docs/store.md, in DuckDB's SQL."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    query: str = Field(
        min_length=1, max_length=100_000, examples=["SELECT agent, avg(reward) FROM trials GROUP BY agent"]
    )
    limit: int = Field(default=ROWS, ge=1, le=ROWS_MAX)


class SqlColumn(BaseModel):
    """A column of an answer; `type` is DuckDB's word."""

    model_config = ConfigDict(frozen=True)

    name: str
    type: str


class SqlAnswer(BaseModel):
    """Rows in the order of the columns. Times with an offset, spans in seconds, bytes in hexadecimal.

    `cut`: after how much the rest was left out, None: it is all. `missing`: ended runs that are not in the store yet.
    `stale`: runs of the workspace in the store that rest on something a person marked bad, whether or not these rows
    are of them; their figures are as they were.
    """

    model_config = ConfigDict(frozen=True)

    columns: list[SqlColumn]
    rows: list[list[JsonValue]]
    cut: str | None = None
    missing: int = 0
    stale: int = 0

    def objects(self) -> list[dict[str, JsonValue]]:
        """The rows as objects. Columns of one name are told apart by `_2`, `_3`, ... behind the later ones."""
        names: list[str] = []
        for column in self.columns:
            name, n = column.name, 1
            while name in names:
                n += 1
                name = f"{column.name}_{n}"
            names.append(name)
        return [dict(zip(names, row, strict=True)) for row in self.rows]
