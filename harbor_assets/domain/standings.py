"""Who is ahead, as far as the numbers tell: runs are ranked together only where they are comparable.

A board holds what was made under equal conditions (`harbor_assets.domain.conditions`); the other boards of a taskset
say in what they differ from the one with most lines. On a board, a line that covers too little of what was planned
stands apart. A rank is a band: every pair of lines is tested over the tasks that both have scored
(`harbor_assets.domain.paired`), corrected for the number of pairs, and a line's best rank counts only those that are
better beyond chance.

Where lines pool runs, a trial counts once: regrades are left out, since their trials are those of the run they verify
again. Each is a line of its own where lines are runs.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import combinations
from typing import Final

from harbor_assets.domain.conditions import Conditions
from harbor_assets.domain.errors import Problem, Refused
from harbor_assets.domain.intervals import interval_of_sums
from harbor_assets.domain.marks import Mark, stale
from harbor_assets.domain.outcomes import Frozen
from harbor_assets.domain.paired import ALPHA, holm, mcnemar, paired_test
from harbor_assets.domain.policies import ConfidenceInterval, PolicyCoverage
from harbor_assets.domain.ranking import RankedRun
from harbor_assets.domain.statistics import total

MIN_COVERAGE: Final = 0.9  # share of the planned trials that are scored, from which a line is ranked
TESTED_MAX: Final = 30  # lines of a board whose pairs are tested: 435 tests
BY_RUN: Final = ("run",)
KEYS: Final[Mapping[str, Callable[[RankedRun], str | None]]] = {
    "run": lambda run: run.run_id,
    "agent": lambda run: run.agent,
    "agent_version": lambda run: run.agent_version,
    "model": lambda run: run.model,
    "experiment": lambda run: run.experiment,
    "owner": lambda run: run.owner,
}


class Standing(Frozen):
    """A line: one run, or several that agree in what lines are made by.

    `mean` is over the scored trials of all of them, `mean_missing_as_zero` over those planned; `agent`, `model` and
    so on are None where they differ. `rank` counts from 1 by the mean; `best` and `worst` are what the tests leave
    open, None for a line that was not tested.
    `apart` says why the line is not ranked. `stale`: a person marked one of its runs, or a task in it, as bad.
    `cost_usd` and `duration_sec` are sums; costs of `cost_trials` trials are known.
    """

    agent: str | None
    model: str | None
    experiment: str | None
    run_ids: tuple[str, ...]
    mean: float | None
    mean_interval: ConfidenceInterval | None
    mean_missing_as_zero: float | None = None
    coverage: PolicyCoverage
    cost_usd: float | None
    cost_trials: int
    duration_sec: float | None
    finished_at: datetime | None
    rank: int | None = None
    best: int | None = None
    worst: int | None = None
    apart: str | None = None
    stale: bool = False


class Board(Frozen):
    """Lines of equal conditions, ranked ones first. `differs`: in what they differ from those of the taskset's first
    board; empty for that one. `test`: mcnemar, paired_bootstrap, both, or None if no pair was tested."""

    conditions: Conditions
    differs: tuple[str, ...] = ()
    standings: tuple[Standing, ...]
    test: str | None = None


class Leaderboard(Frozen):
    """The leaderboard of a workspace. `missing`: its ended runs that are not on it yet; `missing_elsewhere`: how many
    of other workspaces are not on theirs. `boards`: the runs ranked, those together that are comparable. `marks`: run
    id -> what is said of it or of its tasks. `left_out`: regrades that stand on no board, since lines pool runs."""

    runs: tuple[RankedRun, ...]
    missing: tuple[str, ...] = ()
    missing_elsewhere: int = 0
    boards: tuple[Board, ...] = ()
    marks: dict[str, tuple[Mark, ...]] = {}
    left_out: tuple[str, ...] = ()

    def marked(self, marks: Mapping[str, Sequence[Mark]]) -> "Leaderboard":
        """The same, with what is said of its runs: numbers and ranks stay, and stale ones say so."""
        bad = {run_id for run_id, found in marks.items() if stale(found)}
        boards = (
            board.model_copy(
                update={
                    "standings": tuple(
                        line.model_copy(update={"stale": True}) if bad.intersection(line.run_ids) else line
                        for line in board.standings
                    )
                }
            )
            for board in self.boards
        )
        told = {run_id: tuple(found) for run_id, found in marks.items()}
        return self.model_copy(update={"boards": tuple(boards), "marks": told})


@dataclass(frozen=True, slots=True)
class Pairing:
    """A run's scored trials and the sum of their rewards, for each of its tasks by reference."""

    scored: Sequence[int]
    totals: Sequence[float]
    rates: bool
    unit: bool


