"""A run of twenty trials in a home of its own, of which every planned trial has its row; not settled yet."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harbor_assets.domain.outcomes import Measurements, Reason
from harbor_assets.domain.runs import bundle_key
from harbor_assets.settings import Settings
from harbor_assets.wiring import Services, wire
from tests.fakes.accounts import RUN_ID, make_plan, make_row
from tests.interfaces.backends import task_input

MATRIX: dict[str, list[float | Reason]] = {
    "a": [1.0, 1.0, 1.0, 1.0],
    "b": [1.0, 0.0, 1.0, 0.0],
    "c": [0.5, 0.0, Reason.SANDBOX_LOST, 1.0],
    "d": [Reason.REWARD_MISSING, 0.0, Reason.AGENT_SETUP_ERROR, Reason.WORKER_LOST],
    "e": [Reason.CANCELLED_BY_USER, Reason.RUN_DEADLINE, Reason.NEVER_STARTED, Reason.EVICTED],
}
SPEED = {("a", 1): 2.0, ("b", 1): 4.0}  # side rewards
COST_USD = 0.25  # of each scored trial


@contextmanager
def twenty_trials(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    """The real services of a home in `root`, with the run `RUN_ID` as its last worker left it."""
    monkeypatch.setenv("HARBOR_ASSETS_HOME", str(root / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(root / "config"))
    settings = Settings.load()
    settings.prepare_home()
    services = wire(settings)
    plan = make_plan([*MATRIX], n_attempts=4)
    services.catalog.add_run(plan, request_digest="0" * 64)
    services.engine.begin(RUN_ID)
    services.catalog.mark_started(RUN_ID, plan.created_at)
    for index, (name, attempts) in enumerate(MATRIX.items()):
        services.catalog.put_task("default", f"hello-{name}", task_input(f"org/{name}"))
        for k, end in enumerate(attempts, start=1):
            made = make_row(plan, index, k, end)
            if isinstance(end, float):
                rewards = {"reward": end, **({"speed": SPEED[name, k]} if (name, k) in SPEED else {})}
                made = made.model_copy(update={"measurements": Measurements(cost_usd=COST_USD), "rewards": rewards})
            if made.evidence:
                services.artifacts.put_bytes(f"{bundle_key(RUN_ID)}/{made.evidence}/trial.log", b"began\n")
            assert services.catalog.add_outcome(made)
    with services.catalog:
        yield services
