"""Which trials are tried again within a run that asks for it (`max_retries`), and after how long.

The rule is Harbor's (`harbor.models.job.config.RetryConfig`): what errs is tried again in a new sandbox, but not what
ran out of time and not what the verifier said. A trial with a valid reward is scored, whatever else went wrong in it.
What would end the same way, an image that cannot be built or a task that cannot be read, is not tried again either.
"""

from harbor_assets.domain.outcomes import Reason

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
RETRIES_MAX = 100
_PAUSE_MAX_SECONDS = 60.0  # Harbor's, as the doubling from one second


def pause_before(retry: int) -> float:
    """Seconds to wait before the retry of that number, from 1: an overloaded registry or node is given some time."""
    return min(_PAUSE_MAX_SECONDS, 2.0 ** (min(retry, 10) - 1))
