from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.cluster.settlement import TRIES_MAX, Order, Tried, given_up, order

RUN = "run-0123456789abcdef"
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def failed(*seconds_ago: float) -> list[Tried]:
    return [Tried(f"d{i}", NOON - timedelta(seconds=ago)) for i, ago in enumerate(seconds_ago)]


def test_the_first_try_is_due_at_once() -> None:
    assert order(RUN, [], NOON) == Order(RUN, 1)


def test_while_one_goes_on_there_is_no_other() -> None:
    assert order(RUN, [*failed(9999), Tried("d", None)], NOON) is None


def test_pauses_double() -> None:
    assert order(RUN, failed(4), NOON) is None
    assert order(RUN, failed(5), NOON) == Order(RUN, 2)
    assert order(RUN, failed(500, 9), NOON) is None
    assert order(RUN, failed(500, 10), NOON) == Order(RUN, 3)
    assert order(RUN, failed(*[9999] * 20, 599), NOON) is None
    assert order(RUN, failed(*[9999] * 20, 600), NOON) == Order(RUN, 22)


def test_it_is_given_up_only_after_the_last_try_ended() -> None:
    assert given_up(failed(*range(TRIES_MAX - 1))) is None
    assert given_up([*failed(*range(TRIES_MAX)), Tried("d", None)]) is None
    why = given_up(failed(*range(TRIES_MAX)))
    assert why
    assert "d0" in why  # the newest
    assert "materialise merged_bundle" in why


@given(st.lists(st.floats(0, 10_000), max_size=TRIES_MAX))
def test_a_try_is_due_some_day_and_numbers_never_come_twice(ago: list[float]) -> None:
    due = order(RUN, failed(*ago), NOON + timedelta(days=1))
    assert due == Order(RUN, len(ago) + 1)
