"""What a report shows, worked out before anybody draws it: run, figures, distribution, one row per trial. Pure.

Texts stay as they came from tasks and agents; whoever renders a report escapes them. Paths are relative to the bundle.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import attrgetter

from harbor_assets.domain.outcomes import Outcome, TrialOutcome
from harbor_assets.domain.phases import RunPhase
from harbor_assets.domain.plans import RunPlan
from harbor_assets.domain.policies import OutcomeSummary
from harbor_assets.domain.statistics import PASS, mean
from harbor_assets.domain.views import told_try

BINS = 10  # of the unit interval, where rewards are meant to lie
SIDE_REWARDS_MAX = 12  # of one trial on the page; the bundle has all of them
EARLIER_MAX = 5  # tries of one trial that are told of on the page; the bundle has all of them
LINKS_MAX = 12  # of one trial; the folder's own link leads to everything

_LINKED = {
    "verifier/test-stdout.txt": "tests",
    "verifier/test-stderr.txt": "test errors",
    "verifier/reward.txt": "reward.txt",
    "verifier/reward.json": "reward.json",
    "exception.txt": "exception",
    "trial.log": "log",
    "result.json": "result",
    "agent/oracle.txt": "agent",
    "agent/trajectory.json": "trajectory",
}


@dataclass(frozen=True, slots=True)
class Link:
    """A file or folder of the evidence; `path` is relative to the bundle, not yet encoded."""

    label: str
    path: str


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of the distribution. `kind`: `reward`, `outside` (below 0 or above 1) or `none` (no reward)."""

    label: str
    count: int
    kind: str


@dataclass(frozen=True, slots=True)
class ReportRow:
    """One planned trial. `reward` is None unless it was scored; `side_rewards` are the first of the other names the
    verifier gave, by name. `earlier` tells of the tries that were followed by another. Seconds."""

    trial_id: str
    index: int
    task: str
    native_task_id: str
    k: int
    outcome: Outcome
    reason: str
    reward: float | None
    duration_sec: float | None
    message: str | None
    flags: tuple[str, ...]
    side_rewards: tuple[tuple[str, float], ...]
    tries: int
    earlier: tuple[str, ...]
    links: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One trial of a task, as its mark beside the others."""

    k: int
    trial_id: str
    outcome: Outcome
    reward: float | None


@dataclass(frozen=True, slots=True)
class TaskRow:
    """The trials of a task, by k. `mean` is over the scored ones, None without any; `passes`: rewards of 1 or more."""

    task: str
    native_task_id: str
    attempts: tuple[Attempt, ...]
    scored: int
    passes: int
    mean: float | None


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a report shows. `rows` and `tasks` may be read more than once. `finished_at` is when the run ended."""

    plan: RunPlan
    phase: RunPhase
    started_at: datetime | None
    finished_at: datetime | None
    summary: OutcomeSummary
    bars: Sequence[Bar]
    rows: Iterable[ReportRow]
    tasks: Iterable[TaskRow]

    @property
    def duration_sec(self) -> float | None:
        if self.started_at is None or self.finished_at is None:
            return None
        return max(0.0, (self.finished_at - self.started_at).total_seconds())


def duration(row: TrialOutcome) -> float | None:
    """How long the try that counts took, in seconds; None if it never ran or nobody saw its end."""
    return row.tries[-1].seconds if row.tries else None


def report_row(row: TrialOutcome, files: Iterable[tuple[str, int]]) -> ReportRow:
    """The report's row of a trial. `files`: what its folder holds, as (path relative to the folder, bytes)."""
    return ReportRow(
        trial_id=row.trial_id,
        index=row.index,
        task=row.task,
        native_task_id=row.native_task_id,
        k=row.k,
        outcome=row.outcome,
        reason=row.reason.value,
        reward=row.reward,
        duration_sec=duration(row),
        message=row.message,
        flags=row.flags,
        side_rewards=tuple(sorted((k, v) for k, v in row.rewards.items() if k != row.reward_key)[:SIDE_REWARDS_MAX]),
        tries=len(row.tries),
        earlier=tuple(told_try(tried.reason, tried.reward, tried.cost) for tried in row.tries[:-1][:EARLIER_MAX]),
        links=tuple(_links(row, {path for path, size in files if size})),
    )


def task_rows(rows: Iterable[TrialOutcome]) -> Iterator[TaskRow]:
    """One row per task, for outcome rows sorted by (index, k)."""
    for _, group in groupby(rows, key=attrgetter("index")):
        trials = list(group)
        rewards = [row.reward for row in trials if row.reward is not None]
        yield TaskRow(
            task=trials[0].task,
            native_task_id=trials[0].native_task_id,
            attempts=tuple(Attempt(row.k, row.trial_id, row.outcome, row.reward) for row in trials),
            scored=len(rewards),
            passes=sum(reward >= PASS for reward in rewards),
            mean=mean(rewards),
        )


def _links(row: TrialOutcome, present: set[str]) -> Iterable[Link]:
    """Files known to be text, empty ones left out, then the folder itself and what lost tries left.

    Nothing else of the evidence is linked by name: a page that an agent wrote would be opened as one.
    """
    links = [Link(label, path) for path, label in _LINKED.items() if path in present]
    for path in sorted(present):
        steps, _, rest = path.partition("/")
        step, _, file = rest.partition("/")
        if steps == "steps" and file in _LINKED:
            links.append(Link(f"{step}: {_LINKED[file]}", path))
    folder = row.evidence
    if folder:
        yield from (Link(link.label, f"{folder}/{link.path}") for link in links[:LINKS_MAX])
        yield Link("folder", f"{folder}/")
    for number, lost in enumerate(row.tries[:-1], start=1):
        if lost.leftovers and lost.leftovers != folder:
            yield Link(f"try {number}", f"{lost.leftovers}/")


def distribution(rows: Iterable[TrialOutcome]) -> list[Bar]:
    """How rewards are spread: tenths of [0, 1], what lies outside if anything does, and trials without a reward."""
    tenths, below, above, missing = [0] * BINS, 0, 0, 0
    for row in rows:
        if row.reward is None:
            missing += 1
        elif row.reward < 0:
            below += 1
        elif row.reward > 1:
            above += 1
        else:
            tenths[min(math.floor(row.reward * BINS), BINS - 1)] += 1
    bars = [Bar(f"{i / BINS:.1f}–{(i + 1) / BINS:.1f}", count, "reward") for i, count in enumerate(tenths)]
    return [
        *([Bar("below 0", below, "outside")] if below else []),
        *bars,
        *([Bar("above 1", above, "outside")] if above else []),
        *([Bar("no reward", missing, "none")] if missing else []),
    ]
