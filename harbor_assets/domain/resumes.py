"""What is answered to who lets a run go on by hand."""

from datetime import datetime

from harbor_assets.domain.outcomes import Frozen
from harbor_assets.domain.views import RunSummary


class Redone(Frozen):
    """A trial that had begun and has no outcome, and so is run again. `began`: its last try; `tries` so far, `lost` of
    them with their worker; `cost_usd`: of those that ended, None if nobody knows. What a lost one cost, nobody saw."""

    index: int
    task: str
    k: int
    began: datetime
    tries: int
    lost: int
    cost_usd: float | None = None


class Resumed(Frozen):
    """`started`: the run got a worker; `at_work`: it had one, and nothing was started; neither: what its last worker
    left must end first, and then it goes on by itself. `reopened`: it was paused, and its next trial begins at once.
    `finished`: outcomes that stay as they are."""

    run: RunSummary
    started: bool
    at_work: bool
    reopened: bool = False
    finished: int
    redone: tuple[Redone, ...] = ()
