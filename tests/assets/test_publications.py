"""What was published is told once, with its keys, whatever the cursor says."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from harbor_assets.assets import publications
from harbor_assets.assets.publications import Followed, Found, Publications
from harbor_assets.domain.errors import Broken
from harbor_assets.domain.images import ImageRecord
from harbor_assets.domain.tasks import TasksetInput
from tests.catalog.samples import body
from tests.fakes.catalog import MemoryCatalog


class Place:
    def __init__(self) -> None:
        self.catalog, self.images, self.keys = MemoryCatalog(), list[ImageRecord](), dict[str, set[str]]()
        self.broken: set[str] = set()
        self.publications = Publications(self.catalog, self, self)  # type: ignore[arg-type]
        self.followed = Followed()

    def ready_images(self, after: datetime | None, *, limit: int) -> list[ImageRecord]:
        return [image for image in self.images if after is None or image.seen_at > after][:limit]

    def task_files(self, source: Any) -> list[tuple[str, int]]:
        if source.fileset_ref in self.broken:
            raise Broken("the archive is not what its hash says")
        return [("instruction.md", 3), ("task.toml", 7)]

    def look(self) -> Found:
        found = self.publications.since(
            Followed.read(self.followed.text()), known=lambda name: set(self.keys.get(name, ()))
        )
        for name, keys in found.partitions.items():
            self.keys.setdefault(name, set()).update(keys)
        self.followed = found.followed
        return found

    def told(self) -> list[tuple[str, str | None]]:
        return [(event.asset_key.to_user_string(), event.partition) for event in self.look().events]


@pytest.fixture
def place() -> Place:
    return Place()


def image(seconds: float = 0, digit: str = "a") -> ImageRecord:
    at = datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    ref = f"registry/t@sha256:{digit * 64}"
    return ImageRecord(key=digit * 64, name="registry/t:1", state="ready", ref=ref, seen_at=at)


def test_each_kind_is_told_once_with_what_a_person_looks_for(place: Place) -> None:
    task, _ = place.catalog.put_task("ws", "t", body("one"))
    taskset, _ = place.catalog.put_taskset("ws", "s", TasksetInput(tasks=["t"]))
    place.images.append(image())
    found = place.look()
    keys = {event.asset_key.to_user_string(): event.partition for event in found.events}
    assert keys == {
        "harbor_task": f"ws/t#{task.digest[:12]}",
        "taskset": f"ws/s#{taskset.digest[:12]}",
        "task_image": f"sha256:{'a' * 12}",
    }
    told = found.events[0]
    assert told.tags == {"dagster/data_version": task.digest}
    assert (told.metadata["files"].value, told.metadata["bytes"].value) == (2, 10)
    assert set(found.partitions["task"]) == {keys["harbor_task"]}
    assert place.told() == []


def test_a_revision_and_an_image_of_later_are_told_and_the_old_ones_not_again(place: Place) -> None:
    place.catalog.put_task("ws", "t", body("one"))
    place.images.append(image())
    place.look()
    task, _ = place.catalog.put_task("ws", "t", body("two"))
    place.images.append(image(5, "b"))
    assert place.told() == [("harbor_task", f"ws/t#{task.digest[:12]}"), ("task_image", f"sha256:{'b' * 12}")]


def test_what_is_seen_later_than_its_moment_says_is_told(place: Place) -> None:
    place.images.append(image(5, "b"))
    place.look()
    place.images.insert(0, image(0, "a"))
    assert place.told() == [("task_image", f"sha256:{'a' * 12}")]


def test_an_unreadable_cursor_tells_nothing_twice(place: Place) -> None:
    place.catalog.put_task("ws", "t", body("one"))
    place.look()
    for text in ("", "[]", "no json", '{"task": "yesterday"}', '{"task": 1}'):
        assert Followed.read(text) == Followed()
    place.followed = Followed()
    assert place.told() == []


@pytest.mark.parametrize("page", [1, 2, 3, 50])
def test_many_are_told_a_few_at_a_time(place: Place, monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    monkeypatch.setattr(publications, "EVENTS_MAX", 2)
    monkeypatch.setattr(publications, "_PAGE", page)
    for i in range(5):
        place.catalog.put_task("ws", f"t{i}", body(str(i)))
    told = [[str(partition).partition("#")[0] for _, partition in place.told()] for _ in range(4)]
    assert told == [["ws/t0", "ws/t1"], ["ws/t2", "ws/t3"], ["ws/t4"], []]


def test_what_cannot_be_read_is_said_and_stops_no_other(place: Place) -> None:
    bad, _ = place.catalog.put_task("ws", "bad", body("one"))
    place.broken.add(bad.spec.source.fileset_ref)
    good, _ = place.catalog.put_task("ws", "good", body("two"))
    found = place.look()
    assert [event.partition for event in found.events] == [f"ws/good#{good.digest[:12]}"]
    assert "not what its hash says" in found.problems[0]
