import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain.errors import Refused
from harbor_assets.domain.selection import select_members

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
        (["7"], [4]),  # a name goes before an index
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
