"""The figures of an evaluation, from its sessions: every test case weighs the same, however often it was tried.

A test case is worth the mean of its sessions. Where an evaluator gave no value for any session of a test case, that
test case counts as 0 for this evaluator: an evaluation that was not finished does not look better than one that was.
Cost, time and tokens that nobody reported are unknown instead, and stay out. Sessions without a test case count
nowhere.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from pydantic import BaseModel, ConfigDict

from harbor_assets.domain.statistics import mean, percentile, total

STATS: Final = ("sum", "mean", "min", "max", "median", "p90", "p95", "p99", "count", "failed_count")


class Aggregate(BaseModel):
    """One figure over the test cases of an evaluation.

    `count`: the test cases that have a value; `failed_count`: the results of an evaluator that ran and gave none. For
    an evaluator every test case is in the other figures, without a value as 0; for the rest only those with one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    sum: float | None = None
    mean: float | None = None
    min: float | None = None
    max: float | None = None
    median: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    count: int = 0
    failed_count: int = 0


class Rollup(BaseModel):
    """What the sessions of an evaluation say together. `run_count`: its sessions that have a test case."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    evaluator_names: list[str] = []
    model_names: list[str] = []
    agent_names: list[str] = []
    agent_versions: list[str] = []
    aggregate_scores: dict[str, Aggregate] = {}
    run_count: int = 0
    test_case_count: int = 0
    cost_usd: Aggregate | None = None
    latency_ms: Aggregate | None = None
    tokens: Aggregate | None = None

    def figure_at(self, name: str, key: str) -> float | None:
        """`test_case_count`; `cost_usd` with the key `mean`; `evaluators` with the key `<name>.mean`."""
        if not key:
            return getattr(self, name)
        evaluator, _, stat = key.rpartition(".")
        found = self.aggregate_scores.get(evaluator) if name == "evaluators" else getattr(self, name)
        return getattr(found, stat) if found is not None else None


@dataclass(frozen=True, slots=True)
class SessionFigures:
    """What a session adds to the figures of its evaluation."""

    session: str
    test_case: str
    agent_name: str | None = None
    agent_version: str | None = None
    model_name: str | None = None
    cost_usd: float | None = None
    latency_ms: float | None = None
    tokens: float | None = None


@dataclass(frozen=True, slots=True)
class ResultFigures:
    """What a result adds. `value` is None for a text, and for a result that failed."""

    session: str
    name: str
    value: float | None = None
    failed: bool = False


@dataclass(slots=True)
class _Evaluator:
    values: dict[str, list[float]] = field(default_factory=dict[str, list[float]])  # by session
    failed: int = 0
    numeric: bool = False


def rollup(sessions: Iterable[SessionFigures], results: Iterable[ResultFigures]) -> Rollup:
    """The figures of one evaluation. `results` of sessions that are not among `sessions` count nowhere."""
    counted = [session for session in sessions if session.test_case]
    cases: dict[str, list[SessionFigures]] = {}
    for session in counted:
        cases.setdefault(session.test_case, []).append(session)
    known = {session.session for session in counted}
    evaluators: dict[str, _Evaluator] = {}
    for result in results:
        if result.session not in known:
            continue
        evaluator = evaluators.setdefault(result.name, _Evaluator())
        evaluator.failed += result.failed
        if result.value is not None:
            evaluator.values.setdefault(result.session, []).append(result.value)
        evaluator.numeric = evaluator.numeric or result.failed or result.value is not None
    return Rollup(
        evaluator_names=sorted(evaluators),
        model_names=_names(session.model_name for session in counted),
        agent_names=_names(session.agent_name for session in counted),
        agent_versions=_names(session.agent_version for session in counted),
        aggregate_scores={
            name: _scores(evaluator, cases) for name, evaluator in sorted(evaluators.items()) if evaluator.numeric
        },
        run_count=len(counted),
        test_case_count=len(cases),
        cost_usd=_known([[session.cost_usd for session in case] for case in cases.values()]),
        latency_ms=_known([[session.latency_ms for session in case] for case in cases.values()]),
        tokens=_known([[session.tokens for session in case] for case in cases.values()]),
    )


def _names(found: Iterable[str | None]) -> list[str]:
    return sorted({name for name in found if name})


def _scores(evaluator: _Evaluator, cases: dict[str, list[SessionFigures]]) -> Aggregate:
    values: list[float] = []
    having = 0
    for case in cases.values():
        means = [mean(held) for session in case if (held := evaluator.values.get(session.session))]
        value = mean([each for each in means if each is not None])
        having += value is not None
        values.append(value or 0.0)
    return _aggregate(values, having, evaluator.failed)


def _known(cases: list[list[float | None]]) -> Aggregate | None:
    means = (mean([value for value in case if value is not None]) for case in cases)
    values = [value for value in means if value is not None]
    return _aggregate(values, len(values), 0) if values else None


def _aggregate(values: list[float], having: int, failed: int) -> Aggregate:
    ordered = sorted(value for value in values if math.isfinite(value))
    if not ordered:
        return Aggregate(count=having, failed_count=failed)
    return Aggregate(
        sum=total(ordered),
        mean=mean(ordered),
        min=ordered[0],
        max=ordered[-1],
        median=percentile(ordered, 50),
        p90=percentile(ordered, 90),
        p95=percentile(ordered, 95),
        p99=percentile(ordered, 99),
        count=having,
        failed_count=failed,
    )
