"""`outcomes.json`: what became of every planned trial, and the score under two stated policies.

A mean is worth nothing without its denominator. Both policies are computed from the same rows and printed with their
coverage, so that nobody has to guess what a missing trial counted as:

`scored_only`      over the trials that have a reward; trials that ended otherwise are left out
`missing_as_zero`  over every planned trial; one without a reward counts as 0 and as not passed

A mean, and pass@k over tasks, come with a confidence interval at 95 % (`harbor_assets.domain.intervals`), null where
the values do not tell.

pass@k is the unbiased estimator over the trials a policy counts, averaged over the tasks that have at least k of them;
null if no task has. A trial passes with a reward of at least 1.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from harbor_assets.domain.intervals import LEVEL, interval
from harbor_assets.domain.outcomes import Frozen, Outcome, TrialOutcome
from harbor_assets.domain.statistics import PASS, mean, pass_estimates


class PolicyCoverage(Frozen):
    """How much a figure rests on: trials with a reward of those planned, tasks with at least one of those planned."""

    trials: int
    tasks: int
    of_trials: int
    of_tasks: int

    @property
    def share(self) -> float:
        """Of the planned trials, those with a reward; 0 of nothing."""
        return self.trials / self.of_trials if self.of_trials else 0.0


class ConfidenceInterval(Frozen):
    """`low` to `high` at `level`. `method`: `wilson` for rates, `student` for other means, `_clustered` by task."""

    low: float
    high: float
    level: float = LEVEL
    method: str


class Policy(Frozen):
    """The score under one policy. `mean` is null where there is nothing to average; `pass_at_k` by k as a string."""

    mean: float | None
    mean_interval: ConfidenceInterval | None = None
    pass_at_k: dict[str, float | None]
    pass_at_k_intervals: dict[str, ConfidenceInterval | None] = {}
    coverage: PolicyCoverage


class Policies(Frozen):
    scored_only: Policy
    missing_as_zero: Policy


class OutcomeSummary(Frozen):
    """`outcomes.json`. `counts` has all seven outcomes, zeros too, and sums to `planned`."""

    planned: int
    counts: dict[Outcome, int]
    policies: Policies


def account(rows: Iterable[TrialOutcome]) -> OutcomeSummary:
    """The summary of one row per planned trial, in any order."""
    counts: Counter[Outcome] = Counter()
    rewards: dict[int, list[float | None]] = defaultdict(list)
    for row in rows:
        counts[row.outcome] += 1
        rewards[row.index].append(row.reward)
    attempts = max(map(len, rewards.values()), default=0)
    scored = {index: [value for value in values if value is not None] for index, values in rewards.items()}
    coverage = PolicyCoverage(
        trials=counts[Outcome.SCORED],
        tasks=sum(1 for values in scored.values() if values),
        of_trials=counts.total(),
        of_tasks=len(rewards),
    )
    zeroed = {index: [value or 0.0 for value in values] for index, values in rewards.items()}
    return OutcomeSummary(
        planned=counts.total(),
        counts={outcome: counts[outcome] for outcome in Outcome},
        policies=Policies(
            scored_only=_policy(scored.values(), attempts, coverage),
            missing_as_zero=_policy(zeroed.values(), attempts, coverage),
        ),
    )


def _policy(tasks: Iterable[list[float]], attempts: int, coverage: PolicyCoverage) -> Policy:
    tasks = list(tasks)
    tried = [(len(values), sum(value >= PASS for value in values)) for values in tasks]
    estimates = {str(k): pass_estimates(tried, k) for k in range(1, attempts + 1)}
    return Policy(
        mean=mean([value for values in tasks for value in values]),
        mean_interval=_interval(tasks),
        pass_at_k={k: mean(of_tasks) for k, of_tasks in estimates.items()},
        pass_at_k_intervals={k: _interval([[value] for value in of_tasks]) for k, of_tasks in estimates.items()},
        coverage=coverage,
    )


def _interval(tasks: Sequence[Sequence[float]]) -> ConfidenceInterval | None:
    found = interval(tasks)
    return None if found is None else ConfidenceInterval(low=found.low, high=found.high, method=found.method)