def checked_keys(by: Sequence[str]) -> tuple[str, ...]:
    """What lines are made by; nothing means runs. Raises `Refused` for a word that is none of `KEYS`."""
    if unknown := [word for word in by if word not in KEYS]:
        raise Refused("The leaderboard cannot be made", [Problem("by", f"'{unknown[0]}' is none of {', '.join(KEYS)}")])
    return tuple(dict.fromkeys(by)) or BY_RUN


def not_pooled(runs: Iterable[RankedRun], by: Sequence[str]) -> tuple[str, ...]:
    """The runs that stand on no board where lines are made by this: regrades, unless each run is a line."""
    return () if "run" in by else tuple(run.run_id for run in runs if run.regrade_of is not None)


def boards(
    runs: Iterable[RankedRun],
    pairings: Callable[[Sequence[str]], Mapping[str, Pairing]],
    *,
    by: Sequence[str] = BY_RUN,
    min_coverage: float = MIN_COVERAGE,
) -> tuple[Board, ...]:
    """The boards of these runs: by taskset, the one with most lines first.

    `pairings` is asked once for a board, for no more runs than its lines need. `not_pooled` ones are left out.
    """
    groups: dict[Conditions, list[RankedRun]] = defaultdict(list)
    runs = list(runs)
    without = set(not_pooled(runs, by))
    for run in runs:
        if run.run_id in without:
            continue
        groups[run.conditions].append(run)
    made = [_board(conditions, found, pairings, by, min_coverage) for conditions, found in groups.items()]
    made.sort(key=lambda board: (_name(board), -len(board.standings), board.conditions.model_dump_json()))
    firsts = {_name(board): board.conditions for board in reversed(made)}
    return tuple(
        board.model_copy(update={"differs": board.conditions.differences(firsts[_name(board)])}) for board in made
    )


def _name(board: Board) -> str:
    return board.conditions.taskset_ref.partition("#")[0]


def _board(
    conditions: Conditions,
    runs: Sequence[RankedRun],
    pairings: Callable[[Sequence[str]], Mapping[str, Pairing]],
    by: Sequence[str],
    min_coverage: float,
) -> Board:
    groups: dict[tuple[str | None, ...], list[RankedRun]] = defaultdict(list)
    for run in runs:
        groups[tuple(KEYS[key](run) for key in by)].append(run)
    lines = [_line(found) for found in groups.values()]
    several = [run_id for line in lines if len(line.run_ids) > 1 for run_id in line.run_ids]
    ranked = sorted(
        (line for line in lines if _apart(line, min_coverage) is None),
        key=lambda line: (-(line.mean or 0), line.run_ids),
    )
    tested = ranked[:TESTED_MAX] if len(ranked) > 1 else []
    wanted = {*several, *(run_id for line in tested for run_id in line.run_ids)}
    found = pairings(sorted(wanted)) if wanted else {}
    sums = {line.run_ids: _summed([found[run] for run in line.run_ids if run in found]) for line in lines}
    bands, test = [(1, 1)], None  # a line alone is the first, whatever a test says
    if tested:
        bands, test = _bands([sums[line.run_ids] for line in tested])
    placed: list[Standing] = []
    for place, line in enumerate(ranked):
        rank = 1 + sum((other.mean or 0) > (line.mean or 0) for other in ranked[:place])
        best, worst = bands[place] if place < len(bands) else (None, None)
        placed.append(line.model_copy(update={"rank": rank, "best": best, "worst": worst}))
    for line in sorted(lines, key=lambda line: (line.mean is None, -(line.mean or 0), line.run_ids)):
        if why := _apart(line, min_coverage):
            placed.append(line.model_copy(update={"apart": why}))
    standings = (_with_interval(line, sums[line.run_ids]) for line in placed)
    return Board(conditions=conditions, standings=tuple(standings), test=test)


def _line(runs: Sequence[RankedRun]) -> Standing:
    runs = sorted(runs, key=lambda run: run.run_id)
    first = runs[0]
    scored = sum(run.coverage.trials for run in runs)
    rewards = total(run.mean * run.coverage.trials for run in runs if run.mean is not None)
    costs = [run.cost_usd for run in runs if run.cost_usd is not None]
    seconds = [run.duration_sec for run in runs if run.duration_sec is not None]
    ends = [run.finished_at for run in runs if run.finished_at is not None]
    planned = sum(run.coverage.of_trials for run in runs)
    pooled = rewards / scored if scored and rewards is not None else None
    return Standing(
        agent=_same(run.agent for run in runs),
        model=_same(run.model for run in runs),
        experiment=_same(run.experiment for run in runs),
        run_ids=tuple(run.run_id for run in runs),
        mean=first.mean if len(runs) == 1 else pooled,
        mean_interval=first.mean_interval if len(runs) == 1 else None,
        mean_missing_as_zero=first.mean_missing_as_zero if len(runs) == 1 else _share(rewards, planned),
        coverage=PolicyCoverage(
            trials=scored,
            tasks=max(run.coverage.tasks for run in runs),
            of_trials=planned,
            of_tasks=max(run.coverage.of_tasks for run in runs),
        ),
        cost_usd=total(costs) if costs else None,
        cost_trials=sum(run.cost_trials for run in runs),
        duration_sec=total(seconds) if seconds else None,
        finished_at=max(ends, default=None),
    )


