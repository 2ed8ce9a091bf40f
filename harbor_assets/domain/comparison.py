"""Two runs task by task: what the second does better and worse than the first, and whether that may be chance.

The first run is what the second is held against. A task's value is the mean reward of its scored trials; a task counts
where both runs have one. A loss is a regression if the first run passed the task and the second does not: passed is one
of whose scored trials at least half passed.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, Literal, Self

from harbor_assets.domain.conditions import Conditions, conditions_of
from harbor_assets.domain.marks import Mark, stale
from harbor_assets.domain.outcomes import Frozen, TrialOutcome
from harbor_assets.domain.paired import difference_interval, paired_test
from harbor_assets.domain.policies import ConfidenceInterval, PolicyCoverage, account
from harbor_assets.domain.runs import Run
from harbor_assets.domain.statistics import PASS, mean, total

Verdict = Literal["win", "loss", "tie", "only_first", "only_second", "neither"]
_REMARKS_MAX: Final = 5
# What conditions can name: of one run, and of two.
RUN_FIGURES: Final = (
    "mean", "mean_missing_as_zero", "coverage", "scored", "unscored", "cost_usd", "duration_sec", "elapsed_sec",
)  # fmt: skip
FIGURES: Final = (
    *RUN_FIGURES, *(f"first_{name}" for name in RUN_FIGURES), "wins", "losses", "ties", "regressions", "tasks",
    "difference", "difference_low", "difference_high", "p",
)  # fmt: skip


class ComparedRun(Frozen):
    """One of the two. `mean` is over its scored trials. `cost_usd` is of the `cost_trials` that know theirs;
    `duration_sec` is of all trials, one after another, `elapsed_sec` from the run's first slot to its end.
    `marks`: what is said of the run or of a task of it; `stale`: a person said that one of them is bad."""

    run_id: str
    agent: str
    agent_version: str | None
    phase: str
    conditions: Conditions
    mean: float | None
    mean_interval: ConfidenceInterval | None
    mean_missing_as_zero: float | None
    coverage: PolicyCoverage
    cost_usd: float | None
    cost_trials: int
    duration_sec: float | None
    elapsed_sec: float | None
    stale: bool = False
    marks: tuple[Mark, ...] = ()

    def marked(self, marks: Iterable[Mark]) -> Self:
        """With what is said of it; no figure changes."""
        found = tuple(marks)
        return self.model_copy(update={"marks": found, "stale": stale(found)})


class ComparedTask(Frozen):
    """A task of either run. `first` and `second`: its value in each, None where it has none. `verdict` is the second
    run's."""

    task: str
    task_ref: str
    first: float | None
    second: float | None
    verdict: Verdict
    regression: bool = False


class Difference(Frozen):
    """Mean of the second run less that of the first, over the `tasks` that both have scored. `p` is two-sided.

    `test`: mcnemar or paired_bootstrap. `method` of the interval: newcombe or student_paired; no interval where the
    values do not tell.
    """

    mean: float
    low: float | None
    high: float | None
    method: str | None
    p: float
    test: str
    tasks: int


class Comparison(Frozen):
    """`differences` say in what the two were made otherwise, empty if they are comparable; `remarks` what else differs
    that may matter."""

    first: ComparedRun
    second: ComparedRun
    comparable: bool
    differences: tuple[str, ...]
    remarks: tuple[str, ...]
    wins: int
    losses: int
    ties: int
    regressions: int
    only_first: int
    only_second: int
    difference: Difference | None
    tasks: tuple[ComparedTask, ...]


def compare(first: Run, one: Sequence[TrialOutcome], second: Run, two: Sequence[TrialOutcome]) -> Comparison:
    """The comparison of two ended runs by their outcome rows."""
    a, b = _by_task(one), _by_task(two)
    names = {task.ref: task.name for run in (first, second) for task in run.plan.tasks}
    tasks = tuple(
        _task(name, ref, a.get(ref, []), b.get(ref, [])) for ref, name in sorted(names.items(), key=lambda x: x[::-1])
    )
    sides = _side(first, one), _side(second, two)
    differences = sides[1].conditions.differences(sides[0].conditions)
    counts: dict[str, int] = defaultdict(int)
    for task in tasks:
        counts[task.verdict] += 1
    return Comparison(
        first=sides[0],
        second=sides[1],
        comparable=not differences,
        differences=differences,
        remarks=tuple(_remarks(first, second)),
        wins=counts["win"],
        losses=counts["loss"],
        ties=counts["tie"],
        regressions=sum(task.regression for task in tasks),
        only_first=counts["only_first"],
        only_second=counts["only_second"],
        difference=_difference(tasks),
        tasks=tasks,
    )


def figures_of(found: Comparison) -> dict[str, float | None]:
    """What conditions on a comparison can name; plain names are the second run's. None is unknown."""
    difference = found.difference
    return {
        **_figures(found.second, ""),
        **_figures(found.first, "first_"),
        "wins": found.wins,
        "losses": found.losses,
        "ties": found.ties,
        "regressions": found.regressions,
        "tasks": difference.tasks if difference else 0,
        "difference": difference.mean if difference else None,
        "difference_low": difference.low if difference else None,
        "difference_high": difference.high if difference else None,
        "p": difference.p if difference else None,
    }


