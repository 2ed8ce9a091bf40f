"""Figures over many numbers: mean, spread, percentiles, pass@k.

The order of the values never changes a result: sums are exactly rounded (`math.fsum`). A figure that does not fit in a
float is None, never an infinity.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

PERCENTILES = (*range(10, 100, 10), 100)
PASS = 1.0  # a reward of at least this is a pass (the bundle format's rule)


@dataclass(frozen=True, slots=True)
class Spread:
    """What can be said of a number of finite values. Everything but `count` is None if there are none."""

    count: int
    sum: float | None = None
    mean: float | None = None
    min: float | None = None
    max: float | None = None
    median: float | None = None
    variance: float | None = None
    std_dev: float | None = None
    sample_variance: float | None = None
    sample_std_dev: float | None = None
    percentiles: Mapping[str, float] | None = None


def total(values: Iterable[float]) -> float | None:
    """The exactly rounded sum, or None if it is beyond a float."""
    try:
        found = math.fsum(values)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def mean(values: Sequence[float]) -> float | None:
    """The arithmetic mean; None of nothing."""
    if not values:
        return None
    found = total(values)
    return found / len(values) if found is not None else total(value / len(values) for value in values)


def percentile(ordered: Sequence[float], p: int) -> float:
    """The p-th percentile of sorted values: position `p/100*(n+1)-1`, clamped to the ends, linear between two."""
    position = min(max(p / 100 * (len(ordered) + 1) - 1, 0.0), len(ordered) - 1.0)
    low = math.floor(position)
    if low == len(ordered) - 1:
        return ordered[low]
    part, (a, b) = position - low, ordered[low : low + 2]
    step = b - a
    return a + part * step if math.isfinite(step) else a * (1 - part) + b * part


def spread(values: Iterable[float]) -> Spread:
    """The spread of the finite ones of `values`. Variances: population /n, sample /(n-1), the latter None for n < 2."""
    ordered = sorted(value for value in values if math.isfinite(value))
    if not ordered:
        return Spread(count=0)
    n, middle = len(ordered), mean(ordered)
    squares = total((x - middle) * (x - middle) for x in ordered) if middle is not None else None
    variance = squares / n if squares is not None else None
    sample = squares / (n - 1) if squares is not None and n > 1 else None
    percentiles = {f"p{p}": percentile(ordered, p) for p in PERCENTILES}
    return Spread(
        count=n,
        sum=total(ordered),
        mean=middle,
        min=ordered[0],
        max=ordered[-1],
        median=percentiles["p50"],
        variance=variance,
        std_dev=math.sqrt(variance) if variance is not None else None,
        sample_variance=sample,
        sample_std_dev=math.sqrt(sample) if sample is not None else None,
        percentiles=percentiles,
    )


@lru_cache(maxsize=65536)  # tasks of one run share n, and mostly c
def pass_at_k(n: int, c: int, k: int) -> float | None:
    """The chance that at least one of k trials passes, drawn from n trials of which c passed; None if n < k.

    The unbiased estimator `1 - C(n-c, k) / C(n, k)` of Chen et al., "Evaluating Large Language Models Trained on Code",
    2021, equation 1, as one exactly rounded division.
    """
    if not 0 <= c <= n or k < 1:
        raise ValueError(f"no pass@{k} of {c} passes in {n} trials")
    if n < k:
        return None
    draws = math.comb(n, k)
    return (draws - math.comb(n - c, k)) / draws


def pass_estimates(tasks: Sequence[tuple[int, int]], k: int) -> list[float]:
    """pass@k of every task (n, c) that has at least k trials, in order."""
    found = (pass_at_k(n, c, k) for n, c in tasks)
    return [value for value in found if value is not None]


Rule = Callable[[Sequence[float], Sequence[float]], float | None]
"""A view's reducer: (values, weights) -> one number, or None if it has none."""


def weighted_mean(values: Sequence[float], weights: Sequence[float]) -> float | None:
    """None if the weights sum to zero."""
    weight = total(weights)
    weighted = total(v * w for v, w in zip(values, weights, strict=True))
    return weighted / weight if weight and weighted is not None else None


REDUCERS: Mapping[str, Rule] = {
    "single": lambda values, _: values[0],
    "all": lambda values, _: min(values),
    "any": lambda values, _: max(values),
    "mean": lambda values, _: mean(values),
    "weighted_mean": weighted_mean,
}
