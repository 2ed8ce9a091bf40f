"""What every task catalog does, the fake one too. The rules are the API's documented revisions."""

import secrets
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harbor_assets.domain.errors import NotFound, Refused
from harbor_assets.domain.tasks import TasksetInput
from harbor_assets.engine.ports import TaskCatalog
from tests.catalog.samples import A, body


def test_a_task_is_created_read_and_found(catalog: TaskCatalog) -> None:
    before = datetime.now(UTC)
    task, cut = catalog.put_task("ws", "t", body("one", instruction="do it", config={"version": "1.0"}))
    assert cut
    assert (task.workspace, task.name, task.revision, task.tags) == ("ws", "t", 1, {"latest": 1})
    assert task.digest == body("one", instruction="do it").digest()
    assert task.ref == f"ws/t#{task.digest}"
    assert before <= task.created_at <= task.updated_at <= datetime.now(UTC)
    assert task.created_at.utcoffset() is not None
    for revision in (None, "latest", task.digest):
        assert catalog.get_task("ws", "t", revision) == task
    assert task.spec.config == {"version": "1.0"}


def test_ids_are_opaque_and_stay(catalog: TaskCatalog) -> None:
    first, _ = catalog.put_task("ws", "t", body("one"))
    second, _ = catalog.put_task("ws", "t", body("two"))
    other, _ = catalog.put_task("ws", "u", body("one"))
    assert first.id == second.id == catalog.get_task("ws", "t").id != other.id
    assert first.id.startswith("task-")


def test_equal_content_cuts_no_revision_but_tags_are_applied(catalog: TaskCatalog) -> None:
    first, _ = catalog.put_task("ws", "t", body("one"))
    again, cut = catalog.put_task("ws", "t", body("one", config={"only": "the digest counts"}))
    assert not cut
    assert again == first
    tagged, cut = catalog.put_task("ws", "t", body("one", tags=["stable", "latest"]))
    assert not cut
    assert tagged.tags == {"latest": 1, "stable": 1}
    assert tagged.updated_at > first.updated_at
    assert catalog.get_task("ws", "t", "stable").digest == first.digest


def test_going_back_to_older_content_cuts_a_new_revision(catalog: TaskCatalog) -> None:
    old, _ = catalog.put_task("ws", "t", body("one"))
    catalog.put_task("ws", "t", body("two"))
    back, cut = catalog.put_task("ws", "t", body("one"))
    assert cut
    assert (back.revision, back.digest) == (3, old.digest)
    assert catalog.get_task("ws", "t", old.digest).revision == 3, "a digest means the newest revision that has it"
    assert catalog.get_pinned_tasks([old.ref])[0].revision == 3


def test_a_write_answers_with_the_revision_a_read_with_the_record(catalog: TaskCatalog) -> None:
    first, _ = catalog.put_task("ws", "t", body("one", tags=["old"]))
    second, _ = catalog.put_task("ws", "t", body("two", tags=["new"]))
    assert second.tags == {"latest": 2, "new": 2}
    assert second.created_at > first.created_at
    record = catalog.get_task("ws", "t")
    assert record.tags == {"latest": 2, "new": 2, "old": 1}
    assert record.created_at == first.created_at
    assert record.updated_at == second.updated_at
    as_of_old = catalog.get_task("ws", "t", "old")
    assert (as_of_old.revision, as_of_old.tags, as_of_old.spec) == (1, {"old": 1}, first.spec)


def test_a_tag_moves_to_what_is_published_with_it(catalog: TaskCatalog) -> None:
    catalog.put_task("ws", "t", body("one", tags=["stable"]))
    catalog.put_task("ws", "t", body("two", tags=["stable"]))
    assert catalog.get_task("ws", "t").tags == {"latest": 2, "stable": 2}


@pytest.mark.parametrize("tag", ["", "a/b", "a b", A, "x" * 256])
def test_a_tag_that_cannot_be_is_refused_before_anything_is_stored(catalog: TaskCatalog, tag: str) -> None:
    with pytest.raises(Refused):
        catalog.put_task("ws", "t", body("one", tags=["fine", tag]))
    with pytest.raises(NotFound):
        catalog.get_task("ws", "t")


@pytest.mark.parametrize(
    ("workspace", "name"), [("ws", ""), ("ws", "a/b"), ("ws", ".."), ("w s", "t"), ("ws", "x" * 256)]
)
def test_a_name_that_cannot_be_is_refused(catalog: TaskCatalog, workspace: str, name: str) -> None:
    with pytest.raises(Refused):
        catalog.put_task(workspace, name, body())
    with pytest.raises(Refused):
        catalog.put_taskset(workspace, name, TasksetInput(tasks=[]))


