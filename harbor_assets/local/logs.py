"""Reading logs of runs on this machine, while they are written and after."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

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


class LocalLogs:
    """Implements the engine's `Logs` over the home's log folder, the trials under way, and the stored evidence."""

    def __init__(self, *, logs_folder: Path, work_folder: Path, runs: RunCatalog, artifacts: Artifacts) -> None:
        self._logs, self._work, self._runs, self._artifacts = logs_folder, work_folder, runs, artifacts

    def read(self, run: Run, task: int | None, offset: int) -> LogChunk:
        """See `engine.ports.Logs`."""
        if task is None:
            return self._own(run, offset)
        planned = run.plan.task(task)
        rows = {row.k: row for row in self._runs.outcomes(run.id) if row.index == task}
        done = len(rows) == run.plan.n_attempts
        data = _slice(self._parts(run, planned, rows), offset, CHUNK_BYTES)
        return LogChunk(
            text=data.decode(errors="replace"), next_offset=offset + len(data), done=done and len(data) < CHUNK_BYTES
        )

    def _own(self, run: Run, offset: int) -> LogChunk:
        path = self._logs / f"{run.id}.log"
        data = b""
        if path.is_file():
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read(CHUNK_BYTES)
        done = run.phase.terminal and len(data) < CHUNK_BYTES
        return LogChunk(text=data.decode(errors="replace"), next_offset=offset + len(data), done=done)

    def _parts(self, run: Run, task: PlannedTask, rows: dict[int, TrialOutcome]) -> Iterator[bytes]:
        for k in range(1, run.plan.n_attempts + 1):
            row = rows.get(k)
            if row is None:
                yield from self._live(run, task, k)
                return
            yield from self._ended(run.id, row)

    def _live(self, run: Run, task: PlannedTask, k: int) -> Iterator[bytes]:
        tries = sorted(plan_work(self._work, run.plan).glob(f"try-*/{trial_id(task, k)}/{_LIVE}"), key=_try_number)
        if tries:
            yield _heading(trial_id(task, k), _LIVE)
            yield tries[-1].read_bytes()

    def _ended(self, run_id: str, row: TrialOutcome) -> Iterator[bytes]:
        if row.evidence is None:
            yield f"==> {row.trial_id} left no folder: {row.reason}: {row.message or ''}\n".encode()
            return
        for name in (_LIVE, *_AFTER):
            key = f"{bundle_key(run_id)}/{row.evidence}/{name}"
            if not self._artifacts.exists(key):
                continue
            yield _heading(row.trial_id, name)
            with ExitStack() as stack:
                file = stack.enter_context(self._artifacts.open(key))
                while block := file.read(CHUNK_BYTES):
                    yield block
            yield b"\n"


def _heading(trial: str, name: str) -> bytes:
    return f"==> {trial}/{name}\n".encode()


def _try_number(path: Path) -> int:
    return int(path.parent.parent.name.removeprefix("try-"))


def _slice(parts: Iterator[bytes], offset: int, size: int) -> bytes:
    """`size` bytes from `offset` of the parts as one stream, reading no more than needed."""
    found, skip = b"", offset
    for part in parts:
        if skip >= len(part):
            skip -= len(part)
            continue
        found += part[skip : skip + size - len(found)]
        skip = 0
        if len(found) >= size:
            break
    return found
