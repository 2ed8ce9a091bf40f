"""From what a trial left behind to its ending: which outcome, for which reason, with which evidence. Pure.

The rules, in the order they are asked:

1. Was the trial never set up (task or image at fault)? Then it is an infrastructure failure.
2. Was a sandbox lost, or the disk full? Then nothing that follows can be trusted, whatever was graded.
3. Did the agent's installation fail, and nothing was graded? Then that is what happened.
4. Did the model's provider refuse the key, or was its budget spent? Then the agent was kept from working: no score.
5. Did the verifier run to its end? Then its reward files decide, and only they.
6. Else the verifier is at fault, or the cause is unknown: `unclassified`, with the evidence, never a score.

An agent that errored or ran out of time is still graded: the reward stands, and the error stands beside it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from harbor_assets.domain.flags import Remark, flags_of
from harbor_assets.domain.outcomes import Measurements, Reason, TrialError
from harbor_assets.domain.rewards import RewardVerdict

MESSAGE_MAX = 2000  # characters of evidence kept in a row; the trial folder holds the rest
TRACEBACK_MAX = 8192  # the bundle contract's own cut

_IMAGE_ERRORS = frozenset({"LayerBuildError", "DockerfileUnsupported", "SandboxBuildFailedError"})
DISK_ERRORS = frozenset({"SandboxDiskFull", "StorageFull"})
# Of sandboxes that were there and are gone, and what became of them.
_LOST: dict[str, Reason] = {
    "SandboxLost": Reason.SANDBOX_LOST,
    "ControlPlaneError": Reason.SANDBOX_LOST,  # nothing is known of it any more
    "SandboxDeadline": Reason.SANDBOX_LOST,
    "SandboxEvicted": Reason.EVICTED,
    "SandboxPreempted": Reason.PREEMPTED,
    "SandboxNodeLost": Reason.NODE_LOST,
    "SandboxOutOfMemory": Reason.OUT_OF_MEMORY,
}
# Of sandboxes that never were ready.
_NEVER_READY: dict[str, Reason] = {
    "SandboxImagePullError": Reason.IMAGE_PULL,
    "SandboxUnschedulable": Reason.SCHEDULING,
    "SandboxStartError": Reason.SANDBOX_START,
    "EnvironmentStartTimeoutError": Reason.SANDBOX_START,
}
START_ERRORS = frozenset(name for name, reason in _NEVER_READY.items() if reason is Reason.SANDBOX_START)
LOST_ERRORS = frozenset(_LOST)
# Harbor's and LiteLLM's names of errors that every trial of the run would meet: a bad key, or a budget that is spent.
_REFUSED = frozenset({"AgentAuthenticationError", "AuthenticationError", "BudgetExceededError", "ApiUsageLimitError"})
# Those that may mean that, or something which passes or is the request's own: what the provider said decides.
_PERHAPS_REFUSED = frozenset(
    """ApiError APIError APIStatusError ApiRateLimitError RateLimitError UnknownApiError BadRequestError
    PermissionDeniedError""".split()
)
_REFUSAL = re.compile(
    r"insufficient.?quota|exceeded your current quota|credit balance is too low|no credits remaining|unpaid invoice"
    r"|billing.{0,20}(hard limit|not active)|payment required|budget has been exceeded|exceeded.{0,20}budget"
    r"|invalid.?api.?key|incorrect api key|(status|error)(.code)?\W{1,3}40[12]\b",
    re.IGNORECASE,
)
# A limit for a moment, or a repository's password rather than a model's
_PASSES = re.compile(r"per.?minute|(retry|try again) in \d|could not read Username", re.IGNORECASE)
_VERIFIER_TRANSFER_ERRORS = frozenset({"AddTestsDirError", "DownloadVerifierDirError"})
_DISK_FULL_TEXT = "[Errno 28]"  # ENOSPC, as Python prints it


@dataclass(frozen=True, slots=True)
class TrialFacts:
    """What is known of a trial that came to an end by itself.

    `create_error`: the trial could not even be made. `*_began`: that phase was entered. `verifier_timed_out`: it used
    up its time. `verdict`: the reward files, judged; None if the verifier never ran to its end. `step_unprepared`: a
    step of the task could not be set up. `agent_failed`: the agent reported no error and yet did not end well (the
    reference solution's exit code). `remarks` are kept whatever the ending is.
    """

    create_error: TrialError | None = None
    error: TrialError | None = None
    agent_setup_began: bool = False
    agent_began: bool = False
    verifier_began: bool = False
    verifier_finished: bool = False
    verifier_timed_out: bool = False
    verdict: RewardVerdict | None = None
    step_unprepared: bool = False
    agent_failed: bool = False
    memory_kills: int = 0
    remarks: tuple[Remark, ...] = ()
    measurements: Measurements = field(default_factory=Measurements)
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a trial ended: the part of its outcome row that its own traces decide. `uncounted`: a reward that the
    verifier gave and that is no score, since what happened beside it leaves nothing to trust."""

    reason: Reason
    message: str | None = None
    reward: float | None = None
    uncounted: float | None = None
    rewards: dict[str, float] = field(default_factory=dict)
    reward_rejections: dict[str, str] = field(default_factory=dict)
    reward_entry_rejections: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    error: TrialError | None = None
    measurements: Measurements = field(default_factory=Measurements)
    details: dict[str, Any] = field(default_factory=dict)


def cut(text: str | None, limit: int = MESSAGE_MAX) -> str | None:
    """At most `limit` characters, the cut said."""
    if text is None or len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text) - limit} more characters)"


