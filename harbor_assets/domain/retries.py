"""Which trials are tried again within a run, how often, and after how long.

Two policies, of which neither adds to the other. `max_retries` is the user's, and its rule Harbor's
(`harbor.models.job.config.RetryConfig`): what errs is tried again in a new sandbox, but not what ran out of time and
not what the verifier said. `infra_retries` is the deployment's: what was lost through no fault of task, agent or model.

    A trial is tried at most 1 + max(max_retries, infra_retries) times. Of these, what is not infrastructure's is
    tried again at most max_retries times.

A trial with a valid reward is scored, whatever else went wrong in it. What would end the same way, an image that cannot
be built or a task that cannot be read, is not tried again.
"""

from collections.abc import Sequence

from harbor_assets.domain.endings import START_ERRORS, Ending
from harbor_assets.domain.flags import Flag
from harbor_assets.domain.outcomes import Reason, Try
from harbor_assets.domain.pods import pull_can_get_better

RETRIED = frozenset(
    {
        Reason.AGENT_SETUP_ERROR,
        Reason.VERIFIER_ERROR,
        Reason.SANDBOX_START,
        Reason.SANDBOX_LOST,
        Reason.EVICTED,
        Reason.PREEMPTED,
        Reason.NODE_LOST,
        Reason.OUT_OF_MEMORY,
        Reason.UNCLASSIFIED,
    }
)
# Lost through where the trial ran. `unclassified` is not among them: of an unknown cause nobody can say that, and each
# try may cost an agent's whole work.
INFRASTRUCTURE = frozenset(
    {Reason.SANDBOX_START, Reason.SANDBOX_LOST, Reason.EVICTED, Reason.PREEMPTED, Reason.NODE_LOST}
)
RETRIES_MAX = 100
INFRA_RETRIES = 2  # what a node takes along is mostly gone with it; a third loss is rather the trial's or the cluster's
_PAUSE_MAX_SECONDS = 60.0  # Harbor's, as the doubling from one second


def of_infrastructure(ending: Ending) -> bool:
    """Whether a fresh sandbox may well end differently, since neither task nor agent nor model is at fault.

    A sandbox at its own memory limit would end there again; one that was killed because the machine had no memory
    left would not. A pull is worth another try unless the registry said that it is none. A health check or a step's
    set-up that failed in a sandbox that had started is the task's own.
    """
    if ending.reason is Reason.SANDBOX_START:
        return ending.error is None or ending.error.type in START_ERRORS
    if ending.reason is Reason.OUT_OF_MEMORY:
        return Flag.MACHINE_OUT_OF_MEMORY in ending.flags
    if ending.reason is Reason.IMAGE_PULL:
        return pull_can_get_better(ending.message or "")
    return ending.reason in INFRASTRUCTURE


def tried_again(ending: Ending, earlier: Sequence[Try], *, max_retries: int, infra_retries: int) -> bool:
    """Whether a try that ended so is followed by another. `earlier`: those before it that were tried again, with their
    reasons; lost workers are none of them."""
    if ending.reason is Reason.VERIFIER_ERROR and Flag.VERIFIER_AGAIN in ending.flags:
        return False  # the verifier alone had its tries, and the agent's work may have cost much
    lost = of_infrastructure(ending)
    if lost and len(earlier) < infra_retries:
        return True
    others = 0 if lost else sum(not _was_infrastructure(tried) for tried in earlier)
    return ending.reason in RETRIED and others < max_retries and len(earlier) < max(max_retries, infra_retries)


def _was_infrastructure(tried: Try) -> bool:
    if tried.reason is Reason.SANDBOX_START:
        return tried.error is None or tried.error.type in START_ERRORS
    return tried.reason in INFRASTRUCTURE


def pause_before(retry: int) -> float:
    """Seconds to wait before the retry of that number, from 1: an overloaded registry or node is given some time."""
    return min(_PAUSE_MAX_SECONDS, 2.0 ** (min(retry, 10) - 1))
