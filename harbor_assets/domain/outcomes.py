"""What became of a trial. Every planned trial ends in exactly one outcome, and every number is derived from these rows.

Two statements are kept apart: is there a valid reward (`reward`), and what happened (`outcome`, `reason`, `error`).
An infrastructure failure is never a zero: only `scored` rows carry a reward.
"""

import math
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Outcome(StrEnum):
    """The seven endings of a planned trial."""

    SCORED = "scored"
    VERIFIER_FAILED = "verifier_failed"
    INFRA_FAILED = "infra_failed"
    AGENT_SETUP_FAILED = "agent_setup_failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    NOT_STARTED = "not_started"


class Reason(StrEnum):
    """Why a trial ended as it did: the closed list. Each belongs to exactly one outcome (`OUTCOME_OF`)."""

    GRADED = "graded"
    GRADED_AFTER_AGENT_ERROR = "graded_after_agent_error"
    GRADED_AFTER_AGENT_TIMEOUT = "graded_after_agent_timeout"
    GRADED_AFTER_MEMORY_LIMIT = "graded_after_memory_limit"

    VERIFIER_TIMEOUT = "verifier_timeout"
    VERIFIER_ERROR = "verifier_error"
    REWARD_MISSING = "reward_missing"
    REWARD_EMPTY = "reward_empty"
    REWARD_UNREADABLE = "reward_unreadable"
    REWARD_NOT_A_NUMBER = "reward_not_a_number"
    REWARD_NOT_FINITE = "reward_not_finite"
    REWARD_KEY_MISSING = "reward_key_missing"
    REWARDS_CONTRADICT = "rewards_contradict"

    IMAGE_BUILD = "image_build"
    IMAGE_PULL = "image_pull"
    SCHEDULING = "scheduling"
    EVICTED = "evicted"
    PREEMPTED = "preempted"
    NODE_LOST = "node_lost"
    SANDBOX_START = "sandbox_start"
    SANDBOX_LOST = "sandbox_lost"
    OUT_OF_MEMORY = "out_of_memory"
    STORAGE = "storage"
    TASK_UNREADABLE = "task_unreadable"
    WORKER_LOST = "worker_lost"
    PROVIDER_REFUSED = "provider_refused"
    UNCLASSIFIED = "unclassified"

    AGENT_SETUP_TIMEOUT = "agent_setup_timeout"
    AGENT_SETUP_ERROR = "agent_setup_error"

    CANCELLED_BY_USER = "cancelled_by_user"
    RUN_DEADLINE = "run_deadline"
    QUEUE_TIMEOUT = "queue_timeout"
    NEVER_STARTED = "never_started"
    RUN_STOPPED = "run_stopped"
    WORK_NOT_KEPT = "work_not_kept"


_REASONS: dict[Outcome, tuple[Reason, ...]] = {
    Outcome.SCORED: (
        Reason.GRADED,
        Reason.GRADED_AFTER_AGENT_ERROR,
        Reason.GRADED_AFTER_AGENT_TIMEOUT,
        Reason.GRADED_AFTER_MEMORY_LIMIT,
    ),
    Outcome.VERIFIER_FAILED: (
        Reason.VERIFIER_TIMEOUT,
        Reason.VERIFIER_ERROR,
        Reason.REWARD_MISSING,
        Reason.REWARD_EMPTY,
        Reason.REWARD_UNREADABLE,
        Reason.REWARD_NOT_A_NUMBER,
        Reason.REWARD_NOT_FINITE,
        Reason.REWARD_KEY_MISSING,
        Reason.REWARDS_CONTRADICT,
    ),
    Outcome.INFRA_FAILED: (
        Reason.IMAGE_BUILD,
        Reason.IMAGE_PULL,
        Reason.SCHEDULING,
        Reason.EVICTED,
        Reason.PREEMPTED,
        Reason.NODE_LOST,
        Reason.SANDBOX_START,
        Reason.SANDBOX_LOST,
        Reason.OUT_OF_MEMORY,
        Reason.STORAGE,
        Reason.TASK_UNREADABLE,
        Reason.WORKER_LOST,
        Reason.PROVIDER_REFUSED,
        Reason.UNCLASSIFIED,
    ),
    Outcome.AGENT_SETUP_FAILED: (Reason.AGENT_SETUP_TIMEOUT, Reason.AGENT_SETUP_ERROR),
    Outcome.CANCELLED: (Reason.CANCELLED_BY_USER,),
    Outcome.EXPIRED: (Reason.RUN_DEADLINE, Reason.QUEUE_TIMEOUT),
    Outcome.NOT_STARTED: (Reason.NEVER_STARTED, Reason.RUN_STOPPED, Reason.WORK_NOT_KEPT),
}
OUTCOME_OF: dict[Reason, Outcome] = {reason: outcome for outcome, reasons in _REASONS.items() for reason in reasons}


