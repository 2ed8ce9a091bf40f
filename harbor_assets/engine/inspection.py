"""Whether a merged bundle can be trusted: read back from the store and held against the run's plan and outcome rows.

The findings, in this order:

===================  ==============================================================================================
`bundle_complete`    every file is there, and a row and the evidence of every planned trial
`no_doubles`         no trial stands in a file twice, and none that was not planned
`scores_finite`      every score is a finite number, and exactly the scored trials have a reward
`rewards_in_range`   every reward lies from 0 to 1: a warning, since a task may count otherwise
`digests_match`      rows and figures are those of the catalog; tasks and archives are those that were planned
`coverage`           as many planned trials were scored as the run asks for (`min_coverage`). Where it asks for
                     nothing, one that was not scored is a warning: a mean over fewer is right, but rests on less
===================  ==============================================================================================
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

from harbor_assets.domain import bundle
from harbor_assets.domain.archives import archive_key
from harbor_assets.domain.errors import HarborAssetsError, NotFound
from harbor_assets.domain.outcomes import Outcome, TrialOutcome
from harbor_assets.domain.plans import trial_id
from harbor_assets.domain.policies import account
from harbor_assets.domain.runs import Run, bundle_key
from harbor_assets.domain.text import visible
from harbor_assets.engine.ports import Artifacts

COMPLETE, DOUBLES, FINITE = "bundle_complete", "no_doubles", "scores_finite"
RANGE, DIGESTS, COVERAGE = "rewards_in_range", "digests_match", "coverage"
FILES = (
    bundle.MANIFEST,
    bundle.METADATA,
    bundle.SUMMARY,
    bundle.TASKS,
    bundle.TRIALS,
    bundle.SCORES,
    bundle.OUTCOMES,
    bundle.OUTCOME_SUMMARY,
    bundle.TRIALS_TABLE,
    bundle.SCORES_TABLE,
    bundle.REPORT,
)
FAULTS_SHOWN = 10  # of one kind; the count says how many there are
LINE_MAX = 16 * 1024 * 1024  # bytes: far above any row we write, so a longer one is a fault rather than our memory
ARCHIVE_BYTES_MAX = 256 * 1024 * 1024  # hashed for one run: a second of a disk; what is above is said to be unread
_PIECE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Finding:
    """What one look said. `warning`: a fault that leaves the bundle right. `facts`: figures beside the sentence."""

    name: str
    passed: bool
    text: str
    warning: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Inspection:
    """A run's bundle in the store, and what it must agree with. `rows`: the catalog's, one per planned trial."""

    run: Run
    rows: Sequence[TrialOutcome]
    artifacts: Artifacts

    def find(self, names: Iterable[str] | None = None) -> Iterator[Finding]:
        """The findings of those names, all if None. What cannot be read is a finding, not an error."""
        looks: dict[str, Callable[[], Finding]] = {
            COMPLETE: self._complete,
            DOUBLES: self._doubles,
            FINITE: self._finite,
            RANGE: self._range,
            DIGESTS: self._digests,
            COVERAGE: self._coverage,
        }
        for name in looks if names is None else names:
            try:
                yield looks[name]()
            except (HarborAssetsError, ValueError, KeyError, TypeError, RecursionError, OSError) as error:
                yield Finding(name, passed=False, text=f"the bundle cannot be read: {visible(str(error))}")

    def _complete(self) -> Finding:
        planned = self._planned()
        found, folders = set[str](), set[str]()
        depth = 4  # evidence/harbor/<task>/<trial>
        for path, _ in self.artifacts.list(bundle_key(self.run.id)):
            parts = path.split("/")
            found.update(parts if len(parts) == 1 else ())
            folders.add("/".join(parts[:depth]))
        kept = Counter((line["index"], line["k"]) for line in self._lines(bundle.OUTCOMES))
        faults = [
            *(f"{name} is missing" for name in FILES if name not in found),
            *(f"{bundle.OUTCOMES} has no row of task {i} trial {k}" for i, k in sorted(planned - kept.keys())),
            *(
                f"{row.trial_id} has no evidence at {row.evidence}"
                for row in self.rows
                if row.evidence and row.evidence not in folders
            ),
        ]
        for name, at in ((bundle.TRIALS, "id"), (bundle.SCORES, "trial_id")):
            there = {line[at] for line in self._lines(name)}
            faults += [f"{name} has no row of {trial}" for trial in sorted(self._ids() - there)]
        facts = {"trials_planned": len(planned), "rows": kept.total(), "evidence_folders": len(folders) - len(found)}
        return _finding(COMPLETE, faults, f"all {len(planned)} planned trials and all files are there", facts)

    def _doubles(self) -> Finding:
        """Of trials by (index, k) or id; a score is one of a trial and a metric."""
        rows = Counter((line["index"], line["k"]) for line in self._lines(bundle.OUTCOMES))
        planned, ids = self._planned(), self._ids()
        faults = [
            *(f"{bundle.OUTCOMES} has {n} rows of task {i} trial {k}" for (i, k), n in rows.items() if n > 1),
            *(f"{bundle.OUTCOMES} has a row of task {i} trial {k}, not planned" for i, k in rows.keys() - planned),
        ]
        trials = Counter((line["id"],) for line in self._lines(bundle.TRIALS))
        scores = Counter((line["trial_id"], line["metric_type"]) for line in self._lines(bundle.SCORES))
        for name, found in ((bundle.TRIALS, trials), (bundle.SCORES, scores)):
            faults += [f"{name} has {n} rows of {' '.join(row)}" for row, n in found.items() if n > 1]
            faults += [f"{name} has a row of {row[0]}, not planned" for row in found if row[0] not in ids]
        facts = {"rows": rows.total(), "trials": trials.total(), "scores": scores.total()}
        return _finding(DOUBLES, faults, f"each of {len(planned)} planned trials stands once in each file", facts)

    def _range(self) -> Finding:
        outside = [
            f"{row.trial_id} has the reward {row.reward:g}"
            for row in self.rows
            if row.reward is not None and not 0 <= row.reward <= 1
        ]
        found = _finding(RANGE, outside, "every reward lies from 0 to 1", {"outside": len(outside)})
        return replace(found, warning=True)

    def _finite(self) -> Finding:
        faults: list[str] = []
        numbers = 0
        for line in self._lines(bundle.OUTCOMES):
            reward, scored = line["reward"], line["outcome"] == Outcome.SCORED
            if scored and not _finite(reward):
                faults.append(f"{line['trial_id']} is scored with the reward {reward!r}")
            if not scored and reward is not None:
                faults.append(f"{line['trial_id']} is {line['outcome']}, and yet has the reward {reward!r}")
            numbers += scored
        for line in self._lines(bundle.SCORES):
            for output in line["outputs"]:
                value = output["value"]
                if value in bundle.NON_FINITE or (isinstance(value, float) and not math.isfinite(value)):
                    faults.append(f"{line['trial_id']}: {line['metric_type']}.{output['name']} is {value!r}")
                numbers += isinstance(value, int | float)
        return _finding(FINITE, faults, f"all {numbers} numbers are finite", {"numbers": numbers})

    def _digests(self) -> Finding:
        faults: list[str] = []
        ordered = sorted(self.rows, key=lambda row: (row.index, row.k))
        same = [
            (bundle.OUTCOMES, bundle.lines(ordered)),
            (bundle.OUTCOME_SUMMARY, iter([bundle.document(account(self.rows))])),
        ]
        for name, pieces in same:
            with self.artifacts.open(f"{bundle_key(self.run.id)}/{name}") as file:
                if _sha256_of(file) != _sha256(pieces):
                    faults.append(f"{name} is not what the catalog's outcome rows give")
        tasks = {task.index: task for task in self.run.plan.tasks}
        for row in self.rows:
            task = tasks.get(row.index)
            if task is None or (row.task_ref, row.trial_key) != (task.ref, task.trial_key):
                faults.append(f"{row.trial_id} is of a task or under a trial key that was not planned")
        faults += [
            f"{task.name}: the image of its {role} is not pinned: {ref}"
            for task in tasks.values()
            for role, ref in task.images.items()
            if "@sha256:" not in ref
        ]
        read, unread = self._archives(faults)
        facts = {"rows": len(self.rows), "archives_read": read, "archives_not_read": unread}
        return _finding(DIGESTS, faults, f"{len(self.rows)} rows and {read} archives have their digests", facts)

    def _archives(self, faults: list[str]) -> tuple[int, int]:
        """How many archives were hashed, and how many were only looked for since there was too much to read."""
        read = unread = 0
        budget = ARCHIVE_BYTES_MAX
        hashes = {archive_key(task.fileset_ref): task.files_hash for task in self.run.plan.tasks}
        for key, expected in hashes.items():
            try:
                budget -= self.artifacts.size(key)
                if budget < 0:
                    unread += 1
                    continue
                with self.artifacts.open(key) as file:
                    read += 1
                    if _sha256_of(file) != expected:
                        faults.append(f"the archive {key} is not the one that was run")
            except NotFound:
                faults.append(f"the archive {key} is gone")
        return read, unread

    def _coverage(self) -> Finding:
        summary = account(self.rows)
        cover = summary.policies.scored_only.coverage
        missing = {str(o): n for o, n in summary.counts.items() if n and o is not Outcome.SCORED}
        text = f"scored {cover.trials} of {cover.of_trials} trials, {cover.tasks} of {cover.of_tasks} tasks"
        if missing:
            text += f"; not scored: {', '.join(f'{n} {name}' for name, n in missing.items())}"
        facts: dict[str, Any] = {"share_scored": cover.share, **missing}
        asked = self.run.plan.min_coverage
        if asked is None:
            return Finding(COVERAGE, not missing, text, warning=True, facts=facts)
        text += f"; the run asks for a share of {asked:g}"
        return Finding(COVERAGE, cover.share >= asked, text, facts={**facts, "min_coverage": asked})

    def _planned(self) -> set[tuple[int, int]]:
        plan = self.run.plan
        return {(task.index, k) for task in plan.tasks for k in range(1, plan.n_attempts + 1)}

    def _ids(self) -> set[str]:
        plan = self.run.plan
        return {trial_id(task, k) for task in plan.tasks for k in range(1, plan.n_attempts + 1)}

    def _lines(self, name: str) -> Iterator[dict[str, Any]]:
        with self.artifacts.open(f"{bundle_key(self.run.id)}/{name}") as file:
            while line := file.readline(LINE_MAX):
                yield json.loads(line)


def _finding(name: str, faults: Sequence[str], well: str, facts: Mapping[str, Any]) -> Finding:
    if not faults:
        return Finding(name, passed=True, text=well, facts=facts)
    more = f"; and {len(faults) - FAULTS_SHOWN} more" if len(faults) > FAULTS_SHOWN else ""
    text = visible("; ".join(faults[:FAULTS_SHOWN])) + more
    return Finding(name, passed=False, text=text, facts={**facts, "faults": len(faults)})


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _sha256(pieces: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def _sha256_of(file: BinaryIO) -> str:
    return _sha256(iter(lambda: file.read(_PIECE), b""))
