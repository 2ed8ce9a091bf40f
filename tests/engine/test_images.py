"""Building the images of a taskset, with a builder and a registry that do what a test wants."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import JsonValue

from harbor_assets.catalog.store import Catalog
from harbor_assets.domain.errors import NotFound, Refused, ServiceUnavailable
from harbor_assets.domain.images import BuildRequest, ImageStatus, context_key
from harbor_assets.domain.plans import ImageConfig
from harbor_assets.domain.tasks import ArchiveSource, HarborHash, HarborTask, TaskInput, TasksetInput
from harbor_assets.engine.images import ImageBuilds
from harbor_assets.engine.mirroring import ImageMirror
from harbor_assets.engine.ports import Archived, BuildFailed, BuildLines, BuildOrder
from harbor_assets.images.context import key_entries
from harbor_assets.images.progress import BuildLog
from tests.fakes.artifacts import MemoryArtifacts

PREFIX = "registry.test:5000/evals"
SHA = "sha256:" + "d" * 64


class Builder:
    """Builds by name: `outcome` says what becomes of a Dockerfile's text."""

    def __init__(self) -> None:
        self.built: list[BuildOrder] = []
        self.outcome: Callable[[str], None] = lambda text: None
        self.gate = threading.Event()
        self.gate.set()
        self.at_once = self.most = 0
        self._lock = threading.Lock()

    def key(self, folder: Path) -> str:
        return context_key(key_entries(folder))

    def log(self) -> BuildLines:
        return BuildLog()

    def build(self, order: BuildOrder, log: BuildLines) -> str:
        with self._lock:
            self.built.append(order)
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        try:
            assert self.gate.wait(10)
            log.line("#1 RUN make")
            self.outcome((order.context / "Dockerfile").read_text())
        finally:
            with self._lock:
                self.at_once -= 1
        return f"{order.tag.rpartition(':')[0]}@{SHA}"


class Registry:
    def __init__(self) -> None:
        self.tags = {"busybox:1": "r/busybox@sha256:" + "b" * 64}
        self.gone: set[str] = set()
        self.down = False

    def _ask(self) -> None:
        if self.down:
            raise ServiceUnavailable("no registry")

    def resolve(self, image: str) -> str:
        self._ask()
        if image not in self.tags:
            raise NotFound(f"{image} is not in the registry")
        return self.tags[image]

    def exists(self, ref: str) -> bool:
        self._ask()
        return ref not in self.gone

    def config(self, ref: str) -> ImageConfig:
        self._ask()
        return ImageConfig(user="app", workdir="/app")


class Folders:
    def __init__(self, root: Path) -> None:
        self.root = root

    def get(self, task: Archived) -> Path:
        return self.root / task.files_hash[:8].strip("0")


class World:
    def __init__(self, tmp: Path) -> None:
        self.catalog = Catalog.open(f"sqlite:///{tmp / 'c.db'}")
        self.builder, self.registry, self.artifacts = Builder(), Registry(), MemoryArtifacts()
        self.folders = Folders(tmp)
        self.now: datetime | None = datetime(2026, 11, 29, tzinfo=UTC)  # None: as it is
        self.builds = self.made()

    def made(self, *, builder: bool = True, lease_seconds: float = 30.0, mirror: bool = False) -> ImageBuilds:
        return ImageBuilds(
            tasks=self.catalog,
            images=self.catalog,
            folders=self.folders,
            registry=self.registry,
            artifacts=self.artifacts,
            builder=self.builder if builder else None,
            prefix=PREFIX,
            clock=lambda: self.now or datetime.now(UTC),
            lease_seconds=lease_seconds,
            mirror=ImageMirror(self.registry, self.builder, PREFIX) if mirror else None,
        )

    def publish(self, configs: Mapping[str, dict[str, JsonValue]] | None = None, /, **dockerfiles: str) -> None:
        """Tasks a, b, ... of a taskset `suite`; a text that begins with `image:` is a docker_image instead. `configs`:
        their task.toml, for those that have more in it."""
        for name, text in dockerfiles.items():
            folder = self.folders.root / name / "environment"
            folder.mkdir(parents=True, exist_ok=True)
            config = (configs or {}).get(name, {})
            if text.startswith("image:"):
                config = {**config, "environment": {"docker_image": text.removeprefix("image:")}}
            elif text:
                (folder / "Dockerfile").write_text(text)
            source = ArchiveSource(fileset_ref="w/f#x", files_hash=name.rjust(8, "0").ljust(64, "0"))
            spec = HarborTask(
                native_task_id=name,
                source=source,
                harbor_hash=HarborHash(digest="1" * 64, harbor_version="0.26.0"),
                config=config,
            )
            self.catalog.put_task("w", name, TaskInput(spec=spec))
        self.catalog.put_taskset("w", "suite", TasksetInput(tasks=list(dockerfiles)))

    def run(self, **options: object) -> dict[str, str]:
        """Build, wait, and answer task -> state."""
        self.builds.start("w", "suite", BuildRequest.model_validate(options))
        return {view.task: view.state for view in self.wait().images}

    def wait(self) -> ImageStatus:
        until_true(lambda: self.builds.status("w", "suite").done)
        return self.builds.status("w", "suite")

    def resolved(self):
        return self.builds.resolve(self.catalog.get_pinned_tasks(self.catalog.get_taskset("w", "suite").tasks))


LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


def until_true(said: Callable[[], object]) -> None:
    until = time.monotonic() + 10
    while not said():
        assert time.monotonic() < until
        time.sleep(0.005)


@pytest.fixture
def w(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    with made.catalog:
        yield made


def fails_for(word: str, error: Exception) -> Callable[[str], None]:
    def outcome(text: str) -> None:
        if word in text:
            raise error

    return outcome


def test_every_image_is_pinned_by_digest_and_one_failure_stops_no_other(w: World):
    w.publish(a="FROM x", b="FROM bad", c="image:busybox:1", d="image:none:1", e="")
    w.builder.outcome = fails_for("bad", BuildFailed("exit code: 1"))
    assert w.run() == {"a": "ready", "b": "failed", "c": "ready", "d": "failed", "e": "failed"}
    a, b, c, d, e = w.resolved()
    assert a.images == {"agent": f"{PREFIX}/a@{SHA}"}
    assert a.config["agent"].user == "app"
    assert (b.images, b.problem.reason, b.problem.message) == ({}, "image_build", "exit code: 1")
    assert c.images["agent"].startswith("r/busybox@sha256:")
    assert d.problem.reason == "image_pull"
    assert "neither environment/Dockerfile nor a docker_image" in e.problem.message
    assert not any(found.missing for found in (a, b, c, d, e))


def test_what_was_never_built_is_missing(w: World):
    w.publish(a="FROM x", b="FROM y")
    assert [found.missing for found in w.resolved()] == [("agent",), ("agent",)]
    w.builds.start("w", "suite", BuildRequest(select=["a"]))
    assert {view.task: view.state for view in w.wait().images} == {"a": "ready", "b": "missing"}
    assert [found.missing for found in w.resolved()] == [(), ("agent",)]


def test_a_rerun_builds_what_failed_and_nothing_else(w: World):
    w.publish(a="FROM x", b="FROM bad")
    w.builder.outcome = fails_for("bad", BuildFailed("exit code: 1"))
    w.run()
    w.builder.outcome = lambda text: None
    assert w.run() == {"a": "ready", "b": "ready"}
    assert [order.tag.split("/")[2].split(":")[0] for order in w.builder.built].count("a") == 1
    assert [view.unchanged for view in w.builds.status("w", "suite").images] == [True, False]


def test_an_image_that_left_the_registry_is_built_again(w: World):
    w.publish(a="FROM x")
    w.run()
    w.registry.gone.add(f"{PREFIX}/a@{SHA}")
    assert w.run() == {"a": "ready"}
    assert len(w.builder.built) == 2


def test_a_changed_registry_means_a_new_build(w: World):
    w.publish(a="FROM x")
    w.run()
    w.builds._prefix = "other:5000/x"
    w.run()
    assert w.resolved()[0].images["agent"].startswith("other:5000/x/a@")


def test_tasks_with_one_context_share_one_build(w: World):
    w.publish(a="FROM x", b="FROM x", c="FROM x")
    assert set(w.run().values()) == {"ready"}
    assert len(w.builder.built) == 1
    assert len({found.images["agent"] for found in w.resolved()}) == 1


def test_a_moved_tag_is_pinned_anew_when_asked_and_not_before(w: World):
    w.publish(a="image:busybox:1")
    w.run()
    old = w.resolved()[0].images
    w.registry.tags["busybox:1"] = "r/busybox@sha256:" + "c" * 64
    assert w.resolved()[0].images == old
    w.run()
    assert w.resolved()[0].images["agent"].endswith("c" * 64)


def test_a_named_image_is_copied_once_for_each_digest(w: World):
    texts: list[str] = []
    w.builder.outcome = texts.append
    w.builds = w.made(mirror=True)
    w.publish(a="image:busybox:1")
    assert w.run() == {"a": "ready"}
    [first] = w.builder.built
    copied = f"{PREFIX}/mirror-busybox@{SHA}"
    assert (texts, w.resolved()[0].images) == ([f"FROM r/busybox@sha256:{'b' * 64}\n"], {"agent": copied})
    w.registry.tags[first.tag] = copied
    assert w.run() == {"a": "ready"}
    assert (len(w.builder.built), w.builds.status("w", "suite").images[0].unchanged) == (1, True)
    w.registry.tags["busybox:1"] = "r/busybox@sha256:" + "c" * 64
    w.run()
    assert w.builder.built[1].tag != first.tag
    assert texts[1] == f"FROM r/busybox@sha256:{'c' * 64}\n"


def test_a_copy_that_cannot_be_made_is_the_images_trouble(w: World):
    w.builder.outcome = fails_for("busybox", BuildFailed("denied"))
    w.builds = w.made(mirror=True)
    w.publish(a="image:busybox:1")
    assert w.run() == {"a": "failed"}
    problem = w.resolved()[0].problem
    assert problem
    assert problem.reason == "image_pull"
    assert "cannot be copied" in problem.message


def test_a_registry_that_is_down_takes_no_pinned_image_away(w: World):
    w.publish(a="image:busybox:1")
    w.run()
    w.registry.down = True
    assert w.run() == {"a": "ready"}


def test_a_builder_that_is_not_there_says_nothing_of_the_image(w: World):
    w.publish(a="FROM x")
    w.builder.outcome = fails_for("x", ServiceUnavailable("BuildKit does not answer"))
    assert w.run() == {"a": "failed"}
    assert w.builds.status("w", "suite").images[0].message == "BuildKit does not answer"
    assert w.resolved()[0].missing == ("agent",)
    assert w.resolved()[0].problem is None


def test_without_a_builder_named_images_are_found_and_the_rest_says_what_is_missing(w: World):
    w.publish(a="FROM x", b="image:busybox:1")
    w.builds = w.made(builder=False)
    assert w.run() == {"a": "failed", "b": "ready"}
    assert "HARBOR_ASSETS_BUILDKIT" in str(w.builds.status("w", "suite").images[0].message)


def test_a_failed_build_keeps_its_log(w: World):
    w.publish(a="FROM bad")
    w.builder.outcome = fails_for("bad", BuildFailed("exit code: 1"))
    w.run()
    (view,) = w.builds.status("w", "suite").images
    assert view.key
    text = w.builds.log(view.key).decode()
    assert "#1 RUN make" in text
    assert text.endswith("failed: exit code: 1\n")


def test_a_killed_builder_leaves_nothing_half(w: World):
    w.publish(a="FROM x")
    w.builder.gate.clear()
    w.builds.start("w", "suite", BuildRequest())
    other = w.made()  # another process
    until_true(lambda: w.builder.built)
    assert [b.status("w", "suite").images[0].state for b in (w.builds, other)] == ["building", "building"]
    w.now = datetime(2026, 11, 29, 0, 1, tzinfo=UTC)  # later than a killed one's claim lasts
    assert other.status("w", "suite").images[0].state == "missing"
    assert other.resolve(w.catalog.get_pinned_tasks(w.catalog.get_taskset("w", "suite").tasks))[0].missing
    w.builder.gate.set()
    w.wait()


def test_two_processes_build_an_image_once_and_fail_it_once(w: World):
    w.now = None
    w.publish(a="FROM x", b="FROM bad", c="FROM bad")
    w.builder.outcome = fails_for("bad", BuildFailed("exit code: 1"))
    w.builder.gate.clear()
    both = [w.made(lease_seconds=0.3) for _ in range(2)]
    for builds in both:
        builds.start("w", "suite", BuildRequest())
    until_true(lambda: len(w.builder.built) == 2)
    time.sleep(0.5)  # longer than a lease: the claim of a living builder is renewed
    w.builder.gate.set()
    for builds in both:
        until_true(lambda builds=builds: builds.status("w", "suite").done)
        assert [view.state for view in builds.status("w", "suite").images] == ["ready", "failed", "failed"]
    assert len(w.builder.built) == 2
    assert w.catalog.claimed_images([str(v.key) for v in both[0].status("w", "suite").images], now=LONG_AGO) == set()


def test_who_comes_after_a_killed_process_waits_for_its_claim_only(w: World):
    w.now = None
    w.publish(a="FROM x")
    key = w.builder.key(w.folders.root / "a" / "environment")
    now = datetime.now(UTC)
    assert w.catalog.claim_image(key, "killed", now=now, until=now + timedelta(seconds=0.5))
    assert w.run() == {"a": "ready"}
    assert (datetime.now(UTC) - now).total_seconds() >= 0.5


def test_two_requests_at_once_build_once_and_keep_the_cap(w: World):
    w.publish(**{name: f"FROM {name}" for name in "abcdef"})
    w.builder.gate.clear()
    for _ in range(2):
        w.builds.start("w", "suite", BuildRequest(concurrency=2))
    time.sleep(0.05)
    w.builder.gate.set()
    assert {view.state for view in w.wait().images} == {"ready"}
    assert len(w.builder.built) == 6
    assert w.builder.most <= 2


def test_unknown_tasks_are_refused_with_the_nearest(w: World):
    w.publish(abcde="FROM x")
    with pytest.raises(Refused, match="abced: is no task of it; near: abcde"):
        w.builds.start("w", "suite", BuildRequest(select=["abced"]))


def test_ready_images_can_be_told_of(w: World):
    w.publish(a="FROM x", b="FROM bad")
    w.builder.outcome = fails_for("bad", BuildFailed("no"))
    w.run()
    assert [record.ref for record in w.catalog.ready_images()] == [f"{PREFIX}/a@{SHA}"]
