"""How lists of experiments and evaluations are filtered and ordered.

Of evaluations also by their figures: `cost_usd.mean`, `evaluators.<name>.p90`. The rest of the grammar is that of every
list (`filters.py`).
"""

from typing import Final

from harbor_assets.domain.errors import Refused
from harbor_assets.domain.filters import Fact, Fields, Filter, Kind, Match, Negated
from harbor_assets.domain.names import nearest
from harbor_assets.domain.rollups import STATS, Rollup
from harbor_assets.domain.text import quoted

IN_MEMORY_MAX: Final = 1_000  # evaluations that one list may sort or filter by their figures
_FIGURES: Final = ("cost_usd", "latency_ms", "tokens")
_COUNTS: Final = ("test_case_count", "run_count")
_COLUMNS: Final = ("name", "created_at", "updated_at")

EXPERIMENT_FIELDS: Final = Fields(
    {
        "id": Kind.SCALAR,
        "name": Kind.SCALAR,
        "workspace": Kind.DROPPED,
        "description": Kind.SCALAR,
        "insight_id": Kind.SCALAR,
        "created_by": Kind.SCALAR,
        "created_at": Kind.TIME,
        "updated_at": Kind.TIME,
        "is_favorite": Kind.FLAG,
        "is_deleted": Kind.FLAG,
        "metadata": Kind.METADATA,
    },
    {"entity_type": "experiment"},
)
EVALUATION_FIELDS: Final = Fields(
    {
        "id": Kind.SCALAR,
        "name": Kind.SCALAR,
        "workspace": Kind.DROPPED,
        "experiment_id": Kind.SCALAR,
        "dataset_name": Kind.SCALAR,
        "dataset_version": Kind.SCALAR,
        "status": Kind.SCALAR,
        "description": Kind.SCALAR,
        "parent_evaluation_id": Kind.SCALAR,
        "created_by": Kind.SCALAR,
        "created_at": Kind.TIME,
        "updated_at": Kind.TIME,
        "pinned_at": Kind.TIME,
        "is_pinned": Kind.FLAG,
        "is_deleted": Kind.FLAG,
        "metadata": Kind.METADATA,
        **dict.fromkeys(_COUNTS, Kind.COUNT),
        **dict.fromkeys(_FIGURES, Kind.FIGURE),
        "evaluators": Kind.EVALUATOR,
    },
    {"entity_type": "evaluation"},
)
SORT_MAX: Final = 400  # characters
_STAT: Final = f"(?:{'|'.join(STATS)})"
SORT_PATTERN: Final = (
    f"^-?(?:{'|'.join((*_COLUMNS, *_COUNTS))}|(?:{'|'.join(_FIGURES)})\\.{_STAT}|evaluators\\..+\\.{_STAT})$"
)
COMPUTED: Final = frozenset({*_COUNTS, *_FIGURES, "evaluators"})


class SortBy:
    """How a list of evaluations is ordered: `field` and, for figures, the statistic."""

    def __init__(self, field: str, key: str = "", *, down: bool = False) -> None:
        self.field, self.key, self.down = field, key, down

    @property
    def computed(self) -> bool:
        """Whether it needs the figures of every evaluation of the list."""
        return self.field in COMPUTED

    def of(self, evaluation: Rollup) -> float | None:
        """The figure of one evaluation; None if it has none."""
        return evaluation.figure_at(self.field, self.key)


def read_sort(text: str) -> SortBy:
    """`name`, `-created_at`, `cost_usd.mean`, `-evaluators.<name>.p90`. Raises `Refused` naming what there is."""
    down, plain = text.startswith("-"), text.removeprefix("-")
    field, _, key = plain.partition(".")
    if not key and field in (*_COLUMNS, *_COUNTS):
        return SortBy(field, down=down)
    name, _, stat = key.rpartition(".")
    if stat in STATS and ((field in _FIGURES and not name) or (field == "evaluators" and name)):
        return SortBy(field, key, down=down)
    figures = [f"{figure}.<stat>" for figure in _FIGURES]
    known = ", ".join([*_COLUMNS, *_COUNTS, *figures, "evaluators.<name>.<stat>"])
    near = nearest(plain, [*_COLUMNS, *_COUNTS, *(f"{figure}.{stat}" for figure in _FIGURES for stat in STATS)], 1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise Refused(
        f"Evaluations cannot be sorted by {quoted(text, 80)}; {hint}There are {known}, each with '-' for descending, "
        f"where <stat> is one of {', '.join(STATS)}"
    )


def figure_facts(found: Rollup) -> list[Fact]:
    """What filters ask of an evaluation's figures."""
    facts: list[Fact] = [(name, "", getattr(found, name)) for name in _COUNTS]
    figures = {name: getattr(found, name) for name in _FIGURES}
    for stat in STATS:
        facts += [(name, stat, getattr(figure, stat)) for name, figure in figures.items() if figure is not None]
        facts += [
            ("evaluators", f"{name}.{stat}", getattr(each, stat)) for name, each in found.aggregate_scores.items()
        ]
    return facts


def asks_figures(asked: Filter | None) -> bool:
    """Whether a filter needs the figures of evaluations."""
    match asked:
        case None:
            return False
        case Match():
            return asked.field in COMPUTED
        case Negated():
            return asks_figures(asked.item)
        case _:
            return any(map(asks_figures, asked.items))


def asks_deleted(asked: Filter | None) -> bool:
    """Whether a filter says something of deleted records; if not, a list leaves them out."""
    match asked:
        case None:
            return False
        case Match():
            return asked.field == "is_deleted"
        case Negated():
            return asks_deleted(asked.item)
        case _:
            return any(map(asks_deleted, asked.items))
