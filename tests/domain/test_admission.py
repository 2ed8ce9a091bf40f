"""When trials of a run may begin: pauses after a burst of one failure, and stops."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain import admission
from harbor_assets.domain.admission import BURST, PROBES_MAX, PROBES_MAX_UNTRIED, REFUSALS, Admission
from harbor_assets.domain.endings import Ending
from harbor_assets.domain.outcomes import OUTCOME_OF, Outcome, Reason
from harbor_assets.domain.retries import of_infrastructure

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LOST, SCORED = Ending(Reason.SANDBOX_LOST, "gone"), Ending(Reason.GRADED, reward=1.0)
REFUSED = Ending(Reason.PROVIDER_REFUSED, "AuthenticationError: invalid key")
EVENTS = st.lists(st.tuples(st.sampled_from(sorted(Reason)), st.integers(0, 5), st.integers(0, 60)), max_size=40)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def tell(state: Admission, trial: int, ending: Ending, *, began: float = 0, now: float = 0) -> Admission:
    return admission.told(state, str(trial), ending, began=at(began), now=at(now))


def burst(state: Admission | None = None, now: float = 0) -> Admission:
    state = state or Admission()
    for trial in range(BURST):
        state = tell(state, trial, LOST, now=now)
    return state


def test_a_burst_pauses_and_the_first_that_gets_through_opens() -> None:
    state = burst(now=10)
    assert state.hold
    assert state.hold.reason is Reason.SANDBOX_LOST
    assert "3 trials in a row ended with sandbox_lost" in admission.paused(state.hold)
    assert admission.ask(state, at(14)) == (state, False)
    state, may = admission.ask(state, at(15))
    assert may
    assert not admission.ask(state, at(15))[1], "one at a time"
    assert tell(state, 9, SCORED, began=15, now=30) == Admission(proven=True)


def test_what_began_before_the_pause_says_nothing_about_now() -> None:
    state = burst(now=10)
    assert tell(state, 7, LOST, began=9, now=20) == state
    assert tell(state, 8, SCORED, began=9, now=20).hold == state.hold


@pytest.mark.parametrize("between", [SCORED, Ending(Reason.REWARD_MISSING), Ending(Reason.NODE_LOST, "x")])
def test_what_comes_between_makes_it_none(between: Ending) -> None:
    state = tell(tell(Admission(), 1, LOST), 2, LOST)
    assert tell(tell(state, 3, between), 4, LOST).hold is None


def test_one_trial_is_no_burst_however_often_it_fails() -> None:
    state = Admission()
    for _ in range(10):
        state = tell(state, 1, LOST)
    assert state.hold is None


@pytest.mark.parametrize(("proven", "most"), [(True, PROBES_MAX), (False, PROBES_MAX_UNTRIED)])
def test_a_run_that_stays_broken_is_stopped(proven: bool, most: int) -> None:
    state, now, begun = burst(Admission(proven=proven)), 0.0, 0
    while not state.stop:
        assert state.hold
        now = max(now, (state.hold.next_at - NOON).total_seconds())
        state, may = admission.ask(state, at(now))
        assert may
        begun += 1
        state = tell(state, 100 + begun, LOST, began=now, now=now)
    assert begun == most
    assert "sandbox_lost: the same failure again and again" in state.stop.message
    assert now < (25 * 60 if proven else 40)


def test_two_trials_that_the_provider_refused_stop_the_run() -> None:
    state = tell(Admission(proven=True), 1, REFUSED)
    assert state.stop is None
    assert tell(state, 1, REFUSED).stop is None, "the same one"
    assert tell(tell(state, 2, SCORED), 3, REFUSED).stop is None
    state = tell(state, 2, REFUSED)
    assert state.stop
    assert state.stop.message == "provider_refused: AuthenticationError: invalid key"
    assert admission.ask(state, at(1e9)) == (state, False)
    assert tell(state, 5, SCORED) == state, "for good"


def test_a_person_may_say_that_it_is_mended() -> None:
    state = admission.opened(burst(now=10), at(11))
    assert admission.ask(state, at(11))[1]
    assert admission.opened(Admission(), NOON) == Admission()


@given(EVENTS)
def test_a_pause_has_its_burst_and_a_stop_its_cause(events: list[tuple[Reason, int, int]]) -> None:
    """Held against a plain reading of the rule: what ended, in order, when all began as late as they could."""
    state, now, ended = Admission(), 0, list[tuple[Reason, int]]()
    for reason, trial, later in events:
        now += later
        before = state
        state = tell(state, trial, Ending(reason), began=now, now=now)
        ended.append((reason, trial))
        assert not (state.hold and state.stop)
        through = OUTCOME_OF[reason] in (Outcome.SCORED, Outcome.VERIFIER_FAILED)
        if through and not before.stop:
            assert state == Admission(proven=True)
        if state.hold and not before.hold:
            assert of_infrastructure(Ending(reason))
            last = [(r, t) for r, t in ended if of_infrastructure(Ending(r)) or r is Reason.PROVIDER_REFUSED]
            alike = set[int]()
            for r, t in reversed(last):
                if r is not reason:
                    break
                alike.add(t)
            assert len(alike) >= BURST
        if state.stop and not before.stop:
            assert reason is Reason.PROVIDER_REFUSED or (before.hold and of_infrastructure(Ending(reason)))
        assert Admission.model_validate_json(state.model_dump_json()) == state


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=60))
def test_few_tries_begin_in_a_pause(asked: list[int]) -> None:
    """Whoever asks, and however often: in a pause at most one begins in five seconds, while none is heard of."""
    state = burst()
    begun: list[int] = []
    for now in sorted(asked):
        state, may = admission.ask(state, at(now))
        begun += [now] if may else []
    assert all(later - earlier >= 5 for earlier, later in pairwise(begun))
    assert not begun or begun[0] >= 5


def test_refusals_are_few() -> None:
    assert REFUSALS < BURST
