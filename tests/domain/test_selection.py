import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain.errors import Refused
from harbor_assets.domain.selection import entries_of, select_members

MEMBERS = [("s-alpha", "org/alpha"), ("s-beta", "beta"), ("s-dup-1", "a/dup"), ("s-dup-2", "b/dup"), ("s-7", "7")]


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        (None, [0, 1, 2, 3, 4]),
        (["s-alpha"], [0]),
        (["org/alpha"], [0]),
        (["alpha", " beta "], [0, 1]),
        (["2", "0"], [0, 2]),
        (["b/dup", "3"], [3]),
        (["7"], [4]),
    ],
)
def test_names_short_names_and_indexes(wanted: list[str] | None, chosen: list[int]) -> None:
    assert select_members(MEMBERS, wanted) == chosen


def test_every_wrong_entry_is_answered_at_once() -> None:
    with pytest.raises(Refused) as refused:
        select_members(MEMBERS, ["alhpa", "dup", "99", "-1"])
    text = str(refused.value)
    assert len(refused.value.problems) == 4
    assert "did you mean alpha" in text or "s-alpha" in text
    assert "s-dup-1, s-dup-2" in text
    assert "0 to 4" in text


NUMBERED = [("s--rf", "-rf"), ("s-0", "0"), ("s-1", "org/1"), ("3", "ok")]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("0", "is the name of s-0 and the index of s--rf"),
        ("1", "is the name of s-1 and the index of s-0"),
    ],
)
def test_a_number_that_means_two_tasks_is_refused(entry: str, said: str) -> None:
    with pytest.raises(Refused, match=said):
        select_members(NUMBERED, [entry])


def test_a_stored_name_is_one_tasks_alone() -> None:
    assert select_members([("1", "a"), ("0", "b")], ["0"]) == [1]
    assert select_members(NUMBERED, ["2", "3"]) == [2, 3]


names = st.sampled_from(["0", "1", "2", "a/0", "a/1", "b", "-rf"])


@given(st.lists(names, max_size=4, unique=True), st.data())
def test_what_is_printed_selects_what_was_chosen(natives: list[str], data: st.DataObject) -> None:
    members = [(f"s-{at}-{native.replace('/', '-')}", native) for at, native in enumerate(natives)]
    chosen = sorted(data.draw(st.sets(st.integers(0, len(members) - 1)))) if members else []
    if chosen:
        assert select_members(members, entries_of(chosen, members)) == chosen


def test_commas_alone_name_no_task() -> None:
    with pytest.raises(Refused, match="names no task") as refused:
        select_members(MEMBERS, ["", " "])
    assert len(refused.value.problems) == 1


def test_an_empty_selection_is_refused() -> None:
    with pytest.raises(Refused, match="empty"):
        select_members(MEMBERS, [])


@given(st.lists(st.text(max_size=12), max_size=5))
def test_never_anything_but_indexes_or_a_refusal(wanted: list[str]) -> None:
    try:
        chosen = select_members(MEMBERS, wanted)
    except Refused as refused:
        assert refused.problems
    else:
        assert chosen == sorted(set(chosen))
        assert all(0 <= i < len(MEMBERS) for i in chosen)
