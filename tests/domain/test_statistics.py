import math
import statistics as stdlib
from itertools import combinations, pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain.statistics import PERCENTILES, mean, pass_at_k, pass_estimates, percentile, spread

finite = st.floats(min_value=-1e6, max_value=1e6, allow_nan=False)


def test_the_spread_of_four_rewards():
    found = spread([1.0, 0.0, 0.0, 0.5])
    assert (found.count, found.sum, found.mean, found.min, found.max) == (4, 1.5, 0.375, 0.0, 1.0)
    assert found.median == 0.25
    assert found.std_dev == pytest.approx(0.41458, abs=1e-5)
    assert found.sample_std_dev == pytest.approx(0.47871, abs=1e-5)
    assert found.percentiles is not None
    assert list(found.percentiles) == [f"p{p}" for p in PERCENTILES]


def test_of_nothing_there_is_nothing_to_say():
    found = spread([math.nan, math.inf])
    assert (found.count, found.mean, found.sum, found.percentiles) == (0, None, None, None)
    assert mean([]) is None


def test_one_value_has_no_sample_variance():
    found = spread([0.3])
    assert (found.mean, found.variance, found.sample_variance, found.median) == (0.3, 0.0, None, 0.3)


@pytest.mark.parametrize(("p", "value"), [(10, 1.0), (20, 1.2), (50, 3.0), (90, 5.0), (100, 5.0)])
def test_percentiles_are_clamped_and_linear_between(p: int, value: float):
    assert percentile([1.0, 2.0, 3.0, 4.0, 5.0], p) == pytest.approx(value)


def test_what_is_beyond_a_float_is_none_and_not_infinity():
    found = spread([1.7e308, 1.7e308, -1.7e308])
    assert found.variance is None
    assert found.mean == pytest.approx(1.7e308 / 3)
    assert spread([1.7e308] * 3).sum is None
    assert spread([1.7e308] * 3).mean == pytest.approx(1.7e308)
    assert found.percentiles is not None
    assert all(map(math.isfinite, found.percentiles.values()))


@given(st.lists(finite, min_size=2, max_size=30))
def test_agrees_with_the_standard_library(values: list[float]):
    found = spread(values)
    assert found.median == pytest.approx(stdlib.median(values), rel=1e-9, abs=1e-9)
    assert found.mean == pytest.approx(stdlib.fmean(values), rel=1e-9, abs=1e-9)
    assert found.std_dev == pytest.approx(stdlib.pstdev(values), rel=1e-6, abs=1e-6)
    assert found.sample_std_dev == pytest.approx(stdlib.stdev(values), rel=1e-6, abs=1e-6)


@given(st.lists(finite, min_size=1, max_size=5))
def test_the_order_of_values_never_changes_a_figure(values: list[float]):
    assert len({repr(spread(order)) for order in permutations(values)}) == 1
    assert len({mean(order) for order in permutations(values)}) == 1


@given(st.lists(finite, min_size=1, max_size=40))
def test_percentiles_rise_and_stay_inside(values: list[float]):
    ordered = sorted(values)
    found = [percentile(ordered, p) for p in PERCENTILES]
    assert all(ordered[0] <= value <= ordered[-1] for value in found)
    assert all(a <= b or math.isclose(a, b) for a, b in pairwise(found))
    assert found[-1] == ordered[-1]


@given(st.integers(1, 8), st.data())
def test_pass_at_k_is_the_share_of_draws_with_a_pass(n: int, data: st.DataObject):
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    trials = [True] * c + [False] * (n - c)
    draws = list(combinations(range(n), k))
    share = sum(any(trials[i] for i in draw) for draw in draws) / len(draws)
    assert pass_at_k(n, c, k) == pytest.approx(share, abs=1e-12)


def test_pass_at_k_needs_k_trials():
    assert pass_at_k(3, 3, 4) is None
    assert pass_at_k(0, 0, 1) is None
    assert pass_estimates([(2, 1), (1, 1), (0, 0)], 2) == [1.0]
    assert pass_at_k(1000, 3, 500) == pytest.approx(0.875, abs=1e-3)
    with pytest.raises(ValueError, match="4 passes in 3"):
        pass_at_k(3, 4, 1)
