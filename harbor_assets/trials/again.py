"""The verifier alone, once more, while the agent's work is still there: nobody pays the agent twice for tests that
could not be brought in, run or fetched.

A verifier in the agent's own sandbox (`shared`) is run again in that sandbox, as it stands. One with a sandbox of its
own (`separate`) gets a new one, with the artifacts that were collected, also where its sandbox was lost. What a
verifier said of the work, and one that ran out of time, are not asked again.
"""

import asyncio
import logging
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harbor_assets.domain.endings import DISK_ERRORS, LOST_ERRORS, START_ERRORS, cut
from harbor_assets.domain.flags import Flag, Remark
from harbor_assets.domain.plans import RunPlan
from harbor_assets.domain.retries import pause_before
from harbor_assets.domain.text import visible
from harbor_assets.trials.facts import is_said
from harbor_assets.trials.output import KEEP_BYTES

if TYPE_CHECKING:
    from harbor.trial.trial import Trial

log = logging.getLogger(__name__)

EARLIER = "verifier-earlier"  # in the trial's folder: what runs of the verifier left that were followed by another
_MESSAGE_MAX = 300
_TIMEOUT = "VerifierTimeoutError"


class VerifierAgain:
    """Lets a trial run its verifier again, at most `max_retries` times, and `infra_retries` for a lost sandbox."""

    def __init__(self, trial: "Trial", plan: RunPlan, folder: Path) -> None:
        self._plan, self._folder = plan, folder
        self.failed: list[dict[str, Any]] = []
        self.seconds: float | None = None  # of the last run, which is the one that counts
        # Harbor 0.26 (pinned) has no hook between a verifier and the end of its sandbox.
        trial._run_shared_verifier = self._repeated(trial, trial._run_shared_verifier, separate=False)
        trial._run_separate_verifier = self._repeated(trial, trial._run_separate_verifier, separate=True)

    @property
    def most(self) -> int:
        """How often the verifier may run."""
        return 1 + max(self._plan.max_retries, self._plan.infra_retries)

    def remarks(self) -> Iterator[Remark]:
        """What to say of it beside the outcome."""
        if self.failed:
            last = self.failed[-1]
            runs = f"{len(self.failed) + 1} times"
            yield Remark(
                flag=Flag.VERIFIER_AGAIN,
                sentence=f"the verifier alone was run {runs}, after {last['type']}: {last['message']}",
            )

    def _repeated(self, trial: "Trial", run: Callable[..., Awaitable[Any]], *, separate: bool) -> Callable[..., Any]:
        async def repeated(**arguments: Any) -> Any:
            while True:
                began = time.monotonic()
                try:
                    return await run(**arguments)
                except Exception as error:
                    if not self._again(error, separate=separate):
                        raise
                    await asyncio.to_thread(self._keep, trial.paths.verifier_dir, error)
                    log.warning("the verifier alone is run again: %s: %s", type(error).__name__, error)
                finally:
                    self.seconds = time.monotonic() - began
                await asyncio.sleep(pause_before(len(self.failed)))

        return repeated

    def _again(self, error: Exception, *, separate: bool) -> bool:
        names = {type(one).__name__ for one in _chain(error)}
        if names & DISK_ERRORS or type(error).__name__ == _TIMEOUT or is_said(type(error).__name__):
            return False
        if names & (LOST_ERRORS | START_ERRORS):  # in a shared sandbox the agent's work went with it
            return separate and len(self.failed) < self._plan.infra_retries
        return len(self.failed) < self._plan.max_retries

    def _keep(self, verifier: Path, error: Exception) -> None:
        message = cut(visible(" ".join(str(error).split())), _MESSAGE_MAX)
        self.failed.append({"type": type(error).__name__, "message": message})
        place = self._folder / EARLIER / str(len(self.failed))
        for parent, _, files in os.walk(verifier):
            for path in (Path(parent, name) for name in files):
                if path.is_symlink() or not path.is_file() or path.stat().st_size > KEEP_BYTES:
                    continue
                target = place / path.relative_to(verifier)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