def test_names_are_told_apart_by_case_workspace_and_alphabet(catalog: TaskCatalog) -> None:
    for workspace, name in (("ws", "t"), ("ws", "T"), ("WS", "t"), ("ws", "größe-日本")):
        assert catalog.put_task(workspace, name, body(name))[1]
    assert catalog.get_task("ws", "größe-日本").revision == 1
    assert {task.name for task in catalog.list_tasks("ws").items} == {"t", "T", "größe-日本"}


def test_what_is_not_there(catalog: TaskCatalog) -> None:
    catalog.put_task("ws", "hello-world", body("one"))
    with pytest.raises(NotFound, match="ws/hello-wold"):
        catalog.get_task("ws", "hello-wold")
    with pytest.raises(NotFound, match="ws/hello-world"):
        catalog.get_task("other", "ws/hello-world")
    for revision in ("no-such-tag", A, "1"):
        with pytest.raises(NotFound, match=revision):
            catalog.get_task("ws", "hello-world", revision)
    with pytest.raises(NotFound):
        catalog.get_taskset("ws", "hello-world")


def test_many_tasks_at_once(catalog: TaskCatalog) -> None:
    names = [f"t{number:04}" for number in range(1201)]  # more than two queries hold
    for name in names[::400]:
        catalog.put_task("ws", name, body(name, tags=["stable"]))
    catalog.put_task("other", "t0001", body("elsewhere"))
    found = catalog.get_tasks("ws", [*names, names[0]])
    assert sorted(found) == names[::400]
    assert found["t0400"] == catalog.get_task("ws", "t0400")
    assert found["t0400"].tags == {"latest": 1, "stable": 1}
    assert catalog.get_tasks("ws", []) == {}


def test_pinned_tasks_come_in_the_order_given(catalog: TaskCatalog) -> None:
    old, _ = catalog.put_task("ws", "a", body("old"))
    catalog.put_task("ws", "a", body("new"))
    other, _ = catalog.put_task("other", "b", body("b"))
    found = catalog.get_pinned_tasks([other.ref, old.ref, other.ref])
    assert [task.ref for task in found] == [other.ref, old.ref, other.ref]
    assert found[1].revision == 1
    assert catalog.get_pinned_tasks([]) == []


def test_pinned_tasks_that_do_not_resolve_are_all_named(catalog: TaskCatalog) -> None:
    task, _ = catalog.put_task("ws", "a", body("one"))
    wrong = [f"ws/a#{A}", f"ws/b#{task.digest}", f"a#{task.digest}", "ws/a#latest", "ws/a"]
    with pytest.raises(NotFound) as caught:
        catalog.get_pinned_tasks([task.ref, *wrong])
    assert [problem.subject for problem in caught.value.problems] == wrong


def test_lists_are_paged_oldest_first(catalog: TaskCatalog) -> None:
    names = ["c", "a", "b"]
    for name in names:
        catalog.put_task("ws", name, body(name))
    catalog.put_task("ws", "c", body("changed"))
    pages = [catalog.list_tasks("ws", page=page, page_size=2) for page in (1, 2, 3)]
    assert [[task.name for task in page.items] for page in pages] == [["c", "a"], ["b"], []]
    assert {(page.total, page.page_size) for page in pages} == {(3, 2)}
    assert catalog.list_tasks("nowhere").total == 0
    for page, size in ((0, 1), (1, 0), (1, 1001)):
        with pytest.raises(Refused):
            catalog.list_tasks("ws", page=page, page_size=size)


def test_what_was_published_since_a_moment_comes_oldest_first_with_every_revision(catalog: TaskCatalog) -> None:
    assert catalog.published("task") == []
    first, _ = catalog.put_task("ws", "t", body("one"))
    other, _ = catalog.put_task("another", "u", body("one"))
    catalog.put_task("ws", "t", body("one"))  # unchanged: nothing was published
    second, _ = catalog.put_task("ws", "t", body("two"))
    taskset, _ = catalog.put_taskset("ws", "s", TasksetInput(tasks=["t"]))
    told = catalog.published("task")
    assert [ref for _, ref in told] == [first.ref, other.ref, second.ref]
    assert catalog.published("task", told[0][0]) == told[1:]
    assert catalog.published("task", told[0][0], limit=1) == told[1:2]
    assert [ref for _, ref in catalog.published("taskset")] == [taskset.ref]


def test_a_taskset_pins_its_members(catalog: TaskCatalog) -> None:
    old, _ = catalog.put_task("ws", "a", body("old", tags=["v1"]))
    new, _ = catalog.put_task("ws", "a", body("new"))
    b, _ = catalog.put_task("ws", "b", body("b"))
    for member, expected in (("a", new), ("ws/a", new), ("a#latest", new), ("a#v1", old), (old.ref, old)):
        taskset, _ = catalog.put_taskset("ws", "s", TasksetInput(tasks=["b", member]))
        assert taskset.tasks == sorted([b.ref, expected.ref])
    catalog.put_task("ws", "b", body("changed"))
    assert b.ref in catalog.get_taskset("ws", "s").tasks, "a pinned member stays what it was"


