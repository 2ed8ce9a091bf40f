"""Scheduled benchmarks: a day is filled once, within the budget, through the ordinary way in for runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from harbor_assets.domain.benchmarks import TRIES_MAX, Benchmark, DayOf, Spent
from harbor_assets.domain.errors import IdempotencyConflict, Refused
from harbor_assets.domain.outcomes import Outcome, TrialOutcome
from harbor_assets.domain.runs import Run
from harbor_assets.engine.benchmark_ports import KeyedRuns
from harbor_assets.engine.evaluations import Evaluations
from harbor_assets.engine.ports import RunCatalog


@dataclass(frozen=True, slots=True)
class Day:
    """The newest run of a day. `scored`: at least one of its trials has a score, which is what fills the day."""

    day: str
    number: int
    run: Run
    scored: bool

    @property
    def open(self) -> bool:
        """True if another run may be begun for the day."""
        return self.run.phase.terminal and not self.scored


@dataclass(frozen=True, slots=True)
class Filled:
    """What became of filling a day: its run, and whether that was begun just now."""

    run: Run
    begun: bool


def _now() -> datetime:
    return datetime.now(UTC)


class Benchmarks:
    """Fills days of benchmarks. Holds no state: what a day has, stands in the catalog."""

    def __init__(
        self,
        *,
        evaluations: Evaluations,
        runs: RunCatalog,
        keys: KeyedRuns,
        owner: str,
        workspace: str,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        self._evaluations, self._runs, self._keys = evaluations, runs, keys
        self._owner, self._workspace, self._clock = owner, workspace, clock

    def workspace(self, benchmark: Benchmark) -> str:
        """Where its runs are."""
        return benchmark.workspace or self._workspace

    def fill(self, benchmark: Benchmark, day: str) -> Filled:
        """Begin the day's run, unless it has one that goes on or has a score: then that one is it.

        A day whose runs ended without any score may be filled again. Raises `Refused` where the budget forbids it, and
        what submitting raises.
        """
        there = self.day(benchmark, day)
        if there is not None and not there.open:
            return Filled(there.run, begun=False)
        if why := self.forbidden(benchmark, day):
            raise Refused(f"The day {day} of benchmark {benchmark.name} is not filled: {why}")
        number = there.number + 1 if there else 1
        key = benchmark.key(day, number)
        try:
            submitted = self._evaluations.submit(self.workspace(benchmark), benchmark.request(), idempotency_key=key)
        except IdempotencyConflict as conflict:  # two at once, with a changed defs.yaml between them
            raise Refused(f"The day {day} of benchmark {benchmark.name} is being filled already. {conflict}") from None
        return Filled(self._runs.get_run(submitted.run.id), begun=submitted.created)

    def day(self, benchmark: Benchmark, day: str) -> Day | None:
        """The newest run of the day; None: the day has none."""
        numbered = [(of.number, run_id) for of, run_id in self._of(benchmark) if of.day == day]
        if not numbered:
            return None
        number, run_id = max(numbered)
        run = self._runs.get_run(run_id)
        return Day(
            day, number, run, scored=self._runs.count_outcomes([run_id]).get(run_id, {}).get(Outcome.SCORED, 0) > 0
        )

    def forbidden(self, benchmark: Benchmark, day: str) -> str | None:
        """Why no run may be begun for that day now, as a sentence; None: one may."""
        if not benchmark.start <= date.fromisoformat(day) <= self.today(benchmark):
            return f"days go from {benchmark.start} (start) to {self.today(benchmark)}, today in {benchmark.timezone}"
        runs = [(of, self._runs.get_run(run_id)) for of, run_id in self._of(benchmark)]
        if sum(of.day == day for of, _ in runs) >= TRIES_MAX:
            return f"its {TRIES_MAX} runs ended without a score; look at the last one's outcomes"
        budget = benchmark.budget
        if budget.runs_a_day is not None:
            today = self.today(benchmark)
            begun = sum(run.created_at.astimezone(benchmark.zone).date() == today for _, run in runs)
            if begun >= budget.runs_a_day:
                return f"{begun} of {budget.runs_a_day} runs a day (budget.runs_a_day) were begun on {today}"
        if budget.usd is None:
            return None
        since = self._clock() - timedelta(days=budget.days)
        spent = self.spent([run for _, run in runs if run.created_at >= since])
        if spent.usd < budget.usd:
            return None
        unknown = f"; {spent.unknown} trials did not say what they cost" if spent.unknown else ""
        return (
            f"the budget is spent: {spent.usd:.2f} of {budget.usd:.2f} USD (budget.usd) in the last "
            f"{budget.days} days{unknown}"
        )

    def spent(self, runs: Sequence[Run]) -> Spent:
        """What these runs cost so far."""
        total = Spent(0.0, 0)
        for run in runs:
            total += Spent.on(self._runs.outcomes(run.id))
        return total

    def today(self, benchmark: Benchmark) -> date:
        """The day it is where the benchmark's times are read."""
        return self._clock().astimezone(benchmark.zone).date()

    def outcomes(self, run: Run) -> Sequence[TrialOutcome]:
        """The rows of a run so far."""
        return self._runs.outcomes(run.id)

    def day_of(self, run_id: str) -> DayOf | None:
        """Which day of which benchmark a run is for."""
        return DayOf.read(self._keys.key_of(run_id))

    def _of(self, benchmark: Benchmark) -> list[tuple[DayOf, str]]:
        keyed = self._keys.runs_by_key(self.workspace(benchmark), self._owner, benchmark.prefix)
        return [(of, run_id) for key, run_id in keyed if (of := DayOf.read(key))]
