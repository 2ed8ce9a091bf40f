"""Marks of tasks and runs."""

from datetime import UTC, datetime, timedelta

import pytest

from harbor_assets.domain.errors import NotFound
from harbor_assets.domain.marks import Mark, Verdict
from harbor_assets.engine.mark_ports import MarkCatalog

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
TASK, OTHER, RUN = "ws/hello#" + "a" * 64, "ws/hello#" + "b" * 64, "run-" + "0" * 16


def mark(subject: str = TASK, verdict: Verdict = Verdict.FLAKY, *, workspace: str = "ws", at: int = 0) -> Mark:
    runs = () if verdict is Verdict.BAD else (RUN,)
    return Mark(
        workspace=workspace,
        subject=subject,
        verdict=verdict,
        who="ann",
        why=f"seen at {at}",
        at=NOW + timedelta(seconds=at),
        runs=runs,
    )


def test_a_newer_mark_takes_the_place_of_its_kind_and_leaves_the_others(catalog: MarkCatalog) -> None:
    catalog.put_mark(mark(at=1))
    catalog.put_mark(bad := mark(verdict=Verdict.BAD, at=2))
    catalog.put_mark(good := mark(verdict=Verdict.GOOD, at=3))
    catalog.put_mark(other := mark(OTHER, Verdict.NOP_PASSES))
    catalog.put_mark(mark(workspace="elsewhere"))
    assert catalog.marks_of("ws", [TASK, RUN, OTHER, TASK]) == {TASK: [bad, good], OTHER: [other]}
    assert catalog.marks_of("ws", []) == {}


def test_more_subjects_than_one_query_takes(catalog: MarkCatalog) -> None:
    catalog.put_mark(found := mark(RUN, Verdict.BAD))
    many = [f"ws/t{n}#{'c' * 64}" for n in range(1200)]
    assert catalog.marks_of("ws", [*many, RUN]) == {RUN: [found]}


def test_what_is_withdrawn_is_gone_and_only_once(catalog: MarkCatalog) -> None:
    catalog.put_mark(bad := mark(verdict=Verdict.BAD))
    catalog.put_mark(flaky := mark())
    assert catalog.withdraw_mark("ws", TASK, "judged") == bad
    assert catalog.marks_of("ws", [TASK]) == {TASK: [flaky]}
    for workspace, kind in (("ws", "judged"), ("elsewhere", "verified")):
        with pytest.raises(NotFound, match="Mark not found"):
            catalog.withdraw_mark(workspace, TASK, kind)


def test_the_list_is_of_one_workspace_newest_first_and_of_one_verdict_where_asked(catalog: MarkCatalog) -> None:
    marks = [mark(at=1), mark(RUN, Verdict.BAD, at=2), mark(OTHER, at=3)]
    for each in (*marks, mark(workspace="elsewhere", at=4)):
        catalog.put_mark(each)
    page = catalog.list_marks("ws", page_size=2)
    assert (page.items, page.total) == ([marks[2], marks[1]], 3)
    assert catalog.list_marks("ws", page=2, page_size=2).items == [marks[0]]
    assert catalog.list_marks("ws", verdict=Verdict.BAD).items == [marks[1]]


def test_the_longest_name_that_a_task_can_have_can_be_marked(catalog: MarkCatalog) -> None:
    long = f"{'𝒳' * 255}/{'𝒴' * 255}#{'a' * 64}"
    catalog.put_mark(found := mark(long, Verdict.BAD))
    assert catalog.marks_of("ws", [long]) == {long: [found]}


def test_what_a_person_said_before_is_kept_and_bounded(catalog: MarkCatalog) -> None:
    for at in range(25):
        kept = catalog.put_mark(mark(RUN, Verdict.BAD, at=at))
    assert catalog.marks_of("ws", [RUN]) == {RUN: [kept]}
    assert catalog.list_marks("ws").items == [kept]
    assert [said.why for said in kept.earlier] == [f"seen at {at}" for at in range(23, 3, -1)]
    assert catalog.withdraw_mark("ws", RUN, "judged") == kept
    assert catalog.put_mark(mark(RUN, Verdict.BAD)).earlier == ()
    catalog.put_mark(mark(at=1))
    assert catalog.put_mark(mark(at=2)).earlier == ()  # what was verified again is known better
