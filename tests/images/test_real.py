"""Real builds: a BuildKit and a registry beside the test cluster."""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pydantic import JsonValue

from harbor_assets.artifacts import open_artifacts
from harbor_assets.domain.errors import ServiceUnavailable
from harbor_assets.domain.images import BuildRequest, ImageView
from harbor_assets.engine.images import ImageBuilds
from harbor_assets.engine.mirroring import ImageMirror
from harbor_assets.engine.ports import BuildFailed, BuildLines, BuildOrder
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


def eventually(look: Callable[[], object]) -> None:
    until = time.monotonic() + 180  # two cores, shared with other builds
    while not look():
        assert time.monotonic() < until
        time.sleep(0.05)


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


def test_base_images_come_from_a_mirror_that_the_builder_does_not_know(prefix: str, folder: Path):
    (folder / "Dockerfile").write_text("FROM nowhere.test/library/busybox:1 AS a\nFROM a\nRUN busybox true\n")
    kit = BuildKit(BUILDKIT, registries_of(REGISTRY, f"nowhere.test={REGISTRY}", None))
    assert "@sha256:" in kit.build(BuildOrder(folder, f"{prefix}/x:1", 60), kit.log())


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


class Counted(BuildKit):
    """Writes a line to a file for each build, so that builds of several processes can be counted."""

    def __init__(self, book: Path) -> None:
        super().__init__(BUILDKIT, REGISTRIES)
        self._book = book

    def build(self, order: BuildOrder, log: BuildLines) -> str:
        with self._book.open("a") as file:
            file.write(f"{order.tag}\n")
        return super().build(order, log)


class Real(World):
    """A taskset whose images are really built."""

    def __init__(self, tmp: Path, prefix: str, lease_seconds: float = 2.0) -> None:
        super().__init__(tmp)
        self.prefix, self.book, self.lease_seconds = prefix, tmp / "builds", lease_seconds
        self.artifacts = open_artifacts(str(tmp / "artifacts"))
        self.builds = self.real()

    @property
    def built(self) -> list[str]:
        """Names of the tasks that were built, each as often as that was begun, by whichever process."""
        lines = self.book.read_text().splitlines() if self.book.exists() else []
        return sorted(line.rpartition("/")[2].partition(":")[0] for line in lines)

    def real(self) -> ImageBuilds:
        return ImageBuilds(
            tasks=self.catalog,
            images=self.catalog,
            folders=self.folders,
            registry=RegistryClient(REGISTRIES),
            artifacts=self.artifacts,
            builder=Counted(self.book),
            prefix=self.prefix,
            lease_seconds=self.lease_seconds,
        )

    def ended(self) -> dict[str, ImageView]:
        """The agents' images by task, once all are built that can be."""
        self.builds.start("w", "suite", BuildRequest(concurrency=2))
        eventually(lambda: self.builds.status("w", "suite").done)
        return {view.task: view for view in self.builds.status("w", "suite").images if view.role != "verifier"}


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


def test_a_copy_of_an_image_runs_as_the_image_does_and_is_made_once(kit: BuildKit, prefix: str):
    registry = RegistryClient(REGISTRIES)
    source = registry.resolve("python:3.12-slim")
    mirror = ImageMirror(registry, kit, prefix)
    copy = mirror.copy(source)
    assert copy.startswith(f"{prefix}/mirror-python@sha256:")
    assert registry.config(copy) == registry.config(source)
    nobody = ImageMirror(registry, BuildKit("tcp://127.0.0.1:9", REGISTRIES), prefix)
    assert nobody.copy(source) == copy


def test_layers_come_from_the_registrys_cache(kit: BuildKit, prefix: str, folder: Path):
    (folder / "Dockerfile").write_text(f"FROM busybox:1\nRUN echo {prefix} > /x\nCOPY f /f\n")
    (folder / "f").write_text("one")
    kit.build(BuildOrder(folder, f"{prefix}/x:1", 60), kit.log())
    assert RegistryClient(REGISTRIES).exists(RegistryClient(REGISTRIES).resolve(f"{prefix}/x:cache"))
    (folder / "f").write_text("two")
    log = kit.log()
    kit.build(BuildOrder(folder, f"{prefix}/x:2", 60), log)
    assert b"CACHED" in log.content()


SEPARATE = {"verifier": {"environment_mode": "separate"}}


def verifier_environment(**values: JsonValue) -> dict[str, JsonValue]:
    return {"verifier": {"environment": values}}


