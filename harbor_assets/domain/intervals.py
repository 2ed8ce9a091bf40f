"""Confidence intervals of means whose values come in groups: a task's trials are alike, and say less than other tasks.

Standard errors are clustered by task, with `G/(G-1)` for few of them (Cameron and Miller, "A Practitioner's Guide to
Cluster-Robust Inference", 2015, equations 8 and 12; for evaluations Miller, "Adding Error Bars to Evals", 2024,
equation 4). A rate, a mean of zeros and ones, gets Wilson's interval ("Probable inference", 1927), which stays within 0
and 1 and has a width where everything passed; with several trials per task n is divided by the design effect (Korn and
Graubard, "Confidence intervals for proportions with small expected number of positive counts", 1998). Any other mean
gets Student's interval with one degree of freedom less than there are tasks, cut to 0 and 1 where every value lies
there, as rewards are meant to.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

from harbor_assets.domain.statistics import mean, total

LEVEL = 0.95
_ROUNDING = 1e-12  # of the mean: a standard error below it is what rounding leaves of no spread at all
_NORMAL_FROM = 1000  # degrees of freedom from which Student's quantile is the normal one to three digits


@dataclass(frozen=True, slots=True)
class Interval:
    """`low` to `high` at `LEVEL`. `method`: wilson, wilson_clustered, student or student_clustered."""

    low: float
    high: float
    method: str


def interval(groups: Sequence[Sequence[float]]) -> Interval | None:
    """The interval of the mean of all values; each group holds those of one task, at least one.

    None where the values do not tell: fewer than two groups of other values than zeros and ones, or no spread at all.
    """
    groups = [group for group in groups if group]
    values = [value for group in groups for value in group]
    middle = mean(values)
    if middle is None:
        return None
    error = _standard_error([total(value - middle for value in group) for group in groups], len(values))
    rates = all(value in (0.0, 1.0) for value in values)
    return _interval(
        middle, len(values), len(groups), error, rates=rates, unit=all(0 <= value <= 1 for value in values)
    )


def interval_of_sums(sums: Sequence[tuple[int, float]], *, rates: bool, unit: bool) -> Interval | None:
    """As `interval`, from each group's number of values and their sum; groups without values do not count.

    `rates`: every value is 0 or 1; `unit`: every value lies from 0 to 1.
    """
    sums = [(count, value) for count, value in sums if count]
    n, whole = sum(count for count, _ in sums), total(value for _, value in sums)
    if not n or whole is None:
        return None
    middle = whole / n
    error = _standard_error([value - count * middle for count, value in sums], n)
    return _interval(middle, n, len(sums), error, rates=rates, unit=unit)


def _interval(middle: float, n: int, groups: int, error: float | None, *, rates: bool, unit: bool) -> Interval | None:
    clustered = n > groups
    suffix = "_clustered" if clustered else ""
    if rates:
        return Interval(*wilson(middle, _effective(n, groups, middle, error) if clustered else n), f"wilson{suffix}")
    if not error or error <= _ROUNDING * abs(middle):
        return None
    reach = student(groups - 1) * error
    low, high = middle - reach, middle + reach
    if unit:
        low, high = max(0.0, low), min(1.0, high)
    return Interval(low, high, f"student{suffix}") if math.isfinite(low) and math.isfinite(high) else None


def wilson(rate: float, n: float) -> tuple[float, float]:
    """Wilson's interval of a rate seen in `n` independent trials, `n` > 0 and not always whole."""
    z = _normal()
    centre = rate + z * z / (2 * n)
    reach = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return max(0.0, (centre - reach) / scale), min(1.0, (centre + reach) / scale)


@lru_cache(maxsize=4096)
def student(freedom: int) -> float:
    """The two-sided quantile of Student's distribution at `LEVEL`, for at least one degree of freedom."""
    if freedom < 1:
        raise ValueError("Student's distribution has at least one degree of freedom")
    if freedom >= _NORMAL_FROM:
        return _normal()
    low, high = 0.0, 13.0  # 12.71 is that of one degree, the largest
    for _ in range(60):
        half = (low + high) / 2
        low, high = (half, high) if _within(half, freedom) < LEVEL else (low, half)
    return high


def _within(t: float, freedom: int) -> float:
    """The chance of at most `t` on either side (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    odd = freedom % 2 == 1
    term = cosine if odd else 1.0
    series = term if freedom > 1 else 0.0
    for i in range(3 if odd else 2, freedom - 1, 2):
        term *= cosine * cosine * (i - 1) / i
        series += term
    return 2 / math.pi * (angle + sine * series) if odd else sine * series


def _standard_error(residuals: Sequence[float | None], n: int) -> float | None:
    """Of the mean of `n` values, from each group's sum of differences to it; None with fewer than two groups or beyond
    a float."""
    if len(residuals) < 2 or None in residuals:
        return None
    try:
        squares = math.fsum(r * r for r in residuals if r is not None)
    except OverflowError:
        return None
    found = math.sqrt(len(residuals) / (len(residuals) - 1) * squares) / n
    return found if math.isfinite(found) else None


def _effective(n: int, groups: int, rate: float, error: float | None) -> float:
    """How many independent trials `n` clustered ones are worth: at least one a group, at most all."""
    if error is None or rate in (0.0, 1.0):
        return groups  # nothing tells how alike a task's trials are; as if they were all the same
    if not error:
        return n
    return min(float(n), max(float(groups), rate * (1 - rate) / (error * error) * n / (n - 1)))


@lru_cache(maxsize=1)
def _normal() -> float:
    return NormalDist().inv_cdf((1 + LEVEL) / 2)
