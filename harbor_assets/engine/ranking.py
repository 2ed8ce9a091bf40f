"""Keeping the leaderboard: a run's bundle is ingested when it is settled; what could not be is caught up with later."""

import logging
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import batched
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from harbor_assets.domain import bundle
from harbor_assets.domain.asking import Limits, SqlAnswer, SqlQuestion
from harbor_assets.domain.errors import Broken, HarborAssetsError, NotFound, Refused
from harbor_assets.domain.names import Ref, nearest
from harbor_assets.domain.policies import OutcomeSummary
from harbor_assets.domain.ranking import RankedRun, ranked
from harbor_assets.domain.runs import bundle_key
from harbor_assets.domain.standings import (
    BY_RUN,
    MIN_COVERAGE,
    Board,
    Leaderboard,
    boards,
    checked_keys,
    not_pooled,
)
from harbor_assets.domain.text import quoted
from harbor_assets.engine.experiment_ports import ExperimentCatalog
from harbor_assets.engine.ports import Artifacts, RunCatalog, TaskCatalog
from harbor_assets.engine.ranking_ports import LeaderboardStore, RankedBundle
from harbor_assets.engine.staleness import Staleness, stale

log = logging.getLogger(__name__)

BATCH = 200  # runs that one settling catches up with
AT_ONCE = 50  # bundles in one transaction: their tables lie in scratch space meanwhile
_KNOWN = 1000  # names that one may be held against
KEPT = 16  # leaderboards that are kept at once
_TABLES = (bundle.TRIALS_TABLE, bundle.SCORES_TABLE, bundle.OUTCOMES)


@dataclass(frozen=True, slots=True)
class Ranked:
    """What an ingest did: how many runs were written, why others were not (run id, or empty, and the reason), and how
    many stand on the leaderboard now."""

    written: int = 0
    failed: tuple[tuple[str, str], ...] = ()
    runs: int = 0

    def __str__(self) -> str:
        said = [f"{self.written} written", *(f"{run or 'not written'}: {why}" for run, why in self.failed)]
        return "; ".join(said)


