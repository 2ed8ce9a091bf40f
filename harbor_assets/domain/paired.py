"""Is one better than the other? Tests and intervals for two that did the same tasks, one value of each per task.

Where every value is 0 or 1, McNemar's exact test on the tasks that only one passed ("Note on the sampling error of the
difference between correlated proportions", 1947), and Newcombe's interval ("Improved confidence intervals for the
difference between binomial proportions based on paired data", 1998, method 10).

Else the paired bootstrap: how often the mean difference of tasks drawn anew falls on the other side of zero (Efron and
Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 15). It is not simulated but computed by the saddlepoint
approximation of the bootstrap's tail (Davison and Hinkley, "Saddlepoint approximations in resampling methods", 1988,
with the formula of Lugannani and Rice, 1980): the same data give the same p-value, and small ones are told apart, as
correcting for many pairs needs. Of so few tasks that the approximation is far off every draw is counted. The interval
is Student's over the differences (Miller, "Adding Error Bars to Evals", 2024, section 4). No p-value is below 2 / 2^n
for n tasks that differ, the least any exchange of signs could give (Fisher, 1935): a bootstrap of three tasks must not
be certain.

Several pairs are corrected by Holm's step-down method ("A simple sequentially rejective multiple test procedure",
1979).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harbor_assets.domain.intervals import student, wilson
from harbor_assets.domain.statistics import mean

ALPHA = 0.05  # what a corrected p-value must be below to tell two apart
_STEPS_MAX = 200
_COUNTED_MAX = 6  # tasks of which every draw is counted: at most 462 sums, some milliseconds
_NEAR_ZERO = 1e-4  # of the signed root, where the formula divides by almost nothing and its limit is taken


@dataclass(frozen=True, slots=True)
class PairedTest:
    """`p` is two-sided. `method`: mcnemar or paired_bootstrap."""

    p: float
    method: str


@dataclass(frozen=True, slots=True)
class DifferenceInterval:
    """Of the mean difference at `harbor_assets.domain.intervals.LEVEL`. `method`: newcombe or student_paired."""

    low: float
    high: float
    method: str


def paired_test(a: Sequence[float], b: Sequence[float]) -> PairedTest:
    """Whether the values of `a` and `b`, task by task, differ in their mean. 1 where nothing tells."""
    if _rates(a) and _rates(b):
        wins = sum(x > y for x, y in zip(a, b, strict=True))
        return PairedTest(mcnemar(wins, sum(x < y for x, y in zip(a, b, strict=True))), "mcnemar")
    return PairedTest(bootstrap([x - y for x, y in zip(a, b, strict=True)]), "paired_bootstrap")


def mcnemar(wins: int, losses: int) -> float:
    """The two-sided exact p-value: the chance of a split at least as uneven if each task were a fair coin."""
    n, few = wins + losses, min(wins, losses)
    if not n:
        return 1.0
    term = math.exp(math.lgamma(n + 1) - math.lgamma(few + 1) - math.lgamma(n - few + 1) - n * math.log(2))
    tail = term
    for i in range(few, 0, -1):  # terms fall towards the end
        term *= i / (n - i + 1)
        tail += term
        if term < tail * 1e-17:
            break
    return min(1.0, 2 * tail)


def bootstrap(differences: Sequence[float]) -> float:
    """The two-sided p-value of the paired bootstrap for a mean difference of zero."""
    n, differing = len(differences), sum(value != 0 for value in differences)
    floor = 2.0 ** (1 - differing)
    scale = max(map(abs, differences), default=0.0)
    if not differing or not math.isfinite(scale):
        return 1.0
    values = [value / scale for value in differences]
    if (mean(values) or 0.0) < 0:
        values = [-value for value in values]
    if min(values) >= 0:  # only tasks without a difference could be drawn
        return min(1.0, max(floor, 2 * ((n - differing) / n) ** n))
    below = _counted(values) if n <= _COUNTED_MAX else _below_zero(values)
    return min(1.0, max(floor, 2 * min(below, 1 - below)))


def _counted(values: Sequence[float]) -> float:
    """As `_below_zero`, of a few values: over every draw there is, a mean of exactly zero counted half."""
    sums = {0.0: 1}
    for _ in values:
        drawn: dict[float, int] = {}
        for reached, ways in sums.items():
            for value in values:
                at = round(reached + value, 9)  # values are at most 1: equal sums by other ways are one
                drawn[at] = drawn.get(at, 0) + ways
        sums = drawn
    below, ties = sum(ways for at, ways in sums.items() if at < 0), sum(ways for at, ways in sums.items() if at == 0)
    return (below + ties / 2) / len(values) ** len(values)


def _below_zero(values: Sequence[float]) -> float:
    """The chance that the mean of as many draws from `values`, of both signs and a mean of at least zero, is at most
    zero."""
    n, tilt = len(values), _tilt(values)
    weights = [math.exp(tilt * value) for value in values]
    whole = math.fsum(weights)
    cumulant = math.log(whole / n)  # K at the tilt, at most zero; its first derivative is zero there
    curvature = math.fsum(w * v * v for w, v in zip(weights, values, strict=True)) / whole
    root = -math.sqrt(max(0.0, -2 * n * cumulant))
    step = tilt * math.sqrt(n * curvature)
    normal = math.erfc(-root / math.sqrt(2)) / 2
    if root > -_NEAR_ZERO:
        skew = math.fsum(v**3 for v in values) / n / (math.fsum(v * v for v in values) / n) ** 1.5
        return min(1.0, max(0.0, normal + skew / (6 * math.sqrt(2 * math.pi * n))))
    density = math.exp(-root * root / 2) / math.sqrt(2 * math.pi)
    return min(1.0, max(0.0, normal + density * (1 / root - 1 / step)))


def _tilt(values: Sequence[float]) -> float:
    """The s at which sum(v * exp(s * v)) is zero: Newton's steps, kept within what is known to hold it."""
    low, high, s = -math.inf, 0.0, 0.0
    for _ in range(_STEPS_MAX):
        weights = [math.exp(s * value) for value in values]
        slope = math.fsum(w * v for w, v in zip(weights, values, strict=True))
        bend = math.fsum(w * v * v for w, v in zip(weights, values, strict=True))
        if abs(slope) <= 1e-12 * bend:
            break
        low, high = (low, s) if slope > 0 else (s, high)
        new = max(s - slope / bend, s - 2.0)  # further at once, and exp would soon leave the floats
        if not low < new < high:
            new = (low + high) / 2 if math.isfinite(low) else s - 1.0
        if new == s or s < -600:
            break
        s = new
    return s


