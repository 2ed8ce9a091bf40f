from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.interfaces.cli.output import Output, command, duration, moment, one_line, plain, score, width


@given(st.text())
def test_nothing_a_terminal_acts_on_survives(text: str):
    assert all(c.isprintable() or c in "\n\t" for c in plain(text))
    assert one_line(text).isprintable()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ümläut 任务", "plain ümläut 任务"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("a\u202eb", "a\\u202eb"),
        ("\x9b2J", "\\x9b2J"),
        ("\udcff", "\\udcff"),
        ("two\nlines\tx", "two\nlines\tx"),
    ],
)
def test_what_is_shown(text: str, shown: str):
    assert plain(text) == shown


def test_tables_line_up_also_with_wide_characters(capsys: pytest.CaptureFixture[str]):
    Output().table(("NAME", "X"), [("任务", "1"), ("a\nb", "2"), ("\x1b[2J", "")])
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["NAME     X", "任务     1", "a b      2", "\\x1b[2J"]
    assert {width(line[: line.index(c)]) for line, c in zip(lines, "X12", strict=False)} == {9}


def test_with_json_lines_leave_stdout_alone(capsys: pytest.CaptureFixture[str]):
    out = Output(json=True)
    out.line("for people")
    out.document({"name": "é\x9b"})
    said = capsys.readouterr()
    assert (said.err, said.out) == ("for people\n", '{\n  "name": "\\u00e9\\u009b"\n}\n')


def test_text_of_others_keeps_its_lines(capsys: pytest.CaptureFixture[str]):
    Output().text("a\r\nb\rc\x1b[2J")
    assert capsys.readouterr().out == "a\nb\\rc\\x1b[2J"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.04, "0.0 s"), (59.94, "59.9 s"), (60, "1 min 00 s"), (125, "2 min 05 s"), (3720, "1 h 02 min")],
)
def test_durations(seconds: float, words: str):
    assert duration(seconds) == duration(timedelta(seconds=seconds)) == words


def test_scores_have_four_places_and_times_are_utc():
    assert [score(value) for value in (1.0, 2 / 3, -0.00001, None)] == ["1.0000", "0.6667", "-1e-05", "-"]
    assert moment(datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=2)))) == "2026-01-02 01:04:05Z"
    assert moment(datetime(2026, 1, 2, tzinfo=UTC)).endswith("Z")
    assert moment(None) == "-"


def test_printed_commands_can_be_pasted():
    import shlex

    words = ["runs", "submit", "--taskset", "ws/a b#'x$(rm)"]
    assert shlex.split(command(*words)) == ["harbor-assets", *words]