def test_a_taskset_of_another_workspace_and_of_nothing(catalog: TaskCatalog) -> None:
    task, _ = catalog.put_task("ws", "a", body("a"))
    assert catalog.put_taskset("other", "s", TasksetInput(tasks=["ws/a"]))[0].tasks == [task.ref]
    empty, cut = catalog.put_taskset("other", "none", TasksetInput(tasks=[]))
    assert cut
    assert empty.tasks == []


def test_a_task_that_may_not_be_read_is_as_if_it_were_not_there(catalog: TaskCatalog) -> None:
    hidden, _ = catalog.put_task("secret", "a", body("one"))
    for asked in (TasksetInput(tasks=["secret/a"]), TasksetInput(task_ids=[hidden.id])):
        with pytest.raises(Refused):
            catalog.put_taskset("ws", "s", asked, readable=lambda workspace: workspace != "secret")
        assert catalog.put_taskset("ws", "s", asked, readable=lambda workspace: True)[0].tasks == [hidden.ref]


def test_a_taskset_is_unchanged_by_order_and_changed_by_a_members_revision(catalog: TaskCatalog) -> None:
    for name in ("a", "b"):
        catalog.put_task("ws", name, body(name))
    first, _ = catalog.put_taskset("ws", "s", TasksetInput(tasks=["a", "b"], description="d", files_ref="ws/f#x"))
    again, cut = catalog.put_taskset("ws", "s", TasksetInput(tasks=["b", "a"], description="d", files_ref="ws/f#x"))
    assert not cut
    assert again == first == catalog.get_taskset("ws", "s", first.digest)
    assert catalog.get_taskset("ws", "s").description == "d"
    catalog.put_task("ws", "a", body("changed"))
    changed, cut = catalog.put_taskset("ws", "s", TasksetInput(tasks=["b", "a"], description="d", files_ref="ws/f#x"))
    assert cut
    assert changed.revision == 2
    assert changed.id.startswith("taskset-")


def test_unknown_and_double_members_are_all_named(catalog: TaskCatalog) -> None:
    task, _ = catalog.put_task("ws", "a", body("a"))
    members = ["a", "nope", task.ref, "ws/a", "not a ref!", f"a#{A}", "a#no-tag"]
    with pytest.raises(Refused) as caught:
        catalog.put_taskset("ws", "s", TasksetInput(tasks=members))
    said = {problem.subject: problem.message for problem in caught.value.problems}
    assert set(said) == set(members) - {"a"}
    assert "no such task" in said["nope"]
    assert "none of its revisions is 'no-tag'" in said["a#no-tag"]
    with pytest.raises(NotFound):
        catalog.get_taskset("ws", "s")


def test_tasksets_are_listed(catalog: TaskCatalog) -> None:
    catalog.put_taskset("ws", "s", TasksetInput(tasks=[], tags=["v1"]))
    (found,) = catalog.list_tasksets("ws").items
    assert (found.name, found.tags) == ("s", {"latest": 1, "v1": 1})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_json_cannot_hold_is_refused(catalog: TaskCatalog, value: float) -> None:
    with pytest.raises(Refused, match="JSON"):
        catalog.put_task("ws", "t", body(metadata=[{"key": "k", "value": value}]))


def test_a_name_that_no_record_can_have_is_our_callers_mistake(catalog: TaskCatalog) -> None:
    for call in (catalog.get_task, catalog.get_taskset, catalog.delete_task, catalog.delete_taskset):
        with pytest.raises(Refused):
            call("ws", "a\0b")
    with pytest.raises(Refused):
        catalog.put_task("ws", "t", body("one"), project="a\0b")
    with pytest.raises(Refused):
        catalog.put_taskset("ws", "s", TasksetInput(task_ids=["task-\0"]))


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=json_values, key=st.text())
def test_any_json_is_read_back_as_it_was_digested(catalog: TaskCatalog, value: object, key: str) -> None:
    name = f"t{secrets.token_hex(6)}"
    given_body = body(metadata=[{"key": key, "value": value}], config={"kept": value})
    stored, _ = catalog.put_task("ws", name, given_body)
    assert stored.digest == given_body.digest()
    read = catalog.get_task("ws", name, stored.digest)
    assert read.metadata == given_body.metadata
    assert read.spec == given_body.spec
    assert not catalog.put_task("ws", name, given_body)[1]
