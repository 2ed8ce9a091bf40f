"""A provider that refuses an agent, as Harbor records it: the trial is no score, graded or not."""

from pathlib import Path
from typing import Any

import pytest
from harbor.agents.installed.base import AgentAuthenticationError, ApiUsageLimitError
from harbor.agents.oracle import OracleAgent

from harbor_assets.domain.outcomes import Reason
from tests.suites import make
from tests.trials.conftest import RunTrial


class BudgetExceededError(Exception):
    """Named as LiteLLM's, which Harbor knows by name."""


@pytest.mark.parametrize(
    ("error", "graded"),
    [
        (AgentAuthenticationError("Invalid API key"), False),
        (BudgetExceededError("Budget has been exceeded! Current cost: 11.0, Max budget: 10.0"), True),
        (ApiUsageLimitError("Your credit balance is too low"), True),
    ],
)
def test_an_agent_that_its_provider_refused(
    run_trial: RunTrial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, graded: bool
) -> None:
    async def run(self: OracleAgent, *args: Any, **kwargs: Any) -> None:
        raise error

    monkeypatch.setattr(OracleAgent, "run", run)
    ended = run_trial(make.make_task(tmp_path, "keyless"))
    assert ended.ending.reason is Reason.PROVIDER_REFUSED
    assert ended.ending.reward is None
    assert (ended.ending.uncounted is not None) == graded
    assert ended.ending.error
    assert ended.ending.error.type == type(error).__name__
