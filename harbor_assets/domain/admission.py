"""Whether trials of a run may begin: paused while its infrastructure fails, stopped when that, or the model's provider,
will not have them. Pure; the state is kept with the run, so that all its workers go by the same one.

Two different trials in a row that the model's provider refused, the key or the budget, stop the run: every other one
would meet the same.

A **burst** is what makes a pause: `BURST` different trials in a row ended with the same failure of infrastructure, and
none got through between. Then one try begins at a time, each after a pause that doubles while they fail; the first that
gets through opens the run again. What began before the pause says nothing about now, and changes nothing. A run of
which no trial ever got through is given up earlier: what never worked is rather broken than down.
"""

from datetime import datetime, timedelta

from harbor_assets.domain.endings import Ending
from harbor_assets.domain.outcomes import OUTCOME_OF, Frozen, Outcome, Reason
from harbor_assets.domain.retries import of_infrastructure
from harbor_assets.domain.text import visible

BURST = 3
REFUSALS = 2  # Harbor finds them in what an agent printed, and a task may be about keys: one trial alone proves little
PROBES_MAX = 8  # with their pauses, 5 s to 10 min: 21 minutes, longer than a node or a registry restarts
PROBES_MAX_UNTRIED = 3  # of a run of which nothing ever got through: 35 s
_PAUSE_SECONDS, _PAUSE_MAX_SECONDS = 5.0, 640.0
_MESSAGE_MAX = 300  # characters of what a trial said, which may be a page
_GOT_THROUGH = (Outcome.SCORED, Outcome.VERIFIER_FAILED)  # its sandbox started, and lived to its end


class Hold(Frozen):
    """A pause. `reason`: that of the burst; `failed`: how many tries since failed; `next_at`: when one may begin."""

    reason: Reason
    message: str
    since: datetime
    next_at: datetime
    failed: int = 0


class Stop(Frozen):
    """No trial begins any more. Those under way come to their own end."""

    reason: Reason
    message: str
    at: datetime


class Admission(Frozen):
    """The state. `streak`: the trials that failed alike in a row, of reason `failing`; `proven`: one got through."""

    failing: Reason | None = None
    streak: tuple[str, ...] = ()
    proven: bool = False
    hold: Hold | None = None
    stop: Stop | None = None


def pause_after(failed: int) -> timedelta:
    """How long no try begins after so many failed since the burst."""
    return timedelta(seconds=min(_PAUSE_MAX_SECONDS, _PAUSE_SECONDS * 2 ** min(failed, 10)))


def ask(state: Admission, now: datetime) -> tuple[Admission, bool]:
    """Whether a try may begin now, and the state after it did."""
    if state.stop:
        return state, False
    if state.hold is None:
        return state, True
    if now < state.hold.next_at:
        return state, False
    # Not again before this one had the time to fail; one that lasts longer does not keep the next from beginning.
    return _held(state, next_at=now + pause_after(state.hold.failed)), True


def told(state: Admission, trial: str, ending: Ending, *, began: datetime, now: datetime) -> Admission:
    """The state after a try of that trial, begun at `began`, ended so."""
    if state.stop:
        return state
    if ending.reason is Reason.PROVIDER_REFUSED:
        alike = _with(state, trial, ending.reason)
        return _stopped(alike, ending.reason, _words(ending), now) if len(alike.streak) >= REFUSALS else alike
    if OUTCOME_OF[ending.reason] in _GOT_THROUGH:
        opens = state.hold is None or began >= state.hold.since
        return Admission(proven=True) if opens else state.model_copy(update={"proven": True})
    if not of_infrastructure(ending):
        return state
    if state.hold:
        return state if began < state.hold.since else _failed_again(state, state.hold, ending, now)
    alike = _with(state, trial, ending.reason)
    if len(alike.streak) < BURST:
        return alike
    hold = Hold(reason=ending.reason, message=_words(ending), since=now, next_at=now + pause_after(0))
    return alike.model_copy(update={"hold": hold})


def opened(state: Admission, now: datetime) -> Admission:
    """The state after a person said that the cause is mended: the next try begins at once."""
    return _held(state, next_at=now, failed=0) if state.hold else state


def _with(state: Admission, trial: str, reason: Reason) -> Admission:
    """The state with one more failure in a row; a trial counts once."""
    alike = state.streak if state.failing is reason else ()
    return state.model_copy(update={"failing": reason, "streak": alike if trial in alike else (*alike, trial)})


def _failed_again(state: Admission, hold: Hold, ending: Ending, now: datetime) -> Admission:
    failed = hold.failed + 1
    if failed >= (PROBES_MAX if state.proven else PROBES_MAX_UNTRIED):
        message = f"the same failure again and again, {failed} times since the run was paused: {_words(ending)}"
        return _stopped(state, ending.reason, message, now)
    return _held(state, failed=failed, message=_words(ending), next_at=now + pause_after(failed))


def _held(state: Admission, **changes: object) -> Admission:
    assert state.hold
    return state.model_copy(update={"hold": state.hold.model_copy(update=changes)})


def _stopped(state: Admission, reason: Reason, message: str, now: datetime) -> Admission:
    stop = Stop(reason=reason, message=f"{reason}: {message}", at=now)
    return state.model_copy(update={"hold": None, "stop": stop})


def _words(ending: Ending) -> str:
    """What a trial said, on one line: it comes from tasks, agents and providers."""
    text = visible(" ".join((ending.message or "no further word").split()))
    return text if len(text) <= _MESSAGE_MAX else f"{text[:_MESSAGE_MAX]}…"


def paused(hold: Hold) -> str:
    """The pause for a person, on one line."""
    tries = f"; {hold.failed} failed since" if hold.failed else ""
    return (
        f"paused since {hold.since:%H:%M:%S} UTC, as {BURST} trials in a row ended with {hold.reason}{tries}: the next "
        f"begins at {hold.next_at:%H:%M:%S} UTC, alone. {hold.message}"
    )
