"""What the service answers about lists and runs: the shapes of its JSON, shared by API, SDK and CLI."""

from datetime import datetime

from pydantic import Field

from harbor_assets.domain.marks import Mark
from harbor_assets.domain.outcomes import Frozen, TrialOutcome
from harbor_assets.domain.phases import ResultState, RunPhase, TaskPhase
from harbor_assets.domain.plans import SkippedTask
from harbor_assets.domain.publication import Publication
from harbor_assets.domain.waiting import Wait


class Pagination(Frozen):
    """Where a page stands in its list. `total_pages` is 0 when there is nothing."""

    page: int
    page_size: int
    current_page_size: int
    total_pages: int
    total_results: int


class RunSummary(Frozen):
    """One run in a list or a status. `counts`: outcomes so far, only those above zero. Times are UTC.

    `min_coverage`: the share of its trials that is asked to be scored, if one is. `rerun_of`: the run whose tasks this
    one runs again. `publication`: where its trials appear, if anywhere. `waiting`: what keeps the run as a whole from
    being at work; told in a status, not in lists. `marks`: what is said of it or of its tasks; `stale`: a person said
    that one of these is bad (docs/lineage.md).
    """

    id: str
    workspace: str
    rerun_of: str | None = None
    regrade_of: str | None = None
    phase: RunPhase
    result_state: ResultState
    taskset_ref: str
    publication: Publication | None = Field(default=None, exclude_if=lambda value: value is None)
    agent: str
    reward_key: str = "reward"
    min_coverage: float | None = None
    sandbox: str
    sandbox_why: str
    sandbox_notes: tuple[str, ...] = ()
    owner: str
    n_tasks: int
    n_trials: int
    n_concurrent: int
    counts: dict[str, int]
    waiting: Wait | None = None
    skipped: tuple[SkippedTask, ...] = ()
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    deadline: datetime | None
    cancel_requested_at: datetime | None
    executions: int
    error: str | None
    stale: bool = False
    marks: tuple[Mark, ...] = ()


class EarlierTry(Frozen):
    """A try that was followed by another. `reason`: None of one whose worker was lost. Its reward never counts."""

    reason: str | None
    reward: float | None = None
    cost_usd: float | None = None
    duration_sec: float | None = None


class TrialView(Frozen):
    """One ended trial of a task, short. `rewards` holds every name the verifier gave, the run's reward key too; `flags`
    are remarks that change no outcome (`domain/flags.py`); `n_tries` counts retries and lost workers too, of which
    `earlier` tells."""

    k: int
    outcome: str
    reason: str
    reward: float | None
    rewards: dict[str, float] = {}
    flags: tuple[str, ...] = ()
    message: str | None
    duration_sec: float | None
    n_tries: int = 1
    earlier: tuple[EarlierTry, ...] = ()


class TaskView(Frozen):
    """One task of a run. `running`: trials at work now (0 on an ended run); `waiting`: why it, or its sandbox, is not
    at work yet, where anybody knows; `marks`: what is known of the task's revision now (`domain/marks.py`)."""

    index: int
    task: str
    task_ref: str
    native_task_id: str
    phase: TaskPhase
    n_trials: int
    running: int
    waiting: Wait | None = None
    outcomes: tuple[TrialView, ...]
    marks: tuple[Mark, ...] = ()


class RunStatus(Frozen):
    """The answer of status: the run, and every task of it. `marks`: of the run itself."""

    run: RunSummary
    tasks: tuple[TaskView, ...]
    marks: tuple[Mark, ...] = ()


class Submitted(Frozen):
    """The answer of a submit. `created` is False if the idempotency key named this run before.

    `already_running`: the owner's other active runs of the same taskset. They do not block this one. `marks`: what
    warned of its tasks when it was accepted. `not_kept`: of a regrade, the tasks with trials of which nothing is kept,
    as far as that is known before they are looked at.
    """

    run: RunSummary
    created: bool
    already_running: tuple[str, ...] = ()
    marks: tuple[Mark, ...] = ()
    not_kept: tuple[str, ...] = ()


class BundleFile(Frozen):
    """One file of a bundle or trial folder: its path relative to the bundle and its size in bytes."""

    path: str
    size: int = Field(ge=0)


class LogChunk(Frozen):
    """A piece of a log. Ask again with `next_offset`; `done`: nothing more will come.

    `size`: bytes of the whole log so far, told with its first piece. Who wants the end of it asks from there.
    `waiting`: where there is no text yet, what is waited for.
    """

    text: str
    next_offset: int = Field(ge=0)
    done: bool
    size: int | None = None
    waiting: Wait | None = None


def told_try(reason: str | None, reward: float | None, cost_usd: float | None) -> str:
    """An earlier try in a few words: why it was tried again, what it gave that does not count, what it cost."""
    said = [reason or "worker lost"]
    if reward is not None:
        said.append(f"reward {reward:g}, not counted")
    if cost_usd is not None:
        said.append(f"{cost_usd:g} USD")
    return "; ".join(said)


def trial_view(row: TrialOutcome) -> TrialView:
    """The short form of an outcome row."""
    return TrialView(
        k=row.k,
        outcome=row.outcome,
        reason=row.reason,
        reward=row.reward,
        rewards=row.rewards,
        flags=row.flags,
        message=row.message,
        duration_sec=row.tries[-1].seconds if row.tries else None,
        n_tries=max(1, len(row.tries)),
        earlier=tuple(
            EarlierTry(
                reason=tried.reason,
                reward=tried.reward,
                cost_usd=tried.cost,
                duration_sec=tried.seconds,
            )
            for tried in row.tries[:-1]
        ),
    )