def trial_error(kind: str, message: str, traceback: str | None = None, occurred_at: str | None = None) -> TrialError:
    """An error fit for a row: never blank, cut to the contract's lengths (the end of a traceback is its point)."""
    return TrialError(
        type=kind or "UnknownException",
        message=cut(message),
        traceback=traceback[-TRACEBACK_MAX:] if traceback else None,
        occurred_at=occurred_at,
    )


def decisive(errors: Sequence[TrialError]) -> TrialError | None:
    """Which of a trial's errors, in the order they came, decides its ending: a lost sandbox or a full disk in a later
    step must not hide behind an agent that ran out of time in an earlier one."""
    return next((e for e in errors if e.type in DISK_ERRORS or e.type in _LOST), errors[0] if errors else None)


def classify(facts: TrialFacts) -> Ending:
    """The ending of a trial. Never raises: what fits no rule is `unclassified`."""
    error = facts.create_error or facts.error
    reason, message = _failure(facts, error)
    seen = [remark.sentence for remark in facts.remarks]
    if reason is not None:
        return Ending(
            reason=reason,
            uncounted=facts.verdict.reward if facts.verdict else None,
            message=cut("; ".join([*([message] if message else []), *seen])) or None,
            flags=flags_of(*facts.remarks),
            error=error,
            measurements=facts.measurements,
            details=facts.details,
            reward_rejections=dict(facts.verdict.rejections) if facts.verdict else {},
            reward_entry_rejections=facts.verdict.entry_rejections if facts.verdict else (),
        )
    assert facts.verdict is not None
    return Ending(
        reason=_graded(facts),
        message=cut("; ".join([*([error.message] if error and error.message else []), *seen])) or None,
        reward=facts.verdict.reward,
        rewards=dict(facts.verdict.rewards),
        reward_rejections=dict(facts.verdict.rejections),
        reward_entry_rejections=facts.verdict.entry_rejections,
        flags=tuple(dict.fromkeys((*facts.verdict.flags, *flags_of(*facts.remarks)))),
        error=error,
        measurements=facts.measurements,
        details=facts.details,
    )


def _graded(facts: TrialFacts) -> Reason:
    if facts.memory_kills and (facts.error or facts.agent_failed):
        return Reason.GRADED_AFTER_MEMORY_LIMIT
    if facts.error is None:
        return Reason.GRADED
    if facts.error.type == "AgentTimeoutError":
        return Reason.GRADED_AFTER_AGENT_TIMEOUT
    return Reason.GRADED_AFTER_AGENT_ERROR


def _failure(facts: TrialFacts, error: TrialError | None) -> tuple[Reason | None, str | None]:
    """The reason and message of a trial that has no valid reward; (None, None) if it has one."""
    said = f"{error.type}: {error.message or ''}".strip().rstrip(":") if error else None
    if error and (reason := _infrastructure(facts, error)):
        return reason, said
    if error and _provider_refused(error):
        return Reason.PROVIDER_REFUSED, said
    if not facts.verifier_began:
        return Reason.UNCLASSIFIED, said or "the trial ended before it was graded, and left no error"
    if facts.verifier_timed_out or (error and error.type == "VerifierTimeoutError"):
        return Reason.VERIFIER_TIMEOUT, said or "the verifier used up its time"
    if facts.verdict is None or not facts.verifier_finished:
        return Reason.VERIFIER_ERROR, said or "the verifier did not run to its end"
    if facts.verdict.reason is not None:
        return facts.verdict.reason, facts.verdict.message
    return None, None


def _provider_refused(error: TrialError) -> bool:
    """Whether the model's provider will have none of the run: whatever was graded then is the work of an agent that
    was kept from working."""
    said = f"{error.message or ''}\n{error.traceback or ''}"
    if _PASSES.search(said):
        return False
    return error.type in _REFUSED or (error.type in _PERHAPS_REFUSED and _REFUSAL.search(said) is not None)


def _infrastructure(facts: TrialFacts, error: TrialError) -> Reason | None:
    traces = f"{error.message or ''}\n{error.traceback or ''}"
    wrapped = traces if error.type in _VERIFIER_TRANSFER_ERRORS else ""
    if error.type in DISK_ERRORS or _DISK_FULL_TEXT in traces or "SandboxDiskFull" in wrapped:
        return Reason.STORAGE
    for name, reason in _LOST.items():
        if error.type == name or f"{name}:" in wrapped:
            return reason
    if facts.create_error:
        return Reason.TASK_UNREADABLE
    if error.type in _IMAGE_ERRORS:
        return Reason.IMAGE_BUILD
    if not facts.agent_setup_began or facts.step_unprepared or error.type in _NEVER_READY:
        return _NEVER_READY.get(error.type, Reason.SANDBOX_START)
    if not facts.agent_began:
        timeout = error.type == "AgentSetupTimeoutError"
        return Reason.AGENT_SETUP_TIMEOUT if timeout else Reason.AGENT_SETUP_ERROR
    return None
