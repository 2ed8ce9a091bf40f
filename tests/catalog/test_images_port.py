"""Images in the catalog."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from harbor_assets.catalog.store import Catalog
from harbor_assets.domain.images import ImageRecord, TaskImage
from harbor_assets.domain.plans import ImageConfig, ImageProblem
from tests.catalog.samples import A

B = "b" * 64
NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


@pytest.fixture
def images(url: str):
    with Catalog.open(url) as opened:
        yield opened


def record(key: str = A, **more: object) -> ImageRecord:
    values = {"name": "hello", "state": "failed", "seen_at": NOW, **more}
    return ImageRecord.model_validate({"key": key, **values})


def test_a_record_is_replaced_whole(images: Catalog):
    images.put_image(record())
    ready = record(
        state="ready", ref="r/x@sha256:" + A, config=ImageConfig(user="me", env={"A": "1"}), log="images/log"
    )
    images.put_image(ready)
    assert images.images([A, B, A]) == {A: ready}
    failed = record(state="failed", problem=ImageProblem(reason="image_build", message="exit code 1"))
    images.put_image(failed)
    assert images.images([A]) == {A: failed}


def test_what_a_task_needs_is_replaced_and_unknown_ones_are_left_out(images: Catalog):
    images.put_task_images(A, [TaskImage(role="verifier", key=A), TaskImage(role="agent", key=B)])
    images.put_task_images(A, [TaskImage(role="agent", problem="no Dockerfile")])
    assert images.task_images([A, B]) == {A: [TaskImage(role="agent", problem="no Dockerfile")]}


def test_ready_ones_come_oldest_first_after_a_moment(images: Catalog):
    for at, key in enumerate("cba"):
        images.put_image(record(key * 64, state="ready", seen_at=NOW + timedelta(seconds=at)))
    images.put_image(record("d" * 64, state="failed"))
    assert [found.key[0] for found in images.ready_images()] == ["c", "b", "a"]
    assert [found.key[0] for found in images.ready_images(NOW, limit=1)] == ["b"]


def test_an_image_is_seen_to_by_one_until_it_lets_go_or_its_time_is_up(images: Catalog):
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


def test_of_many_at_once_one_gets_the_image(images: Catalog):
    def ask(holder: int) -> bool:
        return images.claim_image(A, str(holder), now=NOW, until=NOW + timedelta(seconds=30))

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(8))) == 1
