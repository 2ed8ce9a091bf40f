"""Naming, numbering and choosing the tasks of a suite."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain.errors import Refused
from harbor_assets.domain.names import name_problem
from harbor_assets.domain.suites import (
    CheckedFolder,
    FileProblem,
    Suite,
    assemble,
    normalised_instruction,
    select,
    suite_name,
)


def child(name: str, native: str | None = "", *problems: str, warnings: tuple[str, ...] = ()) -> CheckedFolder:
    return CheckedFolder(
        name=name,
        folder=f"/suites/s/{name}",
        status="0",
        native_task_id=native if native != "" else name,
        instruction="Do it",
        warnings=warnings,
        problems=tuple(FileProblem(file="task.toml", reason=problem) for problem in problems),
    )


def suite(*names: str) -> Suite:
    return assemble("s", [child(name) for name in names])


def chosen(*args, **kwargs) -> list[str]:
    return [task.native_task_id for task in select(*args, **kwargs)]


def test_the_index_is_the_position_by_stored_name():
    found = assemble("s", [child("one", "z/alpha"), child("two", "a/beta"), child("three", "m/Gamma")])
    assert [(t.index, t.stored_name) for t in found.tasks] == [(0, "s-Gamma"), (1, "s-alpha"), (2, "s-beta")]
    assert [line.model_dump() for line in found.listing()][1] == {
        "index": 1,
        "name": "s-alpha",
        "native_task_id": "z/alpha",
        "warnings": (),
    }


def test_equal_native_ids_make_each_of_the_children_invalid():
    found = assemble("s", [child("a", "org/x"), child("b", "ORG/X"), child("c", "org/y")])
    assert [t.stored_name for t in found.tasks] == ["s-y"]
    assert [(i.name, i.file) for i in found.invalid] == [("a", "task.toml"), ("b", "task.toml")]
    assert "'org/x' is also that of 'b'" in found.invalid[0].reason
    assert "'ORG/X' is also that of 'a'" in found.invalid[1].reason


def test_correcting_one_task_renames_no_other():
    broken = assemble("s", [child("a", "p/x"), child("b", "q/x", "no tests")])
    fixed = assemble("s", [child("a", "p/x"), child("b", "q/x")])
    assert broken.tasks[0].stored_name in {t.stored_name for t in fixed.tasks}
    assert broken.total == 2
    assert fixed.total == 2


def test_two_tasks_never_share_a_stored_name():
    taken = assemble("s", [child("a", "p/x"), child("b", "q/x")]).tasks[0].stored_name.removeprefix("s-")
    found = assemble("s", [child("a", "p/x"), child("b", "q/x"), child("c", f"r/{taken}")])
    assert len(found.tasks) == 1
    assert all("stored name" in fault.reason for fault in found.invalid)


@pytest.mark.parametrize(
    ("native", "reason"), [("org/" + "x" * 254, "has 256 characters"), ("a b", "holds ' '"), ("a:b", "holds ':'")]
)
def test_a_name_the_catalog_cannot_hold_is_reported(native, reason):
    found = assemble("s", [child("a", native), child("b")])
    assert [fault.name for fault in found.invalid] == ["a"]
    assert reason in found.invalid[0].reason


def test_names_with_slashes_dots_upper_case_and_200_characters_are_held():
    natives = ["Org.X/Task.1", "o/" + "n" * 200, "UPPER", "a_b-c.d"]
    found = assemble("s", [child(f"c{i}", native) for i, native in enumerate(natives)])
    assert not found.invalid
    assert {t.native_task_id for t in found.tasks} == set(natives)


def test_a_folder_that_cannot_be_read_needs_a_reason():
    with pytest.raises(ValueError, match="needs the reason"):
        child("a", None)
    found = assemble("s", [child("a", None, "not TOML")])
    assert found.invalid[0].reason == "not TOML"


def test_strict_makes_a_warning_a_fault():
    children = [child("a", warnings=("unknown key",)), child("b")]
    assert len(assemble("s", children).tasks) == 2
    strict = assemble("s", children, strict=True)
    assert [t.stored_name for t in strict.tasks] == ["s-b"]
    assert strict.invalid[0].reason == "unknown key"


def test_invalid_children_refuse_the_suite_unless_they_may_be_skipped():
    found = assemble("s", [child("a", "a", "no tests", "no instruction"), child("b")])
    with pytest.raises(Refused) as refused:
        found.skip_invalid(False)
    assert "1 of 2 tasks" in str(refused.value)
    assert "--skip-invalid" in str(refused.value)
    assert [problem.message for problem in refused.value.problems] == [
        "task.toml: no tests",
        "task.toml: no instruction",
    ]
    assert [s.reason for s in found.skip_invalid(True)] == ["no tests", "no instruction"]
    assert suite("a").skip_invalid(False) == ()


def test_skipping_every_task_is_refused():
    with pytest.raises(Refused, match="no valid task is left"):
        assemble("s", [child("a", "a", "no tests")]).skip_invalid(True)


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("hello-world-suite", "hello-world-suite"),
        ("Deep SWE (v2)", "Deep-SWE-v2"),
        ("größe.1", "größe.1"),
        ("../x", "x"),
        ("///", "suite"),
        ("", "suite"),
        ("x" * 300, "x" * 246),
    ],
)
def test_suite_names(folder, name):
    assert suite_name(folder) == name


@given(st.text(max_size=300))
def test_a_suite_name_leaves_room_for_its_tasksets(folder):
    assert name_problem(f"{suite_name(folder)}-01234567") is None


@pytest.mark.parametrize(
    ("text", "instruction"),
    [
        ("  Do it.\n", "Do it."),
        ("<!-- SPDX-License-Identifier: X -->\n<!--\nSPDX-FileCopyrightText: Y\n-->\n\nDo it.", "Do it."),
        ("<!-- keep me -->\nDo it.", "<!-- keep me -->\nDo it."),
        ("Do it. <!-- SPDX-License-Identifier: X -->", "Do it. <!-- SPDX-License-Identifier: X -->"),
        ("<!-- SPDX-x -->", ""),
        ("<!-- a -->\n<!-- b -->\n \t", ""),
        ("", ""),
        ("<!-- SPDX- not closed", "<!-- SPDX- not closed"),
    ],
)
def test_instructions_are_normalised(text, instruction):
    assert normalised_instruction(text) == instruction


@pytest.mark.parametrize("text", ["<!--" * 250_000, " " * 1_000_000 + "<", "<!-- SPDX- -->" * 70_000])
def test_normalising_hostile_text_takes_one_pass(text):
    start = time.process_time()
    normalised_instruction(text)
    assert time.process_time() - start < 2  # quadratic: minutes


def test_select_takes_names_short_names_and_indexes():
    found = assemble("s", [child("a", "org/alpha"), child("b", "org/beta"), child("c", "x/gamma")])
    assert chosen(found) == ["org/alpha", "org/beta", "x/gamma"]
    assert chosen(found, ["s-beta"]) == ["org/beta"]
    assert chosen(found, ["x/gamma", "alpha"]) == ["org/alpha", "x/gamma"]
    assert chosen(found, ["2", "0", "alpha"]) == ["org/alpha", "x/gamma"]


def test_globs_match_stored_native_or_short_names_and_limit_comes_last():
    found = assemble("s", [child("a", "org/alpha"), child("b", "org/beta"), child("c", "x/gamma")])
    assert chosen(found, include=["org/*"]) == ["org/alpha", "org/beta"]
    assert chosen(found, exclude=["beta"], limit=1) == ["org/alpha"]
    assert chosen(found, ["1", "2"], include=["*a"], limit=5) == ["org/beta", "x/gamma"]
    assert [t.index for t in select(found, exclude=["alpha"])] == [1, 2]


def test_every_bad_choice_is_named_at_once():
    found = assemble("s", [child("a", "org/alpha"), child("b", "p/beta"), child("c", "q/beta"), child("d", "d", "bad")])
    with pytest.raises(Refused) as refused:
        select(found, ["alpah", "beta", "9", "d", "-1", "9" * 5000], include=["alph?z*"], exclude=["zzz"], limit=0)
    problems = {problem.subject: problem.message for problem in refused.value.problems}
    assert "did you mean" in problems["task 'alpah'"]
    assert "alpha" in problems["task 'alpah'"]
    assert "s-beta-" in problems["task 'beta'"]
    assert "0 to 2" in problems["task '9'"]
    assert "0 to 2" in problems["task '-1'"]
    assert problems["task 'd'"] == "is invalid: task.toml: bad"
    assert "alpha" in problems["-i 'alph?z*'"]
    assert "--list-tasks" in problems["-x 'zzz'"]
    assert "1 or more" in problems["-l"]
    assert len(problems) == 9


def test_a_name_that_means_two_tasks_is_not_guessed():
    found = assemble("s", [child("a", "org/x"), child("b", "s-x")])
    with pytest.raises(Refused, match="several tasks"):
        select(found, ["s-x"])


def test_a_choice_that_leaves_nothing_is_refused():
    found = suite("a", "b")
    with pytest.raises(Refused, match="none of the 2 tasks"):
        select(found, ["0"], exclude=["a"])
    with pytest.raises(Refused, match="selection is empty"):
        select(found, [])


@given(st.sets(st.integers(0, 8)), st.integers(1, 9))
def test_a_selection_keeps_indexes_and_order(indexes, limit):
    found = suite(*(f"t{i}" for i in range(9)))
    if not indexes:
        return
    got = [task.index for task in select(found, [str(i) for i in indexes], limit=limit)]
    assert got == sorted(indexes)[:limit]
