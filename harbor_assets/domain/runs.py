"""A run as the catalog keeps it: its plan, how far it has come, and how it ended."""

from datetime import datetime, timedelta

from pydantic import Field

from harbor_assets.domain.admission import Admission
from harbor_assets.domain.outcomes import Frozen, Outcome
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.domain.plans import RunPlan

MAX_LOST_WORKERS = 3  # lost without progress between them: a crash loop, not bad luck


class RunMarks(Frozen):
    """What may end a run early, as far as it changes while trials are under way."""

    started_at: datetime | None = None
    cancel_requested_at: datetime | None = None


class Run(Frozen):
    """One evaluation run.

    `executions` counts the workers that took it up; `lost_workers` those lost in a row without a new outcome.
    `started_at` is when the first trial got a slot: the deadline counts from there.
    """

    plan: RunPlan
    phase: RunPhase
    result_state: ResultState
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    executions: int = Field(default=0, ge=0)
    lost_workers: int = Field(default=0, ge=0)
    error: str | None = None
    admission: Admission = Admission()

    @property
    def id(self) -> str:
        return self.plan.run_id

    @property
    def deadline(self) -> datetime | None:
        """When the run's time budget ends: counted from the first slot, None before it."""
        return self.started_at + timedelta(seconds=self.plan.timeout_seconds) if self.started_at else None


class Tally(Frozen):
    """How much there is: runs by phase and trials by outcome, all of them with their zeros, of every workspace.

    `waiting_since` is when the oldest run was accepted that has no slot yet; None: none waits.
    """

    runs: dict[RunPhase, int]
    trials: dict[Outcome, int]
    waiting_since: datetime | None = None


def bundle_key(run_id: str) -> str:
    """Where a run's bundle lies in the artifact store, its trial folders included."""
    return f"runs/{run_id}/agent-eval-results"
