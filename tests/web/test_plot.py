"""Which points no other beats, and where they are drawn."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.interfaces.web.plot import HEIGHT, WIDTH, Plot, Point, front


def point(x: float, y: float, name: str = "p") -> Point:
    return Point(name, x, y, f"/{name}")


def test_the_front():
    points = [point(1, 0.5), point(2, 0.5), point(2, 0.9), point(3, 0.8), point(0.5, 0.1), point(4, 1.0), point(4, 0.2)]
    assert [(p.x, p.y) for p in front(points)] == [(0.5, 0.1), (1, 0.5), (2, 0.9), (4, 1.0)]


def test_equal_points_are_both_of_the_front():
    assert [p.name for p in front([point(1, 1, "b"), point(1, 1, "a"), point(2, 1, "c")])] == ["a", "b"]


FIGURES = st.floats(min_value=-1e12, max_value=1e12, allow_nan=False)


@given(st.lists(st.tuples(FIGURES, FIGURES), min_size=1, max_size=30))
def test_the_front_is_what_none_beats(pairs: list[tuple[float, float]]):
    points = [point(x, y, str(n)) for n, (x, y) in enumerate(pairs)]
    best = {p.name for p in front(points)}
    for p in points:
        beaten = any(o.x <= p.x and o.y >= p.y and (o.x, o.y) != (p.x, p.y) for o in points)
        assert (p.name in best) is not beaten


@given(st.lists(st.tuples(FIGURES, FIGURES), min_size=1, max_size=30))
def test_every_point_lies_in_the_field(pairs: list[tuple[float, float]]):
    plot = Plot([point(x, y) for x, y in pairs], x="x", y="y")
    for drawn in plot.points:
        assert -0.2 <= drawn.at_x <= WIDTH + 0.2
        assert -0.2 <= drawn.at_y <= HEIGHT + 0.2
    assert 2 <= len(plot.ticks_x) <= 12
    assert all(math.isfinite(tick.at) for tick in (*plot.ticks_x, *plot.ticks_y))


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ((0.4, 1.0), "0 0.2 0.4 0.6 0.8 1"),
        ((0.0, 0.0), "0 1"),
        ((1.0,), "0.8 1"),
        ((1.0, 1.0), "0.8 1"),
        ((2.0,), "1.5 2 2.5"),
        ((0.9, 0.95), "0.9 0.91 0.92 0.93 0.94 0.95"),
    ],
)
def test_the_scale_has_round_numbers(values: tuple[float, float], ticks: str):
    plot = Plot([point(0, y) for y in values], x="x", y="y")
    assert " ".join(tick.text for tick in plot.ticks_y) == ticks


def test_the_drawing_in_words():
    plot = Plot([point(1, 0.5, "cheap"), point(2, 0.9, "dear"), point(3, 0.7, "beaten")], x="x", y="y")
    assert plot.told == "3 points. None is better in both figures than: cheap with 0.5 at 1; dear with 0.9 at 2"
