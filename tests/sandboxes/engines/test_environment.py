"""Harbor's view of a container: phases of the network, files, images, and what a killed worker leaves."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harbor.models.task.config import NetworkMode, NetworkPolicy

from harbor_assets.engine.ports import BuildFailed, BuildOrder
from harbor_assets.images.progress import BuildLog
from harbor_assets.sandboxes.engines import guard
from harbor_assets.sandboxes.engines.cli import Engine
from harbor_assets.sandboxes.engines.images import PREFIX, EngineImages
from harbor_assets.sandboxes.errors import SandboxImagePullError

from .conftest import left, run

Make = Callable[..., Any]
ROUTES = "tail -n +2 /proc/net/route | wc -l"


def test_a_mode_is_in_force_and_changes_with_the_phase(sandbox: Make, tmp_path: Path) -> None:
    async def main() -> None:
        async with sandbox(mode="public") as box:
            assert int((await box.exec(ROUTES)).stdout) > 0
            await box.set_network_policy(NetworkPolicy(network_mode=NetworkMode.NO_NETWORK))
            assert int((await box.exec(ROUTES)).stdout) == 0
            await box.set_network_policy(NetworkPolicy(network_mode=NetworkMode.PUBLIC))
            assert int((await box.exec(ROUTES)).stdout) > 0

    run(main())
    record = json.loads((tmp_path / "trial/sandbox.json").read_text())
    assert [entry["how"] for entry in record["network"]] == ["bridge", "none", "bridge"]


def test_files_in_and_out(sandbox: Make, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep/x").write_bytes(os.urandom(3_000_000))
    (source / "run.sh").write_text("#!/bin/sh\n")
    (source / "run.sh").chmod(0o755)

    async def main() -> None:
        async with sandbox() as box:
            await box.upload_dir(source, "/data/in")
            await box.upload_file(source / "run.sh", "/data/other.sh")
            assert (await box.exec("stat -c %a /data/in/run.sh /data/other.sh")).stdout == "755\n755\n"
            await box.exec("ln -s /etc/passwd /data/in/out; head -c 50000000 /dev/zero >/data/in/big")
            await box.download_dir("/data/in", tmp_path / "back")
            await box.download_file("/data/other.sh", tmp_path / "one.sh")
            with pytest.raises(FileNotFoundError):
                await box.download_file("/data/none", tmp_path / "none")

    run(main())
    assert (tmp_path / "back/deep/x").read_bytes() == (source / "deep/x").read_bytes()
    assert (tmp_path / "back/big").stat().st_size == 50_000_000
    assert not (tmp_path / "back/out").exists()  # it leads outside
    assert (tmp_path / "one.sh").read_text() == "#!/bin/sh\n"


def test_an_image_that_is_gone_has_a_name(sandbox: Make) -> None:
    async def main() -> None:
        async with sandbox(images={"agent": f"{PREFIX}/x@sha256:{'0' * 64}"}):
            pass

    with pytest.raises(SandboxImagePullError, match="submit the suite again"):
        run(main())


def test_nothing_is_left_after_a_kill_of_the_worker(engine: Engine, image: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    found = engine.image(image)
    assert found
    ref = f"{image.rpartition(':')[0]}@sha256:{found['Id'].removeprefix('sha256:')}"
    words = [sys.executable, "-m", "tests.sandboxes.engines.worker", engine.kind, str(home), str(tmp_path), ref]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout
        assert worker.stdout.readline() == "up\n"
        assert left(engine, home)
        worker.send_signal(signal.SIGKILL)
    until = time.monotonic() + 60
    while left(engine, home) and time.monotonic() < until:
        time.sleep(0.5)
    assert left(engine, home) == []


def test_the_next_command_removes_what_is_left_if_the_watcher_died_too(
    engine: Engine, image: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    label = f"harbor/owner={'d' * 16}"
    mine = ["--label", label, "--label", f"harbor/home={guard.home_label(home)}"]
    made = engine.call("run", "-d", *mine, "--entrypoint", "sh", image, "-c", "sleep 600")
    assert made.code == 0, made.said
    owner = home / "engines" / f"{engine.kind}-{'d' * 16}"
    owner.parent.mkdir(parents=True)
    owner.touch()
    (gone,) = guard.reap(home)
    assert gone.startswith(f"{engine.kind} container ")
    assert left(engine, home) == []
    assert guard.reap(home) == []


def images(engine: Engine, home: Path) -> EngineImages:
    return EngineImages(engine, home=home, context_key=lambda folder: "k", log=BuildLog)


def test_an_image_is_built_once_and_says_how_it_runs(engine: Engine, image: str, home: Path, tmp_path: Path) -> None:
    steps = f"RUN echo {tmp_path.name} >/x\nUSER agent\nWORKDIR /app\nENV A=b\n"
    (tmp_path / "Dockerfile").write_text(f"FROM {image}\n{steps}")
    adapter, tag = images(engine, home), f"{PREFIX}/test:{os.urandom(8).hex()}"
    log = BuildLog()
    ref = adapter.build(BuildOrder(tmp_path, tag, 120), log)
    try:
        assert ref.startswith(f"{PREFIX}/test@sha256:")
        again = BuildLog()
        assert adapter.build(BuildOrder(tmp_path, tag, 120), again) == ref
        assert again.content() == b""
        config = adapter.config(ref)
        assert (config.user, config.workdir, config.env["A"]) == ("agent", "/app", "b")
        assert adapter.exists(ref)
    finally:
        engine.call("rmi", "-f", tag)
    assert not adapter.exists(ref)


def test_a_build_that_fails_or_takes_too_long_says_so(engine: Engine, image: str, home: Path, tmp_path: Path) -> None:
    adapter = images(engine, home)
    (tmp_path / "Dockerfile").write_text(f"FROM {image}\nRUN echo the reason; exit 3\n")
    with pytest.raises(BuildFailed, match="3"):
        adapter.build(BuildOrder(tmp_path, f"{PREFIX}/test:bad", 120), BuildLog())
    base = f"localhost/harbor-assets-tests/{os.urandom(4).hex()}"  # podman calls the build's container after it
    engine.call("tag", image, base)
    try:
        (tmp_path / "Dockerfile").write_text(f"FROM {base}\nRUN echo began; sleep 100; echo ended\n")
        log, at = BuildLog(), time.monotonic()
        with pytest.raises(BuildFailed, match="build_timeout_sec"):
            adapter.build(BuildOrder(tmp_path, f"{PREFIX}/test:slow", 5), log)
        assert time.monotonic() - at < 60
        assert b"began" in log.content()
        if engine.kind == "podman":
            names = engine.call("ps", "-a", "--external", "--format", "{{.Names}}").text
            assert base.rpartition("/")[2] not in names
    finally:
        engine.call("rmi", "-f", base)


_BUILDER = """
import sys
from pathlib import Path
from harbor_assets.engine.ports import BuildOrder
from harbor_assets.images.progress import BuildLog
from harbor_assets.sandboxes.engines.cli import Engine
from harbor_assets.sandboxes.engines.images import EngineImages
kind, home, folder, tag = sys.argv[1:]
log = BuildLog()
images = EngineImages(Engine(kind), home=Path(home), context_key=lambda folder: "k", log=BuildLog)
print(images.build(BuildOrder(Path(folder), tag, 120), log))
print(log.content().count(b"RUN"))
"""


def test_two_commands_at_once_build_an_image_once(engine: Engine, image: str, home: Path, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {image}\nRUN sleep 3; echo {tmp_path.name} >/x\n")
    tag = f"{PREFIX}/test:{os.urandom(8).hex()}"
    words = [sys.executable, "-c", _BUILDER, engine.kind, str(home), str(tmp_path), tag]
    try:
        both = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        said = [builder.communicate(timeout=120)[0].split() for builder in both]
        assert said[0][0] == said[1][0]
        assert sorted(int(words[1]) > 0 for words in said) == [False, True]
    finally:
        engine.call("rmi", "-f", tag)
