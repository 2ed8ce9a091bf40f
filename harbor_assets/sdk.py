"""The public Python interface of harbor-assets.

::

    from harbor_assets.sdk import read_bundle, read_trials

    bundle = read_bundle("run-0123456789abcdef/agent-eval-results")
    print(bundle.outcome_summary.policies.scored_only.mean)

    with local_client() as client:  # the runs of this machine's home
        print([run.id for run in client.list_runs(active=True).items])

Names are loaded when they are first used: importing this module costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harbor_assets.domain.bundle import BundleTask, RunMetadata, Score, Summary, Trial
    from harbor_assets.domain.outcomes import Outcome, Reason, TrialOutcome
    from harbor_assets.domain.policies import OutcomeSummary
    from harbor_assets.interfaces.sdk.client import Client, Results
    from harbor_assets.interfaces.sdk.local import local_client
    from harbor_assets.interfaces.sdk.readers import Bundle, read_bundle, read_trials

_WHERE = {
    "Bundle": "harbor_assets.interfaces.sdk.readers",
    "read_bundle": "harbor_assets.interfaces.sdk.readers",
    "read_trials": "harbor_assets.interfaces.sdk.readers",
    "Client": "harbor_assets.interfaces.sdk.client",
    "Results": "harbor_assets.interfaces.sdk.client",
    "local_client": "harbor_assets.interfaces.sdk.local",
    "BundleTask": "harbor_assets.domain.bundle",
    "RunMetadata": "harbor_assets.domain.bundle",
    "Score": "harbor_assets.domain.bundle",
    "Summary": "harbor_assets.domain.bundle",
    "Trial": "harbor_assets.domain.bundle",
    "Outcome": "harbor_assets.domain.outcomes",
    "OutcomeSummary": "harbor_assets.domain.policies",
    "Reason": "harbor_assets.domain.outcomes",
    "TrialOutcome": "harbor_assets.domain.outcomes",
}

__all__ = [  # noqa: RUF022 - functions first, then what they answer
    "read_bundle",
    "read_trials",
    "local_client",
    "Bundle",
    "BundleTask",
    "Client",
    "Outcome",
    "OutcomeSummary",
    "Reason",
    "Results",
    "RunMetadata",
    "Score",
    "Summary",
    "Trial",
    "TrialOutcome",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"harbor_assets.sdk has no '{name}'")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
