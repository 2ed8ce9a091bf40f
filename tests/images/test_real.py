"""Real builds: a BuildKit and a registry beside the test cluster."""

import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harbor_assets.domain.errors import ServiceUnavailable
from harbor_assets.domain.images import BuildRequest, ImageView
from harbor_assets.engine.images import ImageBuilds
from harbor_assets.engine.ports import BuildFailed, BuildOrder
from harbor_assets.examples import hello_world
from harbor_assets.images import registries_of
from harbor_assets.images.buildkit import BuildKit
from harbor_assets.images.registry import RegistryClient
from tests.engine.test_images import World

pytestmark = [
    pytest.mark.req_k8s,
    pytest.mark.skipif("not os.environ.get('TEST_BUILDKIT')", reason="needs a BuildKit: TEST_BUILDKIT is not set"),
]
REGISTRY, BUILDKIT = os.environ.get("TEST_REGISTRY", ""), os.environ.get("TEST_BUILDKIT", "")
REGISTRIES = registries_of(REGISTRY, f"docker.io={REGISTRY}", None)


@pytest.fixture
def prefix() -> str:
    """A folder of the registry that no other test has used."""
    return f"{REGISTRY}/test-{secrets.token_hex(4)}"


@pytest.fixture
def kit() -> BuildKit:
    return BuildKit(BUILDKIT, REGISTRIES)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "context"
    made.mkdir()
    return made


def test_a_context_arrives_as_it_is_and_the_image_tells_how_it_runs(kit: BuildKit, prefix: str, folder: Path):
    (folder / "ünï").mkdir()
    (folder / "ünï" / "ö.txt").write_text("umlaut")
    (folder / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (folder / "run.sh").chmod(0o750)
    (folder / "link").symlink_to("ünï/ö.txt")
    (folder / "left-out.log").write_text("secret")
    (folder / ".dockerignore").write_text("*.log\n")
    (folder / "big").write_bytes(os.urandom(3 << 20))
    (folder / "Dockerfile").write_text(
        "FROM busybox:1\nWORKDIR /app\nCOPY . .\nENV GREETING=hello\n"
        "RUN test ! -e left-out.log && test $(cat link) = umlaut && test $(stat -c %a run.sh) = 750 && ./run.sh\n"
        "RUN test $(stat -c %s big) = 3145728 && test $(stat -c %u:%g big) = 0:0\nUSER nobody\n"
    )
    before = threading.active_count()
    log = kit.log()
    ref = kit.build(BuildOrder(folder, f"{prefix}/x:1", 120), log)
    registry = RegistryClient(REGISTRIES)
    assert registry.exists(ref)
    assert registry.resolve(f"{prefix}/x:1") == ref
    config = registry.config(ref)
    assert (config.user, config.workdir, config.env["GREETING"]) == ("nobody", "/app", "hello")
    assert b"ran" in log.content()
    until = time.monotonic() + 5  # gRPC's own threads take a moment to go
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.05)
    assert threading.active_count() <= before


def test_what_fails_is_told_in_the_builders_words(kit: BuildKit, prefix: str, folder: Path):
    (folder / "Dockerfile").write_text("FROM busybox:1\nRUN echo so far && exit 7\n")
    log = kit.log()
    with pytest.raises(BuildFailed, match="exit code: 7"):
        kit.build(BuildOrder(folder, f"{prefix}/x:1", 120), log)
    assert b"so far" in log.content()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("FROM no-such-image-anywhere:1\n", "not found"),
        ("FROM busybox:1\nFLY away\n", "unknown instruction"),
        ("FROM busybox:1\nCOPY missing /\n", "missing"),
    ],
)
def test_a_dockerfile_that_cannot_be_built(kit: BuildKit, prefix: str, folder: Path, text: str, says: str):
    (folder / "Dockerfile").write_text(text)
    with pytest.raises(BuildFailed, match=says):
        kit.build(BuildOrder(folder, f"{prefix}/x:1", 60), kit.log())


