"""Reading logs of runs on this machine, while they are written and after."""

import codecs
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from harbor_assets.domain.errors import NotFound
from harbor_assets.domain.outcomes import TrialOutcome
from harbor_assets.domain.plans import PlannedTask, trial_id
from harbor_assets.domain.runs import Run
from harbor_assets.domain.views import LogChunk
from harbor_assets.engine.evaluations import bundle_key
from harbor_assets.engine.execution import plan_work
from harbor_assets.engine.ports import Artifacts, RunCatalog

CHUNK_BYTES = 256 * 1024  # one answer; also what a terminal can take at once
# What a person wants of a trial, in the order it happened. The live part must stay a prefix of the whole, so that an
# offset means the same before and after the trial's end.
_LIVE = "trial.log"
_AFTER = (
    "agent/oracle.txt",
    "agent/setup/stdout.txt",
    "verifier/test-stdout.txt",
    "verifier/test-stderr.txt",
    "exception.txt",
)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a log: its length, and how to read `size` bytes of it from an offset."""

    length: int
    read: Callable[[int, int], bytes]


class LocalLogs:
    """Implements the engine's `Logs` over the home's log folder, the trials under way, and the stored evidence."""

    def __init__(self, *, logs_folder: Path, work_folder: Path, runs: RunCatalog, artifacts: Artifacts) -> None:
        self._logs, self._work, self._runs, self._artifacts = logs_folder, work_folder, runs, artifacts

    def read(self, run: Run, task: int | None, offset: int) -> LogChunk:
        """See `engine.ports.Logs`."""
        if task is None:
            done, pieces = run.phase.terminal, [_of_file(self._logs / f"{run.id}.log")]
        else:
            rows = {row.k: row for row in self._runs.outcomes(run.id) if row.index == task}
            done, pieces = len(rows) == run.plan.n_attempts, self._pieces(run, run.plan.task(task), rows)
        data = _slice(pieces, offset, CHUNK_BYTES)
        at_end = done and len(data) < CHUNK_BYTES
        # A character cut by the chunk's end is left for the next one.
        text, taken = codecs.utf_8_decode(data, "replace", at_end)
        return LogChunk(text=text, next_offset=offset + taken, done=at_end)

    def _pieces(self, run: Run, task: PlannedTask, rows: dict[int, TrialOutcome]) -> Iterator[_Piece]:
        for k in range(1, run.plan.n_attempts + 1):
            row = rows.get(k)
            if row is None:
                yield from self._live(run, task, k)
                return
            yield from self._ended(run.id, row)

    def _live(self, run: Run, task: PlannedTask, k: int) -> Iterator[_Piece]:
        tries = sorted(plan_work(self._work, run.plan).glob(f"try-*/{trial_id(task, k)}/{_LIVE}"), key=_try_number)
        if tries:
            yield _heading(trial_id(task, k), _LIVE)
            yield _of_file(tries[-1])

    def _ended(self, run_id: str, row: TrialOutcome) -> Iterator[_Piece]:
        if row.evidence is None:
            yield _of_text(f"==> {row.trial_id} left no folder: {row.reason}: {row.message or ''}\n")
            return
        for name in (_LIVE, *_AFTER):
            key = f"{bundle_key(run_id)}/{row.evidence}/{name}"
            with suppress(NotFound):
                size = self._artifacts.size(key)
                yield _heading(row.trial_id, name)
                yield _Piece(size, partial(self._read, key))
                yield _of_text("\n")

    def _read(self, key: str, offset: int, size: int) -> bytes:
        with self._artifacts.open(key) as file:
            file.seek(offset)
            return file.read(size)


def _of_text(text: str) -> _Piece:
    data = text.encode()
    return _Piece(len(data), lambda offset, size: data[offset : offset + size])


def _of_file(path: Path) -> _Piece:
    def read(offset: int, size: int) -> bytes:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(size)

    return _Piece(path.stat().st_size if path.is_file() else 0, read)


def _heading(trial: str, name: str) -> _Piece:
    return _of_text(f"==> {trial}/{name}\n")


def _try_number(path: Path) -> int:
    return int(path.parent.parent.name.removeprefix("try-"))


def _slice(pieces: Iterable[_Piece], offset: int, size: int) -> bytes:
    """`size` bytes from `offset` of the pieces as one stream; what lies before is skipped without being read."""
    found, skip = b"", offset
    for piece in pieces:
        if skip >= piece.length:
            skip -= piece.length
            continue
        found += piece.read(skip, min(size - len(found), piece.length - skip))
        skip = 0
        if len(found) >= size:
            break
    return found
