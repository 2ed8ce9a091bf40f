"""Takes the place of `harbor_assets.trials.harbor` in the worker image of tests: the agent `nop` follows a script.

`agent.kwargs`: `seconds` of every trial, or by index as `seconds_<i>`; `memory_<i>`: megabytes to eat first;
`reason_<i>`: how it ends, if not with a score. Trials of every other agent are real ones.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

from harbor_assets.domain.endings import Ending
from harbor_assets.domain.outcomes import Reason
from harbor_assets.trials import real  # pyright: ignore[reportAttributeAccessIssue] - there in the image only


class HarborTrialRunner(real.HarborTrialRunner):
    async def run(self, plan: Any, task: Any, k: int, *, source: Path, folder: Path) -> Ending:
        if plan.agent.name != "nop":
            return await super().run(plan, task, k, source=source, folder=folder)
        folder.mkdir(parents=True)
        (folder / "trial.log").write_text(f"{task.name} {k} in {os.environ.get('HARBOR_JOB_NAME')}\n")
        assert (source / "task.toml").is_file()
        script = plan.agent.kwargs
        if megabytes := script.get(f"memory_{task.index}"):
            hog = bytearray(int(megabytes) * 1024 * 1024)
            hog[::4096] = b"x" * len(hog[::4096])
        await asyncio.sleep(float(script.get(f"seconds_{task.index}", script.get("seconds", 1))))
        if reason := script.get(f"reason_{task.index}"):
            return Ending(Reason(reason), "as the script says")
        return Ending(Reason.GRADED, reward=1.0)