def test_a_build_ends_when_its_time_is_up(kit: BuildKit, prefix: str, folder: Path):
    (folder / "Dockerfile").write_text(f"FROM busybox:1\nRUN echo {prefix} && sleep 60\n")
    begin = time.monotonic()
    with pytest.raises(BuildFailed, match="did not end within 2 s"):
        kit.build(BuildOrder(folder, f"{prefix}/x:1", 2), kit.log())
    assert time.monotonic() - begin < 30


def test_no_builder_is_no_fact_about_the_image(prefix: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("harbor_assets.images.buildkit.CONNECT_SECONDS", 0.5)
    (folder / "Dockerfile").write_text("FROM busybox:1\n")
    nobody = BuildKit("tcp://127.0.0.1:9", REGISTRIES)
    with pytest.raises(ServiceUnavailable, match="does not answer"):
        nobody.build(BuildOrder(folder, f"{prefix}/x:1", 5), nobody.log())


class Real(World):
    """A taskset whose images are really built."""

    def __init__(self, tmp: Path, prefix: str) -> None:
        super().__init__(tmp)
        self.prefix = prefix
        self.builds = self.real()

    def real(self) -> ImageBuilds:
        return ImageBuilds(
            tasks=self.catalog,
            images=self.catalog,
            folders=self.folders,
            registry=RegistryClient(REGISTRIES),
            artifacts=self.artifacts,
            builder=BuildKit(BUILDKIT, REGISTRIES),
            prefix=self.prefix,
        )

    def ended(self) -> dict[str, ImageView]:
        self.builds.start("w", "suite", BuildRequest(concurrency=2))
        until = time.monotonic() + 120
        while not (status := self.builds.status("w", "suite")).done:
            assert time.monotonic() < until
            time.sleep(0.05)
        return {view.task: view for view in status.images}


@pytest.fixture
def real(tmp_path: Path, prefix: str) -> Iterator[Real]:
    made = Real(tmp_path, prefix)
    with made.catalog:
        yield made


def test_the_images_of_a_suite(real: Real, tmp_path: Path):
    real.publish(a="x", b="FROM busybox:1\nRUN exit 3", c="image:debian:bookworm-slim", d="image:debian:no-such-tag")
    shutil.copy(hello_world() / "hello-world" / "environment" / "Dockerfile", tmp_path / "a" / "environment")
    views = real.ended()
    assert {name: view.state for name, view in views.items()} == {
        "a": "ready",
        "b": "failed",
        "c": "ready",
        "d": "failed",
    }
    assert str(views["a"].ref).startswith(f"{real.prefix}/a@sha256:")
    assert str(views["c"].ref).startswith(f"{REGISTRY}/library/debian@sha256:")
    a, b, _, d = real.resolved()
    assert a.config["agent"].workdir == "/app"
    assert b.problem.reason == "image_build"
    assert (d.problem.reason, "debian:no-such-tag" in d.problem.message) == ("image_pull", True)
    assert b"exit code: 3" in real.builds.log(str(views["b"].key))

    again = real.ended()
    assert (again["a"].unchanged, again["c"].unchanged, again["a"].ref) == (True, True, views["a"].ref)


def test_layers_come_from_the_registrys_cache(kit: BuildKit, prefix: str, folder: Path):
    (folder / "Dockerfile").write_text(f"FROM busybox:1\nRUN echo {prefix} > /x\nCOPY f /f\n")
    (folder / "f").write_text("one")
    kit.build(BuildOrder(folder, f"{prefix}/x:1", 60), kit.log())
    assert RegistryClient(REGISTRIES).exists(RegistryClient(REGISTRIES).resolve(f"{prefix}/x:cache"))
    (folder / "f").write_text("two")
    log = kit.log()
    kit.build(BuildOrder(folder, f"{prefix}/x:2", 60), log)
    assert b"CACHED" in log.content()
