"""Trials of a regrade: what an earlier run kept of the agent's work is fetched, and the verifier alone is run on it."""

import asyncio
import json
import shutil
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harbor_assets.domain.endings import Ending, trial_error
from harbor_assets.domain.errors import NotFound
from harbor_assets.domain.flags import Flag
from harbor_assets.domain.kept import KEPT, Kept, is_artifact, lost, nothing_collected
from harbor_assets.domain.outcomes import Measurements, Outcome, Reason, TrialOutcome
from harbor_assets.domain.plans import PlannedTask, RunPlan
from harbor_assets.domain.regrades import HOW_TO_KEEP, agent_was_done, origin, row_problem
from harbor_assets.domain.runs import bundle_key
from harbor_assets.engine.execution import patiently
from harbor_assets.engine.ports import Artifacts, RunCatalog
from harbor_assets.engine.regrade_ports import Regrader

_RESULT = "result.json"
_JSON_MAX_BYTES = 64 << 20
_PIECE = 1 << 20


class RegradingRunner:
    """A `TrialRunner` that runs trials of a regrade from what the old run kept, and all others as `inner` does."""

    def __init__(self, inner: Regrader, *, runs: RunCatalog, artifacts: Artifacts) -> None:
        self._inner, self._runs, self._artifacts = inner, runs, artifacts

    async def run(self, plan: RunPlan, task: PlannedTask, k: int, *, source: Path, folder: Path) -> Ending:
        """See `TrialRunner`."""
        if plan.regrade_of is None:
            return await self._inner.run(plan, task, k, source=source, folder=folder)
        row = await patiently(self._row, plan.regrade_of, task.name, k)
        if problem := row_problem(row):
            return _not_kept(plan.regrade_of, problem, row)
        assert row is not None
        recorded = folder.parent / ".recorded" / folder.name
        try:
            if problem := await patiently(self._fetch, row, recorded):
                return _not_kept(plan.regrade_of, problem, row)
            ending = await self._inner.regrade(plan, task, k, source=source, recorded=recorded, folder=folder)
        finally:
            await asyncio.to_thread(shutil.rmtree, recorded, True)
        return _paid_elsewhere(ending, row)

    def _row(self, run_id: str, name: str, k: int) -> TrialOutcome | None:
        try:
            return next((r for r in self._runs.outcomes(run_id) if (r.task, r.k) == (name, k)), None)
        except NotFound:
            return None

    def _fetch(self, row: TrialOutcome, target: Path) -> str | None:
        """Fetch what a trial left for its verifier into `target`, as it was; why that cannot be done, or None."""
        key = f"{bundle_key(row.run_id)}/{row.evidence}"
        stored = list(self._artifacts.list(key))
        names = {path for path, _ in stored}
        if _RESULT not in names:
            return "its folder is not in the store any more"
        if row.outcome is Outcome.INFRA_FAILED and not agent_was_done(self._json(f"{key}/{_RESULT}")):
            return f"it ended {row.outcome} ({row.reason}) there before its agent was done"
        try:
            kept = Kept.model_validate_json(self._read(f"{key}/{KEPT}")) if KEPT in names else None
        except ValidationError as error:
            return f"its {KEPT} cannot be read: {error.errors()[0]['msg']}"
        if problem := lost(kept, stored):
            return problem
        kept = kept or nothing_collected(names)
        shutil.rmtree(target, ignore_errors=True)  # of a worker that was lost here
        try:
            self._restore(key, names, kept, target)
        except (FileExistsError, NotADirectoryError, ValueError) as error:
            return f"its {KEPT} is not of this folder: {error}"
        return None

    def _restore(self, key: str, names: Collection[str], kept: Kept, target: Path) -> None:
        for path in kept.folders:
            _inside(target, path).mkdir(parents=True, exist_ok=True)
        for path in sorted(names):
            if path == _RESULT or is_artifact(path):
                self._copy(f"{key}/{path}", _inside(target, path))
        # No set-uid here, whatever the agent made, and nothing that we could not copy or remove.
        for path, file in kept.files.items():
            _inside(target, path).chmod((file.mode & 0o777) | 0o400)
        for path in sorted(kept.folders, reverse=True):
            _inside(target, path).chmod((kept.folders[path] & 0o777) | 0o700)
        for path, link in kept.links.items():
            place = _inside(target, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(link)  # where it leads is looked at before anything follows it

    def _read(self, key: str) -> bytes:
        with self._artifacts.open(key) as file:
            return file.read(_JSON_MAX_BYTES)

    def _json(self, key: str) -> Any:
        try:
            found = json.loads(self._read(key))
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def _copy(self, key: str, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        with self._artifacts.open(key) as file, target.open("xb") as copy:
            shutil.copyfileobj(file, copy, _PIECE)


def _inside(root: Path, path: str) -> Path:
    """`path` below `root`; it was written by a worker, and read from a store that others can write to."""
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"the path {path[:200]!r} leads out of its trial's folder")
    return root / path


def _not_kept(run_id: str, why: str, row: TrialOutcome | None) -> Ending:
    message = f"nothing of {run_id} can be verified again here: {why}"
    if row is not None and row.outcome in (Outcome.SCORED, Outcome.VERIFIER_FAILED):
        message += f"; {HOW_TO_KEEP}"
    details: dict[str, Any] = {"regraded": origin(row)} if row else {}
    return Ending(Reason.WORK_NOT_KEPT, message, error=trial_error("WorkNotKept", message), details=details)


def _paid_elsewhere(ending: Ending, row: TrialOutcome) -> Ending:
    """The ending of a verifier alone: what the agent cost stands with the run that paid it."""
    details = {**ending.details, "regraded": origin(row)}
    if ending.reason is Reason.WORK_NOT_KEPT:
        return replace(ending, details=details)
    said = f"verified again from what {row.run_id} kept; its agent was paid there"
    return replace(
        ending,
        message=f"{ending.message}; {said}" if ending.message else said,
        flags=(*ending.flags, Flag.REGRADED.value),
        measurements=Measurements(),
        details=details,
    )