def test_the_verifiers_image_is_its_own_where_the_task_gives_it_one(real: Real, tmp_path: Path):
    """Harbor's order: a docker_image, tests/Dockerfile, what the agent's is made from."""
    agent = f"FROM busybox:1\nWORKDIR /agent\nRUN echo {real.prefix} > /x\n"
    configs = {
        "a": SEPARATE,
        "b": verifier_environment(docker_image="debian:bookworm-slim"),
        "c": verifier_environment(memory_mb=512),
        "d": SEPARATE,
        "e": {},
    }
    real.publish(configs, a=agent, b=agent, c=agent, d=agent, e=agent)
    for name in "abce":
        (tmp_path / name / "tests").mkdir()
        (tmp_path / name / "tests" / "Dockerfile").write_text("FROM busybox:1\nWORKDIR /graded\nCOPY test.sh /\n")
        (tmp_path / name / "tests" / "test.sh").write_text("true\n")
    real.ended()
    a, b, c, d, e = real.resolved()
    assert {found.config["agent"].workdir for found in (a, b, c, d, e)} == {"/agent"}
    assert [found.config["verifier"].workdir for found in (a, c, d)] == ["/graded", "/graded", "/agent"]
    assert a.images["verifier"] == c.images["verifier"] != a.images["agent"] == d.images["verifier"]
    assert b.images["verifier"].startswith(f"{REGISTRY}/library/debian@sha256:")
    assert set(e.images) == {"agent"}
    assert len(real.built) == 2  # one agent's image and one verifier's, for all five


# Another process of the same service: builds all of the suite, and ends when that is done.
OTHER = """
import sys
from pathlib import Path
from tests.images.test_real import Real
real = Real(Path(sys.argv[1]), sys.argv[2])
with real.catalog:
    print({name: view.state for name, view in real.ended().items()})
"""


def other(real: Real, tmp_path: Path) -> "subprocess.Popen[str]":
    words = [sys.executable, "-c", OTHER, str(tmp_path), real.prefix]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])


def slow(prefix: str, seconds: int) -> str:
    return f"FROM busybox:1\nRUN echo {prefix} && sleep {seconds}\n"


def test_two_requests_at_once_build_an_image_once(real: Real):
    real.publish(a=slow(real.prefix, 1), b=slow(real.prefix, 1))
    real.builds.start("w", "suite", BuildRequest())
    assert {view.state for view in real.ended().values()} == {"ready"}
    assert len(real.built) == 1


def test_two_processes_build_an_image_once(real: Real, tmp_path: Path):
    real.publish(a=slow(real.prefix, 5), b="FROM busybox:1\nRUN exit 3")
    processes = [other(real, tmp_path) for _ in range(2)]
    for process in processes:
        said, _ = process.communicate(timeout=180)
        assert said.strip() == "{'a': 'ready', 'b': 'failed'}"
    assert real.built.count("a") == 1
    assert real.built.count("b") in (1, 2)  # who asks after a build has failed asks for it anew


def test_a_builder_killed_in_the_middle_blocks_nobody_and_a_rerun_builds(real: Real, tmp_path: Path):
    real.publish(a=slow(real.prefix, 4))
    process = other(real, tmp_path)
    eventually(lambda: real.built)
    assert [view.state for view in real.builds.status("w", "suite").images] == ["building"]
    process.kill()
    process.communicate()
    eventually(lambda: real.builds.status("w", "suite").done)
    assert [view.state for view in real.builds.status("w", "suite").images] == ["missing"]
    assert real.ended()["a"].state == "ready"
    assert real.built == ["a", "a"]


def test_a_failed_build_is_tried_again_by_a_rerun(real: Real, tmp_path: Path):
    """What failed for a reason outside of the task's content, which has not changed."""
    real.publish(a=f"FROM {real.prefix}/base:1\n", b=slow(real.prefix, 0))
    assert {name: view.state for name, view in real.ended().items()} == {"a": "failed", "b": "ready"}
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "Dockerfile").write_text("FROM busybox:1\n")
    kit = BuildKit(BUILDKIT, REGISTRIES)
    kit.build(BuildOrder(tmp_path / "base", f"{real.prefix}/base:1", 60), kit.log())
    again = real.ended()
    assert {name: (view.state, view.unchanged) for name, view in again.items()} == {
        "a": ("ready", False),
        "b": ("ready", True),
    }
    assert real.built == ["a", "a", "b"]


def test_a_builder_on_a_unix_socket(prefix: str, folder: Path, tmp_path: Path):
    (folder / "Dockerfile").write_text("FROM busybox:1\nCOPY f /f\n")
    (folder / "f").write_text(prefix)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "buildkitd.sock"))
        listening.listen()
        threading.Thread(target=_relay, args=(listening,), daemon=True).start()
        kit = BuildKit(f"unix://{tmp_path}/buildkitd.sock", REGISTRIES)
        ref = kit.build(BuildOrder(folder, f"{prefix}/x:1", 60), kit.log())
    assert RegistryClient(REGISTRIES).exists(ref)


def _relay(listening: socket.socket) -> None:
    """Every connection to the socket, on to the real BuildKit."""

    def pump(source: socket.socket, target: socket.socket) -> None:
        with source, suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    host, _, port = BUILDKIT.removeprefix("tcp://").rpartition(":")
    with suppress(OSError):
        while True:
            near, _ = listening.accept()
            far = socket.create_connection((host, int(port)))
            for pair in ((near, far), (far, near)):
                threading.Thread(target=pump, args=pair, daemon=True).start()