def figures_of_run(rows: Sequence[TrialOutcome], elapsed_sec: float | None) -> dict[str, float | None]:
    """What conditions on one run can name."""
    policies = account(rows).policies
    cover = policies.scored_only.coverage
    cost, cost_trials = _cost(rows)
    return {
        "mean": policies.scored_only.mean,
        "mean_missing_as_zero": policies.missing_as_zero.mean,
        "coverage": cover.trials / cover.of_trials if cover.of_trials else None,
        "scored": cover.trials,
        "unscored": cover.of_trials - cover.trials,
        "cost_usd": cost if cost_trials == cover.of_trials else None,  # a sum of some is not what the run cost
        "duration_sec": _duration(rows),
        "elapsed_sec": elapsed_sec,
    }


def _figures(side: ComparedRun, prefix: str) -> dict[str, float | None]:
    cover = side.coverage
    figures: dict[str, float | None] = {
        "mean": side.mean,
        "mean_missing_as_zero": side.mean_missing_as_zero,
        "coverage": cover.trials / cover.of_trials if cover.of_trials else None,
        "scored": cover.trials,
        "unscored": cover.of_trials - cover.trials,
        "cost_usd": side.cost_usd if side.cost_trials == cover.of_trials else None,
        "duration_sec": side.duration_sec,
        "elapsed_sec": side.elapsed_sec,
    }
    return {f"{prefix}{name}": value for name, value in figures.items()}


def _by_task(rows: Iterable[TrialOutcome]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row.reward is not None:
            found[row.task_ref].append(row.reward)
    return found


def _task(name: str, ref: str, a: list[float], b: list[float]) -> ComparedTask:
    first, second = mean(a), mean(b)
    verdict: Verdict
    if first is None or second is None:
        verdict = "only_first" if first is not None else "only_second" if second is not None else "neither"
        return ComparedTask(task=name, task_ref=ref, first=first, second=second, verdict=verdict)
    verdict = "win" if second > first else "loss" if second < first else "tie"
    regression = verdict == "loss" and _passed(a) and not _passed(b)
    return ComparedTask(task=name, task_ref=ref, first=first, second=second, verdict=verdict, regression=regression)


def _passed(rewards: Sequence[float]) -> bool:
    return 2 * sum(reward >= PASS for reward in rewards) >= len(rewards)


def _difference(tasks: Iterable[ComparedTask]) -> Difference | None:
    both = [(task.second, task.first) for task in tasks if task.first is not None and task.second is not None]
    if not both:
        return None
    second, first = [x for x, _ in both if x is not None], [y for _, y in both if y is not None]
    test, reach = paired_test(second, first), difference_interval(second, first)
    middle = mean([x - y for x, y in zip(second, first, strict=True)])
    return Difference(
        mean=middle or 0.0,
        low=reach.low if reach else None,
        high=reach.high if reach else None,
        method=reach.method if reach else None,
        p=test.p,
        test=test.method,
        tasks=len(both),
    )


def _side(run: Run, rows: Sequence[TrialOutcome]) -> ComparedRun:
    policies = account(rows).policies
    scored = policies.scored_only
    cost, cost_trials = _cost(rows)
    elapsed = (run.ended_at - run.started_at).total_seconds() if run.started_at and run.ended_at else None
    return ComparedRun(
        run_id=run.id,
        agent=run.plan.agent.name,
        agent_version=run.plan.agent.version,
        phase=run.phase.value,
        conditions=conditions_of(run.plan),
        mean=scored.mean,
        mean_interval=scored.mean_interval,
        mean_missing_as_zero=policies.missing_as_zero.mean,
        coverage=scored.coverage,
        cost_usd=cost,
        cost_trials=cost_trials,
        duration_sec=_duration(rows),
        elapsed_sec=elapsed,
    )


def _cost(rows: Iterable[TrialOutcome]) -> tuple[float | None, int]:
    """The sum of what is known, and of how many trials that is."""
    costs = [row.measurements.cost_usd for row in rows if row.measurements.cost_usd is not None]
    return (total(costs) if costs else None), len(costs)


def _duration(rows: Iterable[TrialOutcome]) -> float | None:
    seconds = [took for row in rows if row.tries and (took := row.tries[-1].seconds) is not None]
    return total(seconds) if seconds else None


def _remarks(first: Run, second: Run) -> Iterable[str]:
    """What differs beside the conditions: it is no reason not to compare, but may be one for a difference."""
    if first.plan.harbor_version != second.plan.harbor_version:
        yield f"Harbor: {second.plan.harbor_version}, not {first.plan.harbor_version}"
    if first.plan.n_attempts != second.plan.n_attempts:
        yield f"trials of each task: {second.plan.n_attempts}, not {first.plan.n_attempts}"
    before = {task.ref: task.images for task in first.plan.tasks}
    changed = [task.name for task in second.plan.tasks if before.get(task.ref, task.images) != task.images]
    if changed:
        more = ", …" if len(changed) > _REMARKS_MAX else ""
        yield f"images of {len(changed)} tasks are others: {', '.join(changed[:_REMARKS_MAX])}{more}"
