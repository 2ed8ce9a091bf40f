"""What others are told when a run has ended: that it has, that it failed, that it is worse than the one before. Pure.

A notice holds names, figures and phases, and no text that a task, an agent or an exception wrote.
"""

import statistics
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from harbor_assets.domain.benchmarks import DayOf, Spent
from harbor_assets.domain.outcomes import Frozen, TrialOutcome
from harbor_assets.domain.paired import ALPHA, difference_interval, paired_test
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.domain.policies import account
from harbor_assets.domain.runs import Run
from harbor_assets.domain.text import visible

Format = Literal["generic", "slack"]
FORMATS: tuple[Format, ...] = ("generic", "slack")
NAME_MAX = 200  # characters of a name in a sentence


class Event(StrEnum):
    """The closed list of what is told."""

    ENDED = "ended"  # completed, cancelled or expired
    FAILED = "failed"  # no trial was scored, or the results could not be merged
    REGRESSED = "regressed"  # beside one of the others


class Figures(Frozen):
    """What a run gave. Unknown stays None, never 0."""

    mean: float | None
    mean_low: float | None
    mean_high: float | None
    trials_scored: int
    trials_planned: int
    cost_usd: float | None


class Regression(Frozen):
    """The run is worse than `against`, by `difference` over the tasks that have a score in both; the interval, at 95 %,
    lies below zero."""

    against: str
    before: float
    after: float
    difference: float
    low: float
    high: float
    tasks: int


class Notice(Frozen):
    """`id` is the same whenever the same thing is told: whoever gets it twice can drop the second."""

    id: str
    event: Event
    at: datetime
    workspace: str
    run_id: str
    phase: RunPhase
    result_state: ResultState
    owner: str
    agent: str
    taskset: str
    sandbox: str
    figures: Figures
    benchmark: str | None = None
    day: str | None = None
    regression: Regression | None = None

    def text(self) -> str:
        """In a sentence."""
        figures = self.figures
        who = f"{_name(self.agent)} on {_name(self.taskset.partition('#')[0])}"
        day = f" ({self.benchmark}, {self.day})" if self.benchmark else ""
        if self.event is Event.REGRESSED and self.regression:
            found = self.regression
            interval = f"{found.low:+.4f} to {found.high:+.4f}"
            return (
                f"{self.run_id}{day} is worse than {found.against}: {who}, mean {found.after:.4f} after "
                f"{found.before:.4f} over {found.tasks} tasks (difference {found.difference:+.4f}, 95 % {interval})"
            )
        mean = "no score" if figures.mean is None else f"mean {figures.mean:.4f}"
        cost = "" if figures.cost_usd is None else f", {figures.cost_usd:.2f} USD"
        merged = ", its results could not be merged" if self.result_state is ResultState.FAILED else ""
        return (
            f"{self.run_id}{day} {self.phase}: {who}, {mean}, scored {figures.trials_scored} of "
            f"{figures.trials_planned} trials{cost}{merged}"
        )

    def body(self, form: Format) -> dict[str, Any]:
        """What is sent. Slack reads `<`, `>` and `&` as commands; nothing else of its markup is read."""
        if form == "slack":
            escaped = self.text().replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
            return {"text": escaped, "mrkdwn": False, "unfurl_links": False, "unfurl_media": False}
        return {**self.model_dump(mode="json"), "text": self.text()}


def notice_of(run: Run, rows: Sequence[TrialOutcome], day: DayOf | None) -> Notice:
    """The notice that an ended run has ended, or failed."""
    plan, summary, spent = run.plan, account(rows), Spent.on(rows)
    scored = summary.policies.scored_only
    within = scored.mean_interval
    failed = run.phase is RunPhase.FAILED or run.result_state is ResultState.FAILED
    event = Event.FAILED if failed else Event.ENDED
    return Notice(
        id=f"{run.id}/{event}",
        event=event,
        at=run.ended_at or run.created_at,
        workspace=plan.workspace,
        run_id=run.id,
        phase=run.phase,
        result_state=run.result_state,
        owner=plan.owner,
        agent=plan.agent.name,
        taskset=plan.taskset_ref,
        sandbox=plan.sandbox.kind,
        figures=Figures(
            mean=scored.mean,
            mean_low=within.low if within else None,
            mean_high=within.high if within else None,
            trials_scored=scored.coverage.trials,
            trials_planned=summary.planned,
            cost_usd=spent.usd if spent.unknown < summary.planned else None,
        ),
        benchmark=day.benchmark if day else None,
        day=day.day if day else None,
    )


def regressed(notice: Notice, found: Regression) -> Notice:
    """The notice of a regression beside that of the end."""
    event = Event.REGRESSED
    return notice.model_copy(update={"id": f"{notice.run_id}/{event}", "event": event, "regression": found})


def regression(before: Sequence[TrialOutcome], after: Sequence[TrialOutcome], against: str) -> Regression | None:
    """Whether `after` is worse than `before`, the rows of the run `against`, by more than chance explains."""
    old, new = _by_task(before), _by_task(after)
    both = sorted(old.keys() & new.keys())
    a, b = [new[ref] for ref in both], [old[ref] for ref in both]
    interval = difference_interval(a, b)
    # By the test that ranks and comparisons go by. The interval, which is approximate, must not speak against it.
    if interval is None or interval.high >= 0 or paired_test(a, b).p >= ALPHA:
        return None
    one, other = statistics.fmean(b), statistics.fmean(a)
    return Regression(
        against=against,
        before=one,
        after=other,
        difference=other - one,
        low=interval.low,
        high=interval.high,
        tasks=len(both),
    )


def _by_task(rows: Sequence[TrialOutcome]) -> dict[str, float]:
    """task -> the mean over its scored trials."""
    rewards: dict[str, list[float]] = {}
    for row in rows:
        if row.reward is not None:
            rewards.setdefault(row.task_ref, []).append(row.reward)
    return {ref: statistics.fmean(values) for ref, values in rewards.items()}


def _name(text: str) -> str:
    return visible(text[:NAME_MAX])
