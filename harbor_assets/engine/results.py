"""What runs have left: the files of merged bundles, and of single tasks' own."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import BinaryIO

from harbor_assets.domain.access import ANYWHERE
from harbor_assets.domain.errors import NotFound, NotReady
from harbor_assets.domain.phases import ResultState
from harbor_assets.domain.runs import Run, bundle_key
from harbor_assets.domain.text import quoted
from harbor_assets.domain.traces import TrialTrace
from harbor_assets.domain.views import BundleFile
from harbor_assets.engine.ports import Artifacts, RunCatalog, TaskCatalog
from harbor_assets.engine.task_bundles import TaskBundle
from harbor_assets.engine.trial_evidence import TrialEvidence

INDEXES_SHOWN = 20


def find_run(runs: RunCatalog, workspace: str, run_id: str) -> Run:
    """The run of that workspace. Raises `NotFound`, with the nearest ids where there is none of that id; who may not
    read where that is gets one text for both."""
    otherwise = f"There is no run {quoted(run_id)} in workspace '{workspace}', or none that you may read"
    try:
        run = runs.get_run(run_id)
    except NotFound as error:
        raise NotFound(error.message, error.problems, tells_of=ANYWHERE, otherwise=otherwise) from None
    if run.plan.workspace != workspace:
        there = run.plan.workspace
        said = f"Run {run_id} is not in workspace '{workspace}', but in '{there}'; add --workspace {there}"
        raise NotFound(said, tells_of=there, otherwise=otherwise)
    return run


def check_index(run: Run, index: int) -> None:
    """Raises `NotFound` for an index the run does not have."""
    if index not in {task.index for task in run.plan.tasks}:
        known = ", ".join(str(task.index) for task in run.plan.tasks[:INDEXES_SHOWN])
        more = f", … ({len(run.plan.tasks)} tasks)" if len(run.plan.tasks) > INDEXES_SHOWN else ""
        raise NotFound(f"Run {run.id} has no task {index}; its indexes are {known}{more}")


def check_path(path: str) -> None:
    """Raises `NotFound` for what can be no file of a bundle."""
    if any(part in ("", ".", "..") for part in path.split("/")) or "\0" in path:
        raise NotFound(f"{quoted(path)} is not the path of a file in a bundle")


class Results:
    """Reads bundles. Holds no state of its own."""

    def __init__(self, *, tasks: TaskCatalog, runs: RunCatalog, artifacts: Artifacts) -> None:
        self._tasks, self._runs, self._artifacts = tasks, runs, artifacts

    def bundle_files(self, workspace: str, run_id: str) -> Iterator[BundleFile]:
        """Every file of the merged bundle. Raises `NotReady` while the run goes on, `NotFound` if merging failed."""
        run = self._ended(workspace, run_id)
        files = self._artifacts.list(bundle_key(run.id))
        return (BundleFile(path=path, size=size) for path, size in files)

    def open_bundle_file(self, workspace: str, run_id: str, path: str) -> AbstractContextManager[BinaryIO]:
        """One file of the bundle as a stream. Raises `NotReady`, `NotFound`."""
        run = self._ended(workspace, run_id)
        return self._artifacts.open(f"{bundle_key(run.id)}/{path}")

    def open_evidence(self, run: Run, path: str) -> AbstractContextManager[BinaryIO]:
        """A file of a trial folder as a stream, also while the run goes on; `path` is relative to the bundle. Raises
        `NotFound`."""
        check_path(path)
        if not path.startswith("evidence/"):
            raise NotFound(f"{quoted(path)} is not the path of a trial's file")
        return self._artifacts.open(f"{bundle_key(run.id)}/{path}")

    def trial(self, run: Run, index: int, k: int) -> TrialEvidence:
        """One trial of a run with what it left. Raises `NotFound` for a trial that was not planned."""
        check_index(run, index)
        if not 1 <= k <= run.plan.n_attempts:
            raise NotFound(f"Task {index} of {run.id} has no trial {k}; its trials are 1 to {run.plan.n_attempts}")
        row = next((row for row in self._runs.outcomes(run.id, index) if row.k == k), None)
        return TrialEvidence(run, run.plan.task(index), k, row, self._artifacts)

    def trace(self, workspace: str, run_id: str, index: int, k: int) -> TrialTrace:
        """What the agent of a trial did, and what it used. Raises `NotFound`, `NotReady` before the trial has ended."""
        from harbor_assets.engine.trial_traces import trial_trace  # few ask for it

        run = find_run(self._runs, workspace, run_id)
        return trial_trace(run, self.trial(run, index, k), self._artifacts)

    def task_bundle_files(self, workspace: str, run_id: str, index: int) -> Iterator[BundleFile]:
        """Every file of one task's own bundle, which is there as soon as the task's trials have ended.

        Raises `NotReady` before that, `NotFound` for an index the run does not have.
        """
        bundle = self._task_bundle(workspace, run_id, index)
        return (BundleFile(path=path, size=size) for path, size in bundle.files())

    def open_task_bundle_file(
        self, workspace: str, run_id: str, index: int, path: str
    ) -> AbstractContextManager[BinaryIO]:
        """One file of a task's own bundle as a stream. Raises as `task_bundle_files`."""
        return self._task_bundle(workspace, run_id, index).open(path)

    def _task_bundle(self, workspace: str, run_id: str, index: int) -> TaskBundle:
        run = find_run(self._runs, workspace, run_id)
        check_index(run, index)
        rows = [row for row in self._runs.outcomes(run_id) if row.index == index]
        return TaskBundle(run, index, rows, tasks=self._tasks, artifacts=self._artifacts)

    def _ended(self, workspace: str, run_id: str) -> Run:
        run = find_run(self._runs, workspace, run_id)
        if not run.phase.terminal:
            raise NotReady(
                f"Run {run_id} is {run.phase}; its results are ready when it has ended. "
                f"Follow it with: harbor-assets runs status {run_id} --watch"
            )
        if run.result_state is ResultState.FAILED:
            raise NotFound(f"Run {run_id} ended {run.phase}, but its results could not be merged: {run.error}")
        return run
