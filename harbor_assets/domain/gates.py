"""Conditions that make a command fail: `mean<0.5`, `regressions>0`, several separated by commas.

    conditions = condition { "," condition }
    condition  = name operator number
    operator   = "<" | "<=" | ">" | ">=" | "==" | "!="

A condition on a figure that is not known holds: what nobody knows lets nothing through.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harbor_assets.domain.errors import Problem, Refused
from harbor_assets.domain.names import nearest

_OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_NUMBER: Final = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_CONDITION: Final = re.compile(rf"\s*([a-z][a-z0-9_]*)\s*(<=|>=|==|!=|<|>)\s*({_NUMBER})\s*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition."""

    name: str
    sign: str
    number: float

    def __str__(self) -> str:
        return f"{self.name}{self.sign}{self.number:g}"

    def holds(self, value: float | None) -> bool:
        """Whether it holds for a figure; it does for one that is not known."""
        return value is None or _OPERATORS[self.sign](value, self.number)


def read_conditions(texts: Sequence[str], names: Sequence[str]) -> tuple[Condition, ...]:
    """The conditions that texts hold, over figures of these names. Raises `Refused` with all that cannot be read."""
    found: list[Condition] = []
    problems: list[Problem] = []
    for piece in (piece for text in texts for piece in text.split(",")):
        match = _CONDITION.fullmatch(piece)
        if match is None or not math.isfinite(float(match[3])):
            problems.append(Problem(f"'{piece.strip()[:80]}'", "write NAME, one of < <= > >= == !=, and a number"))
        elif match[1] not in names:
            near = nearest(match[1], names)
            hint = f"; did you mean {near[0]}?" if near else ""
            problems.append(Problem(f"'{match[1][:80]}'", f"is none of {', '.join(names)}{hint}"))
        else:
            found.append(Condition(match[1], match[2], float(match[3])))
    if problems:
        raise Refused("--fail-if cannot be read:", problems)
    return tuple(found)


def failing(conditions: Sequence[Condition], figures: Mapping[str, float | None]) -> list[str]:
    """Those that hold, with the figure, as sentences."""
    known = ((condition, figures[condition.name]) for condition in conditions)
    return [
        f"{condition}: it is {'not known' if value is None else f'{value:.6g}'}"
        for condition, value in known
        if condition.holds(value)
    ]
