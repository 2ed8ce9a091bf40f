"""Paired tests against what they are defined by: sums over every case, resampling, worked examples."""

import itertools
import math
import random

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from harbor_assets.domain.intervals import interval, interval_of_sums
from harbor_assets.domain.paired import (
    bootstrap,
    difference_interval,
    holm,
    mcnemar,
    newcombe,
    paired_test,
)

rates = st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 1.0])), min_size=1, max_size=40)
values = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=30)


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_the_binomial_sum(wins: int, losses: int):
    n = wins + losses
    exact = 2 * sum(math.comb(n, i) for i in range(min(wins, losses) + 1)) / 2**n
    assert mcnemar(wins, losses) == pytest.approx(min(1.0, exact), rel=1e-9)


def test_mcnemar_of_many_tasks_neither_overflows_nor_vanishes():
    assert mcnemar(100_000, 100_000) == pytest.approx(1.0, abs=1e-2)
    assert mcnemar(5200, 4800) == pytest.approx(6.3e-5, rel=0.05)  # as the normal approximation: z = 4
    assert mcnemar(300, 0) == pytest.approx(2.0**-299)


@given(rates | values)
def test_a_test_is_symmetric_a_chance_and_blind_to_the_order_of_tasks(pairs: list[tuple[float, float]]):
    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    found = paired_test(a, b)
    assert 0 < found.p <= 1
    assert paired_test(b, a).p == pytest.approx(found.p, rel=1e-6)
    shuffled = random.Random(1).sample(pairs, len(pairs))
    assert paired_test([x for x, _ in shuffled], [y for _, y in shuffled]).p == pytest.approx(found.p, rel=1e-6)
    assert paired_test(a, a).p == 1
    differing = sum(x != y for x, y in pairs)
    assert found.p >= min(1.0, 2.0 ** (1 - differing)) * (1 - 1e-12)


@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 0.5, 1.0]), min_size=2, max_size=5))
@example([-1.0, 0.25, 0.25, 0.25])
def test_of_few_tasks_every_draw_is_counted(differences: list[float]):
    assume(any(d < 0 for d in differences) and any(d > 0 for d in differences))
    sums = [math.fsum(drawn) for drawn in itertools.product(differences, repeat=len(differences))]
    other = sum(s < 0 for s in sums) if math.fsum(differences) >= 0 else sum(s > 0 for s in sums)
    below = (other + sum(s == 0 for s in sums) / 2) / len(sums)
    floor = 2.0 ** (1 - sum(map(bool, differences)))
    assert bootstrap(differences) == pytest.approx(max(floor, 2 * min(below, 1 - below)))


@pytest.mark.parametrize(
    ("n", "shift", "seed"), [(40, 0.0, 1), (40, 0.1, 2), (60, 0.08, 3), (200, 0.04, 4), (30, 0.2, 5)]
)
def test_a_bootstrap_is_what_resampling_gives(n: int, shift: float, seed: int):
    chance = random.Random(seed)
    differences = [
        chance.choice([0.0, chance.gauss(shift, 0.3), chance.expovariate(4) - 0.25 + shift]) for _ in range(n)
    ]
    if math.fsum(differences) < 0:
        differences = [-d for d in differences]
    draws = 4000
    below = sum(math.fsum(chance.choices(differences, k=n)) <= 0 for _ in range(draws)) / draws
    spread = 4 * math.sqrt(below * (1 - below) / draws) + 0.004
    assert bootstrap(differences) == pytest.approx(min(1.0, 2 * below), abs=2 * spread)


def test_a_bootstrap_tells_small_chances_apart_and_has_no_use_for_scale():
    strong = [0.5] * 60 + [-0.5] * 5
    stronger = [0.5] * 120 + [-0.5] * 10
    assert 0 < bootstrap(stronger) < bootstrap(strong) < 1e-6
    assert bootstrap([d * 1e200 for d in strong]) == pytest.approx(bootstrap(strong), rel=1e-6)
    assert bootstrap([0.3, 0.2, 0.1]) == 0.25, "three tasks are never certain"
    assert bootstrap([]) == bootstrap([0.0, 0.0]) == 1


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_only_raises_and_keeps_the_order(ps: list[float]):
    corrected = holm(ps)
    assert all(p <= c <= 1 for p, c in zip(ps, corrected, strict=True))
    order = sorted(range(len(ps)), key=ps.__getitem__)
    assert [corrected[i] for i in order] == sorted(corrected)
    assert min(corrected) == min(1.0, min(ps) * len(ps))


def test_newcombe_by_hand():
    # Newcombe 1998, table II, method 10: both 36, only the first 12, only the second 2, neither 0
    a = [1.0] * 48 + [0.0] * 2
    b = [1.0] * 36 + [0.0] * 12 + [1.0] * 2
    assert newcombe(a, b) == pytest.approx((0.0569, 0.3404), abs=5e-4)


@given(rates)
def test_a_difference_of_rates_lies_in_its_interval_and_turns_with_it(pairs: list[tuple[float, float]]):
    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    low, high = newcombe(a, b)
    middle = (math.fsum(a) - math.fsum(b)) / len(a)
    assert -1 <= low <= middle + 1e-12
    assert middle - 1e-12 <= high <= 1
    assert newcombe(b, a) == pytest.approx((-high, -low), abs=1e-9)


def test_other_differences_get_students_interval():
    found = difference_interval([0.5, 0.25, 1.0], [0.25, 0.25, 0.5])
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.25 - 4.302653 * 0.25 / 3**0.5, 0.25 + 4.302653 * 0.25 / 3**0.5))
    assert difference_interval([0.5], [0.25]) is None
    assert difference_interval([0.5, 0.5], [0.25, 0.25]) is None
    assert difference_interval([], []) is None


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0, 0.25, 0.5]), max_size=4), max_size=12))
def test_an_interval_from_sums_is_that_of_the_values(groups: list[list[float]]):
    flat = [value for group in groups for value in group]
    found = interval_of_sums(
        [(len(group), math.fsum(group)) for group in groups],
        rates=all(value in (0, 1) for value in flat),
        unit=True,
    )
    whole = interval(groups)
    assert (found is None) == (whole is None)
    if found and whole:
        assert (found.low, found.high, found.method) == (
            pytest.approx(whole.low, abs=1e-9),
            pytest.approx(whole.high, abs=1e-9),
            whole.method,
        )