def holm(values: Sequence[float]) -> list[float]:
    """The p-values corrected for their number, in the order given: below `ALPHA`, all such are right together with a
    chance of 1 - ALPHA."""
    order = sorted(range(len(values)), key=values.__getitem__)
    corrected, highest = [1.0] * len(values), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, values[i] * (len(values) - rank)))
        corrected[i] = highest
    return corrected


def difference_interval(a: Sequence[float], b: Sequence[float]) -> DifferenceInterval | None:
    """The interval of mean(a) - mean(b), task by task; None where the values do not tell."""
    if not a:
        return None
    if _rates(a) and _rates(b):
        return DifferenceInterval(*newcombe(a, b), "newcombe")
    differences = [x - y for x, y in zip(a, b, strict=True)]
    middle = mean(differences)
    if middle is None or len(differences) < 2:
        return None
    try:
        variance = math.fsum((d - middle) ** 2 for d in differences) / (len(differences) - 1)
    except OverflowError:
        return None
    reach = student(len(differences) - 1) * math.sqrt(variance / len(differences))
    if not reach or not math.isfinite(reach):
        return None
    return DifferenceInterval(middle - reach, middle + reach, "student_paired")


def newcombe(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """Newcombe's interval of the difference of two paired rates, of at least one task."""
    n = len(a)
    both = sum(x == 1 and y == 1 for x, y in zip(a, b, strict=True))
    first, second = sum(x == 1 for x in a), sum(y == 1 for y in b)
    neither, only_a, only_b = n - first - second + both, first - both, second - both
    margins = math.sqrt(first) * math.sqrt(n - first) * math.sqrt(second) * math.sqrt(n - second)
    cross = float(both * neither - only_a * only_b)
    cross = max(0.0, cross - n / 2) if cross > 0 else cross
    phi = cross / margins if margins else 0.0
    (low_a, high_a), (low_b, high_b) = wilson(first / n, n), wilson(second / n, n)
    rate_a, rate_b = first / n, second / n

    def reach(x: float, y: float) -> float:
        return math.sqrt(max(0.0, x * x - 2 * phi * x * y + y * y))

    middle = rate_a - rate_b
    low = middle - reach(rate_a - low_a, high_b - rate_b)
    high = middle + reach(high_a - rate_a, rate_b - low_b)
    return max(-1.0, low), min(1.0, high)


def _rates(values: Sequence[float]) -> bool:
    return all(value in (0.0, 1.0) for value in values)
