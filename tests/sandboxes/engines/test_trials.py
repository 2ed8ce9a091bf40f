"""Whole trials in containers: tasks as they are met in the wild end as in the sandbox `process`, faults as none."""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harbor_assets.domain.endings import Ending
from harbor_assets.domain.images import context_key, plan_images
from harbor_assets.domain.outcomes import Reason
from harbor_assets.domain.plans import ImageConfig, SandboxChoice
from harbor_assets.engine.ports import BuildOrder
from harbor_assets.images.context import key_entries
from harbor_assets.images.progress import BuildLog
from harbor_assets.sandboxes.choice import engine_environment
from harbor_assets.sandboxes.engines import container
from harbor_assets.sandboxes.engines.cli import Engine
from harbor_assets.sandboxes.engines.images import PREFIX, EngineImages
from harbor_assets.trials.harbor import HarborTrialRunner
from tests.fakes.accounts import make_plan
from tests.suites import make, wild

from .conftest import LONG, left

type RunTrial = Callable[[Path], Ending]
# Python is not in the tests' image; that storage has no limit where the engine has no quotas is told in the record.
ELSEWHERE = (wild.pip_tools, wild.disk_hog)
CASES = [case for case in wild.CASES if case.maker not in ELSEWHERE]


@pytest.fixture
def run_trial(engine: Engine, image: str, home: Path, tmp_path: Path) -> RunTrial:
    """Builds a task's images from the tests' own, and runs it once."""
    adapter = EngineImages(engine, home=home, context_key=lambda folder: context_key(key_entries(folder)), log=BuildLog)

    def images(task: Path) -> tuple[dict[str, str], dict[str, ImageConfig]]:
        import tomli

        refs: dict[str, str] = {}
        for need in plan_images(tomli.loads((task / "task.toml").read_text()), lambda path: (task / path).is_file()):
            if need.context is None:
                refs[need.role] = adapter.resolve(image)
                continue
            folder = task / need.context
            dockerfile = folder / "Dockerfile"
            dockerfile.write_text(dockerfile.read_text().replace("debian:bookworm-slim", image))
            tag = f"{PREFIX}/wild:{adapter.key(folder)[:32]}"
            refs[need.role] = adapter.build(BuildOrder(folder, tag, LONG), BuildLog())
        return refs, {role: adapter.config(ref) for role, ref in refs.items()}

    def call(task: Path) -> Ending:
        plan = make_plan(["x"], sandbox=SandboxChoice(kind=engine.kind, why="named"), timeout_seconds=600)
        refs, configs = images(task)
        planned = plan.tasks[0].model_copy(update={"images": refs, "image_config": configs})
        runner = HarborTrialRunner(lambda plan, task: engine_environment(plan, task, home=home))
        folder = tmp_path / "trials" / f"{task.name}-{os.urandom(2).hex()}"
        return asyncio.run(runner.run(plan, planned, 1, source=task, folder=folder))

    return call


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.maker.__name__)
def test_a_task_ends_as_in_the_process_sandbox(
    run_trial: RunTrial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: wild.Case
) -> None:
    monkeypatch.setenv(*wild.GIVEN)
    monkeypatch.chdir(tmp_path)
    case.check(run_trial(case.maker(tmp_path)))
    assert not (tmp_path / "oom").exists()  # podman's monitor leaves one where its client stands


def when_running(engine: Engine, home: Path, act: Callable[[str], object]) -> threading.Thread:
    """Do something to a trial's container a little after it is there."""

    def watch() -> None:
        until = time.monotonic() + LONG
        while time.monotonic() < until:
            running = engine.call("ps", "--filter", "label=harbor/run-id", "--format", "{{.Names}}").text.split()
            if mine := [name for name in left(engine, home) if name in running]:
                while engine.call("exec", mine[0], "ls", "/app/began").code and time.monotonic() < until:
                    time.sleep(0.2)
                act(mine[0])
                return
            time.sleep(0.2)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("where", ["agent", "verifier"])
def test_a_container_that_is_removed_in_mid_trial_is_no_score(
    run_trial: RunTrial, engine: Engine, home: Path, tmp_path: Path, where: str
) -> None:
    hang = f"touch /app/began; {make.SOLVE}; sleep 100"
    task = make.make_task(
        tmp_path,
        "removed",
        solve=hang if where == "agent" else make.SOLVE,
        test=f"{hang}\n{make.grade()}" if where == "verifier" else None,
    )
    thread = when_running(engine, home, lambda name: engine.call("rm", "-f", name))
    ending = run_trial(task)
    thread.join(LONG)
    assert (ending.reason, ending.reward) == (Reason.SANDBOX_LOST, None), ending.message


def test_an_engine_that_is_gone_in_mid_trial_is_no_score(
    run_trial: RunTrial, engine: Engine, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine's client that can reach nothing any more, also not to remove the container: the watcher does it."""
    from shutil import which

    real, gone = which(engine.command), tmp_path / "gone"
    client = tmp_path / "bin" / engine.command
    client.parent.mkdir()
    client.write_text(
        f'#!/bin/sh\n[ -e {gone} ] && {{ echo "Cannot connect to the Docker daemon" >&2; exit 1; }}\nexec {real} "$@"\n'
    )
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{client.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(container, "PATIENCE_SECONDS", 1.0)
    names: list[str] = []

    def act(name: str) -> None:
        names.append(name)
        gone.touch()
        Engine(engine.kind, str(real)).call("kill", "-s", "KILL", name)

    task = make.make_task(tmp_path, "gone-engine", solve=f"touch /app/began; {make.SOLVE}; sleep 100")
    thread = when_running(engine, home, act)
    try:
        ending = run_trial(task)
        thread.join(LONG)
    finally:
        gone.unlink(missing_ok=True)
        for name in left(engine, home):
            engine.call("rm", "-f", name)
            engine.call("network", "rm", name)
    assert names
    assert (ending.reason, ending.reward) == (Reason.SANDBOX_LOST, None), ending.message
