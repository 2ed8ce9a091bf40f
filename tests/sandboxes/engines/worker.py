"""A worker that holds a sandbox until it is killed. argv: engine, home, folder, image."""

import asyncio
import logging
import sys
from pathlib import Path

from harbor.models.task.config import EnvironmentConfig, NetworkMode, NetworkPolicy
from harbor.models.trial.paths import TrialPaths

from harbor_assets.sandboxes.engines.cli import EngineKind
from harbor_assets.sandboxes.engines.environment import EngineEnvironment


async def hold(engine: EngineKind, home: str, folder: str, image: str) -> None:
    (Path(folder) / "trial").mkdir()
    (Path(folder) / "environment").mkdir()
    box = EngineEnvironment(
        environment_dir=Path(folder) / "environment",
        environment_name="t",
        session_id="killed__env",
        trial_paths=TrialPaths(Path(folder) / "trial"),
        task_env_config=EnvironmentConfig(),
        network_policy=NetworkPolicy(network_mode=NetworkMode.PUBLIC),
        logger=logging.getLogger("test"),
        engine=engine,
        home=home,
        run_id="run-0123456789abcdef",
        images={"agent": image},
        deadline_seconds=300,
    )
    await box.start(force_build=False)
    print("up", flush=True)
    await asyncio.sleep(300)


if __name__ == "__main__":
    kind, *rest = sys.argv[1:]
    asyncio.run(hold("docker" if kind == "docker" else "podman", *rest))
