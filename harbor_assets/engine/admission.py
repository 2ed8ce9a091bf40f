"""The gate before each try of a run's trials: asked before it begins, told how it ended. A run has one."""

from dataclasses import dataclass
from datetime import datetime

from harbor_assets.domain import admission
from harbor_assets.domain.admission import Admission
from harbor_assets.domain.endings import Ending
from harbor_assets.engine.admission_ports import Admissions


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether a try may begin. Else it is to be asked again in `seconds`; None: never, the run is stopped."""

    may: bool
    seconds: float | None = None


def ask(admissions: Admissions, run_id: str, now: datetime) -> Answer:
    """Whether a try may begin now. One that may is counted."""
    state = admissions.admission(run_id)
    if state.hold is None or now < state.hold.next_at:
        return _answer(state, state.hold is None and state.stop is None, now)
    may = False

    def change(before: Admission) -> Admission:
        nonlocal may
        after, may = admission.ask(before, now)
        return after

    return _answer(admissions.change_admission(run_id, change), may, now)


def tell(admissions: Admissions, run_id: str, trial: str, ending: Ending, *, began: datetime, now: datetime) -> None:
    """A try of that trial, begun at `began`, ended so. Writes only where that changes anything."""

    def change(before: Admission) -> Admission:
        return admission.told(before, trial, ending, began=began, now=now)

    state = admissions.admission(run_id)
    if change(state) != state:
        admissions.change_admission(run_id, change)


def _answer(state: Admission, may: bool, now: datetime) -> Answer:
    if may or state.stop:
        return Answer(may)
    return Answer(False, max(0.0, (state.hold.next_at - now).total_seconds()) if state.hold else 0.0)
