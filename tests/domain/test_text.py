import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain.text import QUOTE_MAX, figure, quoted, visible, whole


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


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.625, "0.6250"),
        (1.0, "1.0000"),
        (-0.0, "-0.0000"),
        (0.9999999999, "0.9999999999"),  # no pass
        (1e-320, "1e-320"),  # not nothing
        (0.00004, "4e-05"),
        (1.00001, "1.00001"),
        (1e308, "1e+308"),
        (-2.5e6, "-2.5e+06"),
        (123456.0, "123456.0000"),
    ],
)
def test_a_figure_hides_no_pass_and_is_no_wall_of_digits(value: float, shown: str):
    assert figure(value) == shown
