"""What verifying again needs from outside, as a Protocol; as `ports.py`, kept apart for its size."""

from pathlib import Path
from typing import Protocol

from harbor_assets.domain.endings import Ending
from harbor_assets.domain.plans import PlannedTask, RunPlan
from harbor_assets.engine.ports import TrialRunner


class Regrader(TrialRunner, Protocol):
    """Runs trials, and verifiers alone."""

    async def regrade(
        self, plan: RunPlan, task: PlannedTask, k: int, *, source: Path, recorded: Path, folder: Path
    ) -> Ending:
        """Run the verifier of the task whose files are in `source` on what an earlier trial left in `recorded`, without
        an agent; as `run`. Where that does not hold what the verifier needs, the reason is `work_not_kept`."""
        ...