class Frozen(BaseModel):
    """Base of the stored records: immutable, and unknown members are an error rather than lost."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class TrialError(Frozen):
    """An error as its producer reported it. `message` and `traceback` are cut; `type` is never blank."""

    type: str = Field(min_length=1)
    message: str | None = None
    traceback: str | None = None
    occurred_at: str | None = None


class Measurements(Frozen):
    """What a trial used. Unknown stays None, never 0. Seconds, US dollars, tokens."""

    prompt_tokens: int | None = Field(default=None, ge=0)
    completion_tokens: int | None = Field(default=None, ge=0)
    cache_read_tokens: int | None = Field(default=None, ge=0)
    runtime_sec: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    cost_usd: float | None = Field(default=None, ge=0, allow_inf_nan=False)


def _nothing(value: object) -> bool:
    return value is None


class Try(Frozen):
    """One execution of a trial. A lost worker adds a try, and so does a retry (`domain/retries.py`).

    `reason`: how an earlier try ended that was tried again; None of the last one, which is the row's, and of one that
    was lost. `reward`: what the verifier gave in this try; only that of a scored row's last try counts.
    What was added after rows were stored is left out where it is empty: bundles of before are to stay as they are.
    """

    start: datetime
    end: datetime | None = None  # None: the worker was lost, nobody saw the end
    cost: float | None = None
    error: TrialError | None = None
    leftovers: str | None = None  # where this try's folder is kept, relative to the bundle
    reason: Reason | None = None
    reward: float | None = Field(default=None, allow_inf_nan=False, exclude_if=_nothing)
    prompt_tokens: int | None = Field(default=None, ge=0, exclude_if=_nothing)
    completion_tokens: int | None = Field(default=None, ge=0, exclude_if=_nothing)
    cache_read_tokens: int | None = Field(default=None, ge=0, exclude_if=_nothing)

    @property
    def seconds(self) -> float | None:
        """How long it took; None if nobody saw its end. Not below 0, also where a clock was set back meanwhile."""
        return max(0.0, (self.end - self.start).total_seconds()) if self.end else None


class TrialOutcome(Frozen):
    """One row of the account: what became of trial (task, k) of a run.

    `task` is the stored name, `task_ref` the pinned reference `ws/name#digest`, `native_task_id` the suite's own name,
    `index` the task's position in the run's taskset, `k` counts from 1. `evidence` is the trial
    folder, a POSIX path relative to the bundle, or None if no folder was made. `flags` are remarks that change no
    outcome (`domain/flags.py`).
    """

    run_id: str
    index: int = Field(ge=0)
    task: str
    task_ref: str
    native_task_id: str
    k: int = Field(ge=1)
    trial_id: str
    outcome: Outcome
    reason: Reason
    message: str | None = None
    reward: float | None = None
    reward_key: str = "reward"
    rewards: dict[str, float] = {}
    reward_rejections: dict[str, str] = {}
    reward_entry_rejections: tuple[str, ...] = ()  # of entries whose name cannot be shown
    flags: tuple[str, ...] = ()
    error: TrialError | None = None
    trial_key: str
    tries: tuple[Try, ...] = ()
    measurements: Measurements = Measurements()
    evidence: str | None = None
    details: dict[str, Any] = {}  # sandbox facts: substituted image, limits that could not be set, layers

    @model_validator(mode="after")
    def _one_story(self) -> Self:
        if OUTCOME_OF[self.reason] is not self.outcome:
            raise ValueError(f"reason {self.reason} does not belong to outcome {self.outcome}")
        if (self.reward is not None) != (self.outcome is Outcome.SCORED):
            raise ValueError("exactly the scored trials have a reward")
        if self.reward is not None and not math.isfinite(self.reward):
            raise ValueError("a reward is a finite number")
        return self
