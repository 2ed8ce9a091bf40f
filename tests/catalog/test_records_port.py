"""Revisions, tags, deletion and projects, on every catalog, the fake one too. The rules are the API's."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from harbor_assets.domain.errors import Conflict, NotFound, Refused
from harbor_assets.domain.tasks import Sort, TasksetInput
from tests.catalog.samples import body

ABSENT = "0" * 64


def test_revisions_are_newest_first_with_the_tags_that_point_at_them_now(catalog: Any) -> None:
    digests = [catalog.put_task("ws", "t", body(word))[0].digest for word in ("one", "two", "three")]
    catalog.tag_task("ws", "t", "stable", digests[0])
    catalog.tag_task("ws", "t", "also", digests[0])
    page = catalog.task_revisions("ws", "t")
    assert [(r.revision, r.content_hash, r.tags) for r in page.items] == [
        (3, digests[2], ["latest"]),
        (2, digests[1], []),
        (1, digests[0], ["also", "stable"]),
    ]
    second = catalog.task_revisions("ws", "t", page=2, page_size=2)
    assert ([r.revision for r in second.items], second.total) == ([1], 3)
    assert not catalog.task_revisions("ws", "t", page=9).items


def test_a_tag_moves_both_ways_and_the_record_changes_with_it(catalog: Any) -> None:
    first, second = (catalog.put_task("ws", "t", body(word))[0] for word in ("one", "two"))
    record = catalog.tag_task("ws", "t", "stable", second.digest)
    assert (record.revision, record.tags) == (2, {"latest": 2, "stable": 2})
    back = catalog.tag_task("ws", "t", "stable", first.digest)
    assert back.tags == {"latest": 2, "stable": 1}
    assert back.updated_at >= record.updated_at
    again = catalog.tag_task("ws", "t", "stable", "stable")
    assert again == back, "a tag that points there already changes nothing"
    assert catalog.get_task("ws", "t", "stable").digest == first.digest
    assert catalog.tag_task("ws", "t", "newest", "latest").tags["newest"] == 2


@pytest.mark.parametrize("tag", ["latest", ABSENT, "a b", "", "a/b"])
def test_tags_that_cannot_be_set(catalog: Any, tag: str) -> None:
    task, _ = catalog.put_task("ws", "t", body("one"))
    with pytest.raises(Refused):
        catalog.tag_task("ws", "t", tag, task.digest)
    assert catalog.get_task("ws", "t").tags == {"latest": 1}


@pytest.mark.parametrize("revision", [ABSENT, "nope"])
def test_a_tag_for_what_is_not_there(catalog: Any, revision: str) -> None:
    catalog.put_task("ws", "t", body("one"))
    with pytest.raises(NotFound):
        catalog.tag_task("ws", "t", "stable", revision)
    with pytest.raises(NotFound):
        catalog.tag_task("ws", "absent", "stable", "latest")
    assert catalog.get_task("ws", "t").tags == {"latest": 1}


def test_what_is_deleted_is_gone_with_its_revisions_and_its_name_starts_afresh(catalog: Any) -> None:
    old, _ = catalog.put_task("ws", "t", body("one", tags=["stable"]))
    catalog.put_task("ws", "t", body("two"))
    catalog.delete_task("ws", "t")
    asks: list[Callable[[], object]] = [
        lambda: catalog.get_task("ws", "t"),
        lambda: catalog.get_task("ws", "t", old.digest),
        lambda: catalog.get_task("ws", "t", "stable"),
        lambda: catalog.task_revisions("ws", "t"),
        lambda: catalog.delete_task("ws", "t"),
    ]
    for ask in asks:
        with pytest.raises(NotFound):
            ask()
    assert not catalog.list_tasks("ws").items
    new, cut = catalog.put_task("ws", "t", body("one"))
    assert cut
    assert (new.revision, new.tags, new.digest) == (1, {"latest": 1}, old.digest)
    assert new.id != old.id


def test_a_taskset_outlives_its_members_and_is_deleted_alone(catalog: Any) -> None:
    task, _ = catalog.put_task("ws", "t", body("one"))
    catalog.put_taskset("ws", "s", TasksetInput(tasks=["t"]))
    catalog.delete_task("ws", "t")
    assert catalog.get_taskset("ws", "s").tasks == [task.ref]
    with pytest.raises(Refused):
        catalog.put_taskset("ws", "s", TasksetInput(tasks=["t"]))
    catalog.put_task("ws", "t", body("one"))
    catalog.delete_taskset("ws", "s")
    with pytest.raises(NotFound):
        catalog.get_taskset("ws", "s")
    assert catalog.get_task("ws", "t").digest == task.digest


def test_create_is_for_what_is_new(catalog: Any) -> None:
    catalog.put_task("ws", "t", body("one"), create=True)
    with pytest.raises(Conflict):
        catalog.put_task("ws", "t", body("two"), create=True)
    assert catalog.get_task("ws", "t").revision == 1
    catalog.put_taskset("ws", "s", TasksetInput(tasks=[]), create=True)
    with pytest.raises(Conflict):
        catalog.put_taskset("ws", "s", TasksetInput(tasks=[]), create=True)


@pytest.mark.parametrize("sort", list(Sort))
def test_lists_are_sorted_as_asked_and_paged_without_gaps(catalog: Any, sort: Sort) -> None:
    for name in ("b", "a", "c", "B"):
        catalog.put_task("ws", name, body(name))
    catalog.put_task("ws", "a", body("changed"))
    tasks = [task for page in (1, 2) for task in catalog.list_tasks("ws", page=page, page_size=2, sort=sort).items]
    key = sort.removeprefix("-")
    values = [getattr(task, key) for task in tasks]
    assert values == sorted(values, reverse=sort.startswith("-"))
    assert {task.name for task in tasks} == {"a", "b", "c", "B"}


def test_a_project_is_made_used_and_kept_until_it_is_empty(catalog: Any) -> None:
    with pytest.raises(Refused):
        catalog.put_task("ws", "t", body("one"), project="p")
    assert catalog.put_project("ws", "p")[1]
    assert not catalog.put_project("ws", "p")[1]
    catalog.put_project("ws", "q")
    assert [project.name for project in catalog.list_projects("ws").items] == ["p", "q"]
    assert catalog.put_task("ws", "t", body("one"), project="p")[0].project == "p"
    with pytest.raises(Conflict):
        catalog.delete_project("ws", "p")
    moved, cut = catalog.put_task("ws", "t", body("one"), project="q")
    assert (moved.project, cut) == ("q", False)
    catalog.delete_project("ws", "p")
    with pytest.raises(NotFound):
        catalog.delete_project("ws", "p")


@pytest.mark.parametrize("ends", ["revision", "deleted"])
def test_writers_and_a_deleter_of_one_name_leave_one_whole_record_or_none(catalog: Any, ends: str) -> None:
    start = threading.Barrier(6)

    def write(n: int) -> str:
        start.wait(30)
        try:
            if n == 0 and ends == "deleted":
                catalog.delete_task("ws", "t")
            else:
                catalog.put_task("ws", "t", body(f"w{n}"))
        except (NotFound, Conflict) as refused:
            return type(refused).__name__
        return "done"

    catalog.put_task("ws", "t", body("first"))
    with ThreadPoolExecutor(6) as pool:
        assert set(pool.map(write, range(6))) <= {"done", "Conflict"}
    page = catalog.task_revisions("ws", "t") if catalog.list_tasks("ws").items else None
    if page is not None:
        assert [r.revision for r in page.items] == list(range(page.total, 0, -1))
    assert ends == "deleted" or (page is not None and page.total == 7)