def _share(rewards: float | None, planned: int) -> float | None:
    return rewards / planned if planned and rewards is not None else None  # rewards beyond a float have no sum


def _same(values: Iterable[str | None]) -> str | None:
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _apart(line: Standing, min_coverage: float) -> str | None:
    """Why a line is not ranked; None if it is."""
    cover = line.coverage
    if line.mean is None:
        return "no trial was scored"
    share = cover.trials / cover.of_trials
    if share < min_coverage:
        return f"coverage {share:.3g} ({cover.trials} of {cover.of_trials} trials) is below {min_coverage:g}"
    return None


def _summed(pairings: Sequence[Pairing]) -> Pairing | None:
    """Several runs of the same tasks as one."""
    if len(pairings) <= 1:
        return pairings[0] if pairings else None
    return Pairing(
        scored=[sum(counts) for counts in zip(*(one.scored for one in pairings), strict=True)],
        totals=[total(sums) or 0.0 for sums in zip(*(one.totals for one in pairings), strict=True)],
        rates=all(one.rates for one in pairings),
        unit=all(one.unit for one in pairings),
    )


def _with_interval(line: Standing, sums: Pairing | None) -> Standing:
    if len(line.run_ids) == 1 or sums is None:
        return line
    tasks = sum(count > 0 for count in sums.scored)
    found = interval_of_sums(list(zip(sums.scored, sums.totals, strict=True)), rates=sums.rates, unit=sums.unit)
    interval = ConfidenceInterval(low=found.low, high=found.high, method=found.method) if found else None
    coverage = line.coverage.model_copy(update={"tasks": tasks})
    return line.model_copy(update={"mean_interval": interval, "coverage": coverage})


def _bands(lines: Sequence[Pairing | None]) -> tuple[list[tuple[int, int]], str | None]:
    """For each line the best and the worst rank that the tests leave open, and the tests that were made."""
    values = [_Values.of(line) for line in lines]
    pairs = list(combinations(range(len(lines)), 2))
    tests = [_tested(values[i], values[j]) for i, j in pairs]
    better, worse = [0] * len(lines), [0] * len(lines)
    for (i, j), p, (_, method, ahead) in zip(pairs, holm([p for p, *_ in tests]), tests, strict=True):
        if method and p < ALPHA and ahead:
            winner, loser = (i, j) if ahead > 0 else (j, i)
            worse[winner] += 1
            better[loser] += 1
    methods = sorted({method for _, method, _ in tests if method})
    bands = [(1 + ahead, len(lines) - behind) for ahead, behind in zip(better, worse, strict=True)]
    return bands, ", ".join(methods) or None


@dataclass(frozen=True, slots=True)
class _Values:
    """The mean of each task, None where it has no scored trial; and as bits which tasks are scored, and which have 1
    where every one has 0 or 1: hundreds of pairs are then counted in no time."""

    means: Sequence[float | None]
    scored: int
    ones: int | None

    @classmethod
    def of(cls, line: Pairing | None) -> "_Values":
        if line is None:
            return cls((), 0, 0)
        means = [value / count if count else None for count, value in zip(line.scored, line.totals, strict=True)]
        ones = _bits(mean == 1 for mean in means) if all(mean in (None, 0, 1) for mean in means) else None
        return cls(means, _bits(mean is not None for mean in means), ones)


def _bits(flags: Iterable[bool]) -> int:
    return int("".join("1" if flag else "0" for flag in flags) or "0", 2)


def _tested(a: _Values, b: _Values) -> tuple[float, str, float]:
    """(p, test, by how much the first is ahead) over the tasks that both have; no test where there are none."""
    common = a.scored & b.scored
    if not common:
        return 1.0, "", 0.0
    if a.ones is not None and b.ones is not None:
        wins, losses = (a.ones & ~b.ones & common).bit_count(), (b.ones & ~a.ones & common).bit_count()
        return mcnemar(wins, losses), "mcnemar", wins - losses
    both = [(x, y) for x, y in zip(a.means, b.means, strict=True) if x is not None and y is not None]
    first, second = [x for x, _ in both], [y for _, y in both]
    test = paired_test(first, second)
    return test.p, test.method, total(x - y for x, y in both) or 0.0
