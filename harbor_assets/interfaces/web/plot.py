"""One figure against another: every point, and those that no other beats in both. Drawn as SVG, told in words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 720, 300  # of the field of points, in the drawing's own units
TICKS = 5
NAMED_MAX = 12  # points of the front that carry their name; more would lie on each other
TOLD_MAX = 6
_DUST = 1e-9  # what dividing leaves beside whole numbers


@dataclass(frozen=True, slots=True)
class Point:
    """One row of a list. Less of `x` is better, and more of `y`."""

    name: str
    x: float
    y: float
    href: str
    low: float | None = None  # interval of `y`
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Drawn:
    """A point with its place. `best`: no other costs less and is worth more."""

    point: Point
    at_x: float
    at_y: float
    best: bool
    named: bool


@dataclass(frozen=True, slots=True)
class Tick:
    at: float
    text: str


def front(points: Sequence[Point]) -> list[Point]:
    """The points that no other beats: none has less `x` and at least as much `y`, or as little `x` and more `y`."""
    found: list[Point] = []
    for point in sorted(points, key=lambda point: (point.x, -point.y, point.name)):
        if not found or point.y > found[-1].y or (point.x, point.y) == (found[-1].x, found[-1].y):
            found.append(point)
    return found


class Plot:
    """A drawing of points. `x` and `y` name the figures."""

    width, height = WIDTH, HEIGHT

    def __init__(self, points: Sequence[Point], *, x: str, y: str) -> None:
        self.x, self.y = x, y
        self._across = _Scale([point.x for point in points], WIDTH)
        self._up = _Scale([point.y for point in points], HEIGHT)
        self.front = front(points)
        best = {id(point) for point in self.front}
        named = {id(point) for point in self.front[:NAMED_MAX]}
        ordered = sorted(points, key=lambda point: id(point) in best)  # those of the front lie on top
        self.points = [
            Drawn(
                point, self._across.at(point.x), self._top(point.y), id(point) in best, id(point) in named
            )
            for point in ordered
        ]  # fmt: skip
        self.line = " ".join(f"{self._across.at(p.x)},{self._top(p.y)}" for p in self.front)
        self.ticks_x = [Tick(self._across.at(value), f"{value:.4g}") for value in self._across.ticks]
        self.ticks_y = [Tick(self._top(value), f"{value:.4g}") for value in self._up.ticks]

    def _top(self, value: float) -> float:
        return round(HEIGHT - self._up.at(value), 1)

    @property
    def told(self) -> str:
        """The drawing in a sentence."""
        some = "; ".join(f"{p.name} with {p.y:.4g} at {p.x:.4g}" for p in self.front[:TOLD_MAX])
        more = f"; and {len(self.front) - TOLD_MAX} more" if len(self.front) > TOLD_MAX else ""
        return f"{len(self.points)} points. None is better in both figures than: {some}{more}"


class _Scale:
    """A linear scale over round numbers that has all values in it."""

    def __init__(self, values: Sequence[float], length: int) -> None:
        low, high = min(values), max(values)
        if low >= 0 and low <= high / 2:
            low = 0.0  # a distance from nothing is read as one
        step = _round_step((high - low) / TICKS) if high > low else _round_step(abs(high) / TICKS or 1.0)
        self._low = math.floor(low / step + _DUST) * step
        self._high = math.ceil(high / step - _DUST) * step
        if self._high <= self._low:  # one value alone
            self._low, self._high = self._low - step, self._low + step
        if low >= 0 and high <= 1:  # rewards and rates: what they cannot be is no part of the scale
            self._low, self._high = max(0.0, self._low), min(1.0, self._high)
        self._length = length
        count = round((self._high - self._low) / step)
        self.ticks = [self._low + n * step for n in range(count + 1)]

    def at(self, value: float) -> float:
        return round(self._length * (value - self._low) / (self._high - self._low), 1)


def _round_step(wanted: float) -> float:
    """1, 2 or 5 times a power of ten, at least `wanted`."""
    power = 10.0 ** math.floor(math.log10(wanted)) if wanted > 1e-300 else 1e-300
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= wanted * (1 - 1e-9))
