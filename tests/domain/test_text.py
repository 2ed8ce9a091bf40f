from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain.text import QUOTE_MAX, quoted, visible, whole


def test_control_and_direction_characters_are_shown_not_obeyed():
    assert visible("a\x1b[31mb\u202e\n\udcff é") == "a\\x1b[31mb\\u202e\\n\\udcff é"
    assert visible("plain é 漢") == "plain é 漢"


def test_a_long_text_is_cut_and_says_how_long_it_was():
    assert quoted("abc") == "'abc'"
    assert quoted("x" * 500) == f"'{'x' * QUOTE_MAX}…' (cut, 500 characters)"


@given(st.text(st.characters()))
def test_what_is_quoted_is_one_printable_line(text: str):
    assert quoted(text).isprintable()
    assert len(quoted(text)) < QUOTE_MAX + 50
    whole(text).encode()
