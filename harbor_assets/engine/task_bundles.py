"""The bundle of one task alone: the files of the run's, from that task's rows and evidence, made when asked for."""

import io
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import BinaryIO

from harbor_assets.domain.errors import NotFound, NotReady
from harbor_assets.domain.outcomes import Outcome, TrialOutcome
from harbor_assets.domain.phases import run_phase, task_phase
from harbor_assets.domain.plans import RunPlan, job_name
from harbor_assets.domain.runs import Run, bundle_key
from harbor_assets.engine.bundles import gather
from harbor_assets.engine.merge import BundleContent
from harbor_assets.engine.ports import Artifacts, TaskCatalog


class TaskBundle:
    """One task's bundle, without `report.html` and tables. `rows` are the task's.

    Nothing is stored: a task has few trials, and its evidence lies in the run's bundle already.
    """

    def __init__(
        self, run: Run, index: int, rows: Sequence[TrialOutcome], *, tasks: TaskCatalog, artifacts: Artifacts
    ) -> None:
        if len(rows) < run.plan.n_attempts:
            raise NotReady(
                f"Task {index} of {run.id} is not ready: {len(rows)} of its {run.plan.n_attempts} trials have ended"
            )
        self._artifacts, self._key = artifacts, bundle_key(run.id)
        self._evidence = f"evidence/harbor/{job_name(run.id, index)}"
        self._content = _content(run, index, rows, tasks, artifacts)

    def files(self) -> Iterator[tuple[str, int]]:
        """(path, bytes) of every file, sorted."""
        made = ((name, sum(map(len, pieces))) for name, pieces in self._content.files())
        kept = ((f"{self._evidence}/{path}", n) for path, n in self._artifacts.list(f"{self._key}/{self._evidence}"))
        return iter(sorted([*made, *kept]))

    def open(self, path: str) -> AbstractContextManager[BinaryIO]:
        """One file as a stream. Raises `NotFound`."""
        if path.startswith(f"{self._evidence}/"):
            return self._artifacts.open(f"{self._key}/{path}")
        for name, pieces in self._content.files():
            if name == path:
                return nullcontext(io.BytesIO(b"".join(pieces)))
        raise NotFound(f"'{path}' is not the path of a file in this task's bundle")


def _content(
    run: Run, index: int, rows: Sequence[TrialOutcome], tasks: TaskCatalog, artifacts: Artifacts
) -> BundleContent:
    plan = RunPlan.model_validate({**dict(run.plan), "tasks": (run.plan.task(index),)})
    outcomes = [row.outcome for row in rows]
    phase = run_phase(
        [task_phase(outcomes)],
        cancelled=Outcome.CANCELLED in outcomes,
        expired=Outcome.EXPIRED in outcomes,
    )
    ended_at = max((t.end for row in rows for t in row.tries if t.end), default=run.ended_at or run.created_at)
    alone = run.model_copy(update={"plan": plan})
    return gather(alone, rows, tasks=tasks, artifacts=artifacts, phase=phase, ended_at=ended_at, with_report=False)
