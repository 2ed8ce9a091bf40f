"""Images in the catalog."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from harbor_assets.catalog.store import Catalog
from harbor_assets.domain.images import ImageRecord, TaskImage
from harbor_assets.domain.plans import ImageConfig, ImageProblem
from harbor_assets.engine.ports import ImageCatalog
from harbor_assets.engine.taskset_images import ScopedImages
from tests.catalog.samples import A

B = "b" * 64
NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


@pytest.fixture(params=["whole", "scoped"])
def images(request: pytest.FixtureRequest, url: str) -> Iterator[ImageCatalog]:
    """The catalog, and one engine's part of it, in which another engine has an image of the same key."""
    with Catalog.open(url) as opened:
        if request.param == "whole":
            yield opened
            return
        other = ScopedImages(opened, "docker")
        other.put_image(record(A, name="other"))
        assert other.claim_image(A, "one", now=NOW, until=NOW + timedelta(days=1))
        yield ScopedImages(opened, "podman")
        assert other.images([A]) == {A: record(A, name="other")}
        assert other.claimed_images([A], now=NOW) == {A}


def record(key: str = A, **more: object) -> ImageRecord:
    values = {"name": "hello", "state": "failed", "seen_at": NOW, **more}
    return ImageRecord.model_validate({"key": key, **values})


def test_a_record_is_replaced_whole(images: ImageCatalog):
    images.put_image(record())
    ready = record(
        state="ready", ref="r/x@sha256:" + A, config=ImageConfig(user="me", env={"A": "1"}), log="images/log"
    )
    images.put_image(ready)
    assert images.images([A, B, A]) == {A: ready}
    failed = record(state="failed", problem=ImageProblem(reason="image_build", message="exit code 1"))
    images.put_image(failed)
    assert images.images([A]) == {A: failed}


def test_what_a_task_needs_is_replaced_and_unknown_ones_are_left_out(images: ImageCatalog):
    images.put_task_images(A, [TaskImage(role="verifier", key=A), TaskImage(role="agent", key=B)])
    images.put_task_images(A, [TaskImage(role="agent", problem="no Dockerfile")])
    assert images.task_images([A, B]) == {A: [TaskImage(role="agent", problem="no Dockerfile")]}


def test_ready_ones_come_oldest_first_after_a_moment(images: ImageCatalog):
    for at, key in enumerate("cba"):
        images.put_image(record(key * 64, name=key, state="ready", seen_at=NOW + timedelta(seconds=at)))
    images.put_image(record("d" * 64, state="failed"))
    assert [found.name for found in images.ready_images()] == ["c", "b", "a"]
    assert [found.name for found in images.ready_images(NOW, limit=1)] == ["b"]


def test_an_image_is_seen_to_by_one_until_it_lets_go_or_its_time_is_up(images: ImageCatalog):
    later = NOW + timedelta(seconds=30)
    assert images.claim_image(A, "one", now=NOW, until=later)
    assert not images.claim_image(A, "two", now=NOW, until=later)
    assert images.claim_image(B, "two", now=NOW, until=later)
    assert images.claim_image(A, "one", now=NOW, until=later + timedelta(seconds=30))  # kept for longer
    assert not images.claim_image(A, "two", now=later, until=later + timedelta(seconds=60))
    assert images.claimed_images([A, B], now=later) == {A}
    images.release_image(A, "two")
    assert images.claimed_images([A], now=NOW) == {A}
    images.release_image(A, "one")
    assert images.claim_image(A, "two", now=NOW, until=later)
    assert images.claim_image(A, "three", now=later, until=later + timedelta(seconds=30))


def test_of_many_at_once_one_gets_the_image(images: ImageCatalog):
    def ask(holder: int) -> bool:
        return images.claim_image(A, str(holder), now=NOW, until=NOW + timedelta(seconds=30))

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(8))) == 1
