"""Merging: from a run's rows and evidence to its bundle in the artifact store."""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from harbor_assets.domain import bundle
from harbor_assets.domain.errors import NotFound
from harbor_assets.domain.names import Ref
from harbor_assets.domain.outcomes import TrialOutcome
from harbor_assets.domain.phases import RunPhase
from harbor_assets.domain.plans import PlannedTask
from harbor_assets.domain.runs import Run, bundle_key
from harbor_assets.engine.account import evidence_path
from harbor_assets.engine.evidence import TRAJECTORY, TRAJECTORY_MAX_BYTES
from harbor_assets.engine.merge import BundleContent, Files, merge
from harbor_assets.engine.ports import Artifacts, ReportWriter, TableWriter, TaskCatalog

EVIDENCE = "evidence"


class BundleMaker:
    """Writes a run's bundle: the same rows and evidence give the same bytes, so writing it again changes nothing.

    `scratch` is a folder in which files are made before they are stored one by one; `run.json` comes last.
    """

    def __init__(
        self, *, tasks: TaskCatalog, artifacts: Artifacts, tables: TableWriter, report: ReportWriter, scratch: Path
    ) -> None:
        self._tasks, self._artifacts, self._tables, self._report = tasks, artifacts, tables, report
        self._scratch = scratch

    def make(self, run: Run, rows: Sequence[TrialOutcome], *, phase: RunPhase, ended_at: datetime) -> None:
        """Write the bundle. `rows`: one per planned trial.

        Raises `Broken` if rows and plan do not fit, `StorageFull`.
        """
        key = bundle_key(run.id)
        content = gather(run, rows, tasks=self._tasks, artifacts=self._artifacts, phase=phase, ended_at=ended_at)
        folder = self._scratch / run.id / "bundle"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            names = list(self._write(content, folder))
            for name in names:
                self._artifacts.put_file(f"{key}/{name}", folder / name)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _write(self, content: BundleContent, folder: Path) -> Iterator[str]:
        """Make every file in `folder`; yields the names in the order of storing."""
        self._tables.write(content.tables, folder)
        yield from (bundle.TRIALS_TABLE, bundle.SCORES_TABLE)
        _pour(self._report.render(content.report), folder / bundle.REPORT)
        yield bundle.REPORT
        for name, pieces in content.files():
            _pour(pieces, folder / name)
            yield name


def gather(
    run: Run,
    rows: Sequence[TrialOutcome],
    *,
    tasks: TaskCatalog,
    artifacts: Artifacts,
    phase: RunPhase,
    ended_at: datetime,
    with_report: bool = True,
) -> BundleContent:
    """A run's rows with what the stores hold of them. Raises `Broken` if rows and plan do not fit."""
    key = bundle_key(run.id)
    evidence = _evidence(artifacts, run, rows, key)
    return merge(
        run.plan,
        rows,
        evidence=evidence,
        instructions=_Instructions(tasks, run),
        phase=phase,
        started_at=run.started_at,
        finished_at=ended_at,
        output_dir=artifacts.url(key),
        trajectories=_Trajectories(artifacts, key, rows, evidence),
        with_report=with_report,
    )


def _evidence(artifacts: Artifacts, run: Run, rows: Sequence[TrialOutcome], key: str) -> Mapping[str, Files]:
    """trial id -> (path in its folder, bytes); one listing of the store for the whole plan."""
    owner = {row.evidence: row.trial_id for row in rows if row.evidence}
    found: dict[str, list[tuple[str, int]]] = {row.trial_id: [] for row in rows}
    names: dict[str, str] = {}  # trials have files of the same names: each is held once
    first = evidence_path(run.id, run.plan.tasks[0], 1)
    depth = first.count("/") + 1
    below = first.rpartition("/")[0] if len(run.plan.tasks) == 1 else EVIDENCE
    for path, size in artifacts.list(f"{key}/{below}"):
        parts = f"{below}/{path}".split("/")
        trial = owner.get("/".join(parts[:depth]))
        if trial is not None:
            name = "/".join(parts[depth:])
            found[trial].append((names.setdefault(name, name), size))
    return found


class _Instructions(Mapping[int, str]):
    """task index -> instruction, read a chunk at a time as the tasks are written: all at once may not fit in memory.

    A task deleted since is left out; the archive in the store still has its instruction.
    """

    CHUNK = 200  # tasks of one query; an instruction is a few kilobytes

    def __init__(self, tasks: TaskCatalog, run: Run) -> None:
        self._tasks, self._workspace, self._planned = tasks, run.plan.workspace, run.plan.tasks
        self._place = {planned.index: place for place, planned in enumerate(self._planned)}
        self._at, self._held = -1, dict[int, str]()

    def __getitem__(self, index: int) -> str:
        at = self._place[index] // self.CHUNK
        if at != self._at:
            self._at, self._held = at, self._read(self._planned[at * self.CHUNK : (at + 1) * self.CHUNK])
        return self._held[index]

    def _read(self, chunk: Sequence[PlannedTask]) -> dict[int, str]:
        with suppress(NotFound):
            found = self._tasks.get_pinned_tasks([planned.ref for planned in chunk])
            return {planned.index: task.harbor.instruction or "" for planned, task in zip(chunk, found, strict=True)}
        held: dict[int, str] = {}
        for planned in chunk:
            ref = Ref.parse(planned.ref, workspace=self._workspace)
            with suppress(NotFound):
                task = self._tasks.get_task(ref.workspace, ref.name, ref.fragment)
                held[planned.index] = task.harbor.instruction or ""
        return held

    def __iter__(self) -> Iterator[int]:
        return iter(self._place)

    def __len__(self) -> int:
        return len(self._place)


class _Trajectories(Mapping[str, bytes]):
    """trial id -> `agent/trajectory.json`, read as it is asked for: all of them at once may not fit in memory."""

    def __init__(
        self, artifacts: Artifacts, key: str, rows: Sequence[TrialOutcome], evidence: Mapping[str, Files]
    ) -> None:
        self._artifacts, self._key = artifacts, key
        self._folders = {
            row.trial_id: row.evidence
            for row in rows
            if row.evidence
            and any(path == TRAJECTORY and size <= TRAJECTORY_MAX_BYTES for path, size in evidence[row.trial_id])
        }

    def __getitem__(self, trial: str) -> bytes:
        with self._artifacts.open(f"{self._key}/{self._folders[trial]}/{TRAJECTORY}") as file:
            return file.read()

    def __iter__(self) -> Iterator[str]:
        return iter(self._folders)

    def __len__(self) -> int:
        return len(self._folders)


def _pour(pieces: Iterable[bytes], path: Path) -> None:
    with path.open("wb") as file:
        for piece in pieces:
            file.write(piece)
