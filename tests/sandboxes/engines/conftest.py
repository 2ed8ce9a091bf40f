"""Engines that answer, an image for them, and sandboxes as Harbor makes them. Nothing may be left on an engine."""

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from harbor_assets.sandboxes.engines.cli import KINDS, Engine
from harbor_assets.sandboxes.engines.guard import home_label

from . import base

LONG = 180  # seconds: no test of this room may hang longer


def run[T](work: Coroutine[Any, Any, T], seconds: float = LONG) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(bounded())


@pytest.fixture(scope="session", params=KINDS)
def engine(request: pytest.FixtureRequest) -> Engine:
    found = Engine(request.param)
    if absence := found.absence():
        pytest.skip(f"{request.param}: {absence}")
    if sys.platform != "linux":
        pytest.skip("the image for these tests is made of a Linux machine's programs")
    return found


@pytest.fixture(scope="session")
def image(engine: Engine) -> str:
    return base.make(engine.command)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def left(engine: Engine, home: Path) -> list[str]:
    """Containers and networks of that home."""
    mine = ("--filter", f"label=harbor/home={home_label(home)}")
    names = engine.call("ps", "-a", *mine, "--format", "{{.Names}}").text.split()
    return names + engine.call("network", "ls", *mine, "--format", "{{.Name}}").text.split()


@pytest.fixture(autouse=True)
def _nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "engine" in request.fixturenames and "home" in request.fixturenames:
        assert left(request.getfixturevalue("engine"), request.getfixturevalue("home")) == []


@pytest.fixture
def sandbox(engine: Engine, image: str, home: Path, tmp_path: Path) -> Callable[..., Any]:
    """Makes started sandboxes: `async with sandbox() as box`; stopped, and looked after, at the end."""
    from harbor.models.task.config import EnvironmentConfig, NetworkMode, NetworkPolicy
    from harbor.models.trial.paths import TrialPaths

    from harbor_assets.sandboxes.engines.environment import EngineEnvironment

    @asynccontextmanager
    async def make(
        *, mode: str = "no-network", session: str | None = None, config: Any = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        (tmp_path / "environment").mkdir(exist_ok=True)
        (tmp_path / "trial").mkdir(exist_ok=True)
        found = engine.image(image)
        assert found is not None
        name = image.rpartition(":")[0]
        box = EngineEnvironment(
            environment_dir=tmp_path / "environment",
            environment_name="t",
            session_id=session or f"{os.urandom(4).hex()}__env",
            trial_paths=TrialPaths(tmp_path / "trial"),
            task_env_config=config or EnvironmentConfig(),
            network_policy=NetworkPolicy(network_mode=NetworkMode(mode)),
            logger=logging.getLogger("test"),
            **{
                "engine": engine.kind, "home": str(home), "run_id": "run-0123456789abcdef",
                "images": {"agent": f"{name}@sha256:{found['Id'].removeprefix('sha256:')}"},
                "deadline_seconds": 300, **kwargs,
            },
        )  # fmt: skip
        try:
            await box.start(force_build=False)
            yield box
        finally:
            await box.stop(delete=True)
            await box.stop(delete=True)  # idempotent

    return make


def kill(engine: Engine, *names: str) -> None:
    subprocess.run([engine.command, "kill", "--signal", "KILL", *names], check=True, capture_output=True)
