"""The intervals against published values, and against what they promise."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain.intervals import interval, student, wilson

VALUES = st.floats(min_value=-5, max_value=5)
GROUPS = st.lists(st.lists(VALUES, min_size=1, max_size=4), max_size=8)


@pytest.mark.parametrize(
    ("freedom", "table"),
    [
        (1, 12.706),
        (2, 4.303),
        (3, 3.182),
        (4, 2.776),
        (10, 2.228),
        (29, 2.045),
        (30, 2.042),
        (120, 1.980),
        (5000, 1.960),
    ],
)
def test_quantiles_are_those_of_the_printed_table(freedom: int, table: float) -> None:
    assert student(freedom) == pytest.approx(table, abs=6e-4)


@pytest.mark.parametrize(
    ("passed", "n", "low", "high"),
    # Newcombe, "Two-sided confidence intervals for the single proportion", 1998, table I, method 3
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_as_published(passed: int, n: int, low: float, high: float) -> None:
    assert wilson(passed / n, n) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def test_one_attempt_a_task_is_plain_and_several_are_clustered() -> None:
    once = interval([[1.0]] * 8 + [[0.0]] * 2)
    assert once is not None
    assert (once.method, (once.low, once.high)) == ("wilson", wilson(0.8, 10))
    # Five tasks whose four attempts agree are worth five trials, not twenty
    alike = interval([[1.0] * 4] * 4 + [[0.0] * 4])
    assert alike is not None
    assert alike.method == "wilson_clustered"
    assert (alike.low, alike.high) == wilson(0.8, 5)
    # Where attempts differ as much within tasks as between them, nearly all of the twenty count
    mixed = interval([[1.0, 1.0, 1.0, 0.0]] * 3 + [[1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 1.0]])
    assert mixed is not None
    assert (mixed.low, mixed.high) == wilson(0.75, 20)


def test_other_rewards_worked_by_hand() -> None:
    """Values 2, 4, 9: mean 5, squares 9+1+16=26, error sqrt(3/2*26)/3=2.0817, t(2)=4.30265."""
    found = interval([[2.0], [4.0], [9.0]])
    assert found is not None
    assert (found.method, found.high) == ("student", pytest.approx(5 + 4.30265 * 2.08167, abs=1e-4))
    assert found.low == pytest.approx(10 - found.high)


def test_rewards_from_0_to_1_have_such_an_interval() -> None:
    found = interval([[0.5], [1.0]])
    assert found is not None
    assert (found.low, found.high, found.method) == (0.0, 1.0, "student")


@pytest.mark.parametrize("groups", [[], [[]], [[0.5]], [[0.5, 0.7]], [[0.5], [0.5]], [[1e308], [-1e308], [1e308]]])
def test_where_the_values_do_not_tell_there_is_none(groups: list[list[float]]) -> None:
    assert interval(groups) is None


def test_all_passed_still_has_a_width() -> None:
    found = interval([[1.0]] * 10)
    assert found is not None
    assert (found.low, found.high) == (pytest.approx(0.7225, abs=1e-4), 1.0)


@given(GROUPS)
def test_it_holds_the_mean_and_no_order_changes_it(groups: list[list[float]]) -> None:
    found = interval(groups)
    shuffled = [random.sample(group, len(group)) for group in groups]
    random.shuffle(shuffled)
    assert interval(shuffled) == found
    if found is not None:
        values = [value for group in groups for value in group]
        middle = math.fsum(values) / len(values)
        assert found.low - 1e-9 <= middle <= found.high + 1e-9


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=4), min_size=1, max_size=8))
def test_rates_stay_within_0_and_1(groups: list[list[float]]) -> None:
    found = interval(groups)
    assert found is not None
    assert 0 <= found.low < found.high <= 1


@given(st.integers(2, 30), st.integers(1, 5), st.randoms(use_true_random=False))
def test_more_tasks_of_the_same_kind_never_widen_it(tasks: int, k: int, luck: random.Random) -> None:
    groups = [[float(luck.random() < 0.5) for _ in range(k)] for _ in range(tasks)]
    one, four = interval(groups), interval(groups * 4)
    assert one is not None
    assert four is not None
    assert four.high - four.low <= one.high - one.low + 1e-12
