"""Phases of tasks and runs, the state of the merged result, and the exit codes that tell of them. Pure tables."""

from collections.abc import Iterable, Sequence
from enum import IntEnum, StrEnum

from harbor_assets.domain.outcomes import Outcome


class TaskPhase(StrEnum):
    """Where one task of a run stands."""

    REGISTERED = "registered"
    IMAGE_READY = "image_ready"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class RunPhase(StrEnum):
    """Where a run stands. A terminal phase never changes again."""

    ACCEPTED = "accepted"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def terminal(self) -> bool:
        return self not in (RunPhase.ACCEPTED, RunPhase.RUNNING)


class ResultState(StrEnum):
    """Where the merged bundle stands. Final at the same moment as the run's phase."""

    PENDING = "pending"
    READY = "ready"
    FAILED = "failed"
    NONE = "none"


class ExitCode(IntEnum):
    """What a command says to the shell."""

    OK = 0  # every planned trial scored (or: the command did what it was asked)
    FAULT = 1  # our own fault
    REFUSED = 2  # refused, or wrong usage
    SOME_SCORED = 3
    NONE_SCORED = 4  # or the run failed
    CANCELLED = 5
    EXPIRED = 6
    GATE = 7  # a condition of --fail-if holds
    IDEMPOTENCY_CONFLICT = 9
    INTERRUPTED = 130  # the run goes on


def task_phase(outcomes: Iterable[Outcome]) -> TaskPhase:
    """The phase of a task all of whose trials have ended in `outcomes`."""
    seen = set(outcomes)
    if Outcome.SCORED in seen:
        return TaskPhase.SUCCEEDED
    if Outcome.CANCELLED in seen:
        return TaskPhase.CANCELLED
    if Outcome.EXPIRED in seen:
        return TaskPhase.EXPIRED
    return TaskPhase.FAILED


def run_phase(tasks: Iterable[TaskPhase], *, cancelled: bool, expired: bool) -> RunPhase:
    """The terminal phase of a run. `cancelled`, `expired`: a cancel or the deadline came before its own end."""
    if cancelled:
        return RunPhase.CANCELLED
    if expired:
        return RunPhase.EXPIRED
    return RunPhase.COMPLETED if TaskPhase.SUCCEEDED in set(tasks) else RunPhase.FAILED


def result_state(tasks: Iterable[TaskPhase], *, merged: bool) -> ResultState:
    """The final state of the merged result; `merged`: the bundle was written."""
    if TaskPhase.SUCCEEDED not in set(tasks):
        return ResultState.NONE
    return ResultState.READY if merged else ResultState.FAILED


def exit_code(phase: RunPhase, outcomes: Sequence[Outcome]) -> ExitCode:
    """The exit code of `--wait` and `--watch` for an ended run with these outcomes, one per planned trial."""
    if phase is RunPhase.CANCELLED:
        return ExitCode.CANCELLED
    if phase is RunPhase.EXPIRED:
        return ExitCode.EXPIRED
    scored = outcomes.count(Outcome.SCORED)
    if phase is RunPhase.FAILED or scored == 0:
        return ExitCode.NONE_SCORED
    return ExitCode.OK if scored == len(outcomes) else ExitCode.SOME_SCORED