class Rankings:
    """The leaderboard as a service: reads bundles, hands them to the store. `scratch` is a folder for their tables."""

    def __init__(
        self,
        *,
        runs: RunCatalog,
        artifacts: Artifacts,
        store: LeaderboardStore,
        scratch: Path,
        staleness: Staleness | None = None,
        tasksets: TaskCatalog | None = None,
        experiments: ExperimentCatalog | None = None,
    ) -> None:
        self._runs, self._artifacts, self._store, self._scratch = runs, artifacts, store, scratch
        self._staleness, self._tasksets, self._experiments = staleness, tasksets, experiments
        self._made: dict[tuple[object, ...], tuple[Sequence[RankedRun], tuple[Board, ...]]] = {}

    def leaderboard(
        self,
        workspace: str,
        *,
        experiment: str | None = None,
        taskset: str | None = None,
        by: Sequence[str] = BY_RUN,
        min_coverage: float = MIN_COVERAGE,
    ) -> Leaderboard:
        """The runs of a workspace, by taskset and sandbox, the best mean first; those that are comparable ranked
        together on boards; and which ended runs are missing.

        `taskset`: `name`, `workspace/name`, either with `#` and the beginning of a digest. `by`: what a line of a board
        is made by. `min_coverage`: the share of its trials that a line must have scored to be ranked. Raises `Refused`.
        """
        keys = checked_keys(by)
        if experiment is not None and not experiment.isprintable():
            raise Refused(f"{quoted(experiment)} is not the name of an experiment")
        asked = (workspace, experiment, _taskset(taskset, workspace), keys, min_coverage)
        there = self._store.run_ids()
        missing = sorted(set(self._runs.ended_runs(workspace)) - there)
        elsewhere = len(set(self._runs.ended_runs()) - there) - len(missing)
        rows, made = self._boards(*asked)
        if not rows and (experiment is not None or taskset is not None):
            self._see(workspace, experiment, taskset)
        found = Leaderboard(
            runs=tuple(rows),
            missing=tuple(missing),
            missing_elsewhere=max(0, elsewhere),
            boards=made,
            left_out=not_pooled(rows, keys),
        )
        if self._staleness is None or not rows:
            return found
        return found.marked(
            self._staleness.of_run_ids(
                workspace,
                [run.run_id for run in rows],
                runs_of_tasks=partial(self._store.runs_of_tasks, workspace),
            )
        )

    def _see(self, workspace: str, experiment: str | None, taskset: str | None) -> None:
        """Raises `NotFound` for a name that neither an ended run nor the workspace's catalog knows: what was deleted is
        still there in its runs, and what is new has none yet."""
        rows = self._store.rows(workspace)
        if experiment is not None:
            known = {run.experiment for run in rows if run.experiment}
            if experiment not in known and not self._has_experiment(workspace, experiment):
                if self._experiments is not None:
                    known |= {one.name for one in self._experiments.list_experiments(workspace, page_size=_KNOWN).items}
                raise _unknown("an experiment", experiment, workspace, known)
        if taskset is not None:
            ref = Ref.parse(taskset, workspace=workspace)
            known = {run.taskset_ref.partition("#")[0] for run in rows}
            begin = str(ref) if ref.fragment else f"{ref.bare}#"
            if any(run.taskset_ref.startswith(begin) for run in rows) or self._has_taskset(workspace, ref):
                return
            if self._tasksets is not None:
                listed = self._tasksets.list_tasksets(workspace, page_size=_KNOWN).items
                known |= {f"{workspace}/{one.name}" for one in listed}
            raise _unknown("a taskset", str(ref), workspace, known)

    def _has_experiment(self, workspace: str, name: str) -> bool:
        try:
            return self._experiments is not None and bool(self._experiments.get_experiment(workspace, name))
        except NotFound:
            return False

    def _has_taskset(self, workspace: str, ref: Ref) -> bool:
        """Of the workspace itself alone: what another one holds is told to those who may read it."""
        if self._tasksets is None or ref.workspace != workspace:
            return False
        try:
            found = self._tasksets.taskset_revisions(workspace, ref.name, page_size=_KNOWN).items
        except NotFound:
            return False
        return any(one.content_hash.startswith(ref.fragment or "") for one in found)

    def _boards(
        self, workspace: str, experiment: str | None, taskset: str | None, keys: tuple[str, ...], min_coverage: float
    ) -> tuple[Sequence[RankedRun], tuple[Board, ...]]:
        """Kept until the workspace's rows change: a page is looked at more often than a run ends."""
        key = (self._store.version(workspace), workspace, experiment, taskset, keys, min_coverage)
        found = self._made.get(key)
        if found is None:
            rows = self._store.rows(workspace, experiment=experiment, taskset=taskset)
            pairings = partial(self._store.pairings, workspace)
            found = rows, boards(rows, pairings, by=keys, min_coverage=min_coverage)
            if len(self._made) >= KEPT:
                self._made.clear()
            self._made[key] = found
        return found

    def sql(self, workspace: str, question: SqlQuestion) -> SqlAnswer:
        """What one SELECT gives over the workspace's rows. Raises as `LeaderboardStore.sql`."""
        answer = self._store.sql(workspace, question.query, Limits(rows=question.limit))
        missing = len(set(self._runs.ended_runs()) - self._store.run_ids())
        return answer.model_copy(update={"missing": missing, "stale": self._stale(workspace)})

    def _stale(self, workspace: str) -> int:
        """How many runs of the workspace in the store rest on something marked bad."""
        if self._staleness is None:
            return 0
        there = partial(self._store.runs_of_tasks, workspace)
        found = self._staleness.of_run_ids(workspace, self._store.run_ids(), runs_of_tasks=there)
        return sum(stale(marks) for marks in found.values())

    @contextmanager
    def exported(self, workspace: str, table: str) -> Iterator[BinaryIO]:
        """The workspace's rows of a table as a Parquet file. Raises `NotFound` for a table there is not."""
        with self._folder() as folder:
            self._store.export(workspace, table, folder / "table")
            with (folder / "table").open("rb") as file:
                yield file

    def settled(self, run_id: str) -> Ranked:
        """Write a run that was just merged, and what earlier settling could not write. Never raises: the run's own
        result does not depend on the leaderboard, which is caught up with by the next settling, or a rebuild."""
        try:
            there = self._store.run_ids()
            missing = set(self._runs.ended_runs()) - there - {run_id}
            return self._write([run_id, *sorted(missing)[: BATCH - 1]], there=there)
        except Exception as error:
            log.exception("the leaderboard was not written for %s; the next settling tries again", run_id)
            return Ranked(failed=(("", f"{type(error).__name__}: {error}"),))

    def rebuild(self) -> Ranked:
        """Make the leaderboard afresh from every bundle there is. Killed midway, the old one stays."""
        return self._write(list(self._runs.ended_runs()))

    def _write(self, run_ids: Sequence[str], *, there: frozenset[str] | None = None) -> Ranked:
        """Beside the runs that are `there`; afresh if None."""
        failed: list[tuple[str, str]] = []
        with self._folder() as folder:
            written = self._store.write(self._batches(run_ids, folder, failed), afresh=there is None)
        failed += written.failed
        for run_id, why in failed:
            log.warning("%s is not on the leaderboard: %s", run_id, why)
        ranked = (there or frozenset()).difference(run_id for run_id, _ in failed).union(written.runs)
        return Ranked(len(written.runs), tuple(failed), len(ranked))

    def _batches(
        self, run_ids: Sequence[str], folder: Path, failed: list[tuple[str, str]]
    ) -> Iterator[Sequence[RankedBundle]]:
        for some in batched(run_ids, AT_ONCE):
            found: list[RankedBundle] = []
            for run_id in some:
                try:
                    found.append(self._bundle(run_id, folder))
                except HarborAssetsError as error:
                    failed.append((run_id, str(error)))
            yield found
            for one in found:
                shutil.rmtree(one.folder)

    def _bundle(self, run_id: str, folder: Path) -> RankedBundle:
        key = bundle_key(run_id)
        try:
            metadata = bundle.RunMetadata.model_validate_json(self._read(f"{key}/{bundle.METADATA}"))
            account = OutcomeSummary.model_validate_json(self._read(f"{key}/{bundle.OUTCOME_SUMMARY}"))
        except ValidationError as error:
            raise Broken(f"its bundle cannot be read: {error.error_count()} fields are not as they should be") from None
        own = folder / run_id
        own.mkdir(exist_ok=True)
        for name in _TABLES:
            with self._artifacts.open(f"{key}/{name}") as source, (own / name).open("wb") as target:
                shutil.copyfileobj(source, target)
        return RankedBundle(ranked(run_id, metadata, account), own)

    def _read(self, key: str) -> bytes:
        with self._artifacts.open(key) as file:
            return file.read()

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        self._scratch.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="leaderboard-", dir=self._scratch) as folder:
            yield Path(folder)


def _unknown(what: str, name: str, workspace: str, known: Iterable[str]) -> NotFound:
    close = nearest(name, sorted(known))
    hint = f"; did you mean {', '.join(close)}?" if close else ""
    return NotFound(f"No ended run of workspace '{workspace}' is of {what} {quoted(name)}, nor is there one{hint}")


def _taskset(text: str | None, workspace: str) -> str | None:
    """A taskset as the store looks it up. Raises `Refused` for a tag: the store knows revisions by their digests."""
    if text is None:
        return None
    ref = Ref.parse(text, workspace=workspace)
    if ref.fragment and not re.fullmatch(r"[0-9a-f]{6,64}", ref.fragment):
        raise Refused(
            f"'{text}' names a tag; the store knows a taskset by its name, or by 6 to 64 characters of its digest "
            f"(`harbor-assets tasksets revisions {ref.bare}` lists them)"
        )
    return str(ref)
