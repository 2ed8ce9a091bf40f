"""A task's log as one stream of bytes: the same offsets while its trials are under way and after their end."""

import asyncio
import codecs
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harbor_assets.domain.errors import HarborAssetsError, NotFound
from harbor_assets.domain.outcomes import TrialOutcome
from harbor_assets.domain.plans import PlannedTask, trial_id
from harbor_assets.domain.runs import Run, bundle_key
from harbor_assets.domain.views import LogChunk
from harbor_assets.engine.ports import Artifacts, RunCatalog

log = logging.getLogger(__name__)

CHUNK_BYTES = 256 * 1024  # one answer; also what a terminal can take at once
LIVE_MAX_BYTES = 1024 * 1024  # of a live log in the store, which is written anew when it has grown; later, all is there
# What a person wants of a trial, in the order it happened. The live part must stay a prefix of the whole, so that an
# offset means the same before and after the trial's end.
LIVE = "trial.log"
_AFTER = (
    "agent/oracle.txt",
    "agent/setup/stdout.txt",
    "verifier/test-stdout.txt",
    "verifier/test-stderr.txt",
    "exception.txt",
)


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a log: its length, and how to read `size` bytes of it from an offset."""

    length: int
    read: Callable[[int, int], bytes]


def text_piece(text: str) -> Piece:
    """A piece that is at hand."""
    return bytes_piece(text.encode())


def bytes_piece(data: bytes) -> Piece:
    """The same of bytes."""
    return Piece(len(data), lambda offset, size: data[offset : offset + size])


def file_piece(path: Path) -> Piece:
    """A file of this machine, which may grow; empty if there is none."""

    def read(offset: int, size: int) -> bytes:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(size)

    return Piece(path.stat().st_size if path.is_file() else 0, read)


def stored_piece(artifacts: Artifacts, key: str) -> Piece:
    """An object of the store. Raises `NotFound`."""

    def read(offset: int, size: int) -> bytes:
        with artifacts.open(key) as file:
            file.seek(offset)
            return file.read(size)

    return Piece(artifacts.size(key), read)


def chunk(pieces: Iterable[Piece], offset: int, *, ended: bool) -> LogChunk:
    """What lies at `offset` of the pieces as one stream. `ended`: nothing will be added to them.

    The first chunk tells the size of all, for who wants to begin near the end.
    """
    size = None
    if offset == 0:
        pieces = list(pieces)
        size = sum(piece.length for piece in pieces)
    data = _slice(pieces, offset, CHUNK_BYTES)
    at_end = ended and len(data) < CHUNK_BYTES
    # A character cut by the chunk's end is left for the next one.
    text, taken = codecs.utf_8_decode(data, "replace", at_end)
    return LogChunk(text=text, next_offset=offset + taken, done=at_end, size=size)


def _slice(pieces: Iterable[Piece], offset: int, size: int) -> bytes:
    """`size` bytes from `offset` of the pieces; what lies before is skipped without being read."""
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


def live_key(run_id: str, trial: str) -> str:
    """Where a trial's log lies in the store until its folder does."""
    return f"runs/{run_id}/live/{trial}/{LIVE}"


class TaskLogs:
    """Logs of tasks. `live` finds what a trial under way has written so far; None if there is nothing yet."""

    def __init__(
        self, *, runs: RunCatalog, artifacts: Artifacts, live: Callable[[Run, PlannedTask, int], Piece | None]
    ) -> None:
        self._runs, self._artifacts, self._live = runs, artifacts, live

    def read(self, run: Run, index: int, offset: int) -> LogChunk:
        """See `engine.ports.Logs`."""
        rows = {row.k: row for row in self._runs.outcomes(run.id) if row.index == index}
        return chunk(self._pieces(run, run.plan.task(index), rows), offset, ended=len(rows) == run.plan.n_attempts)

    def _pieces(self, run: Run, task: PlannedTask, rows: dict[int, TrialOutcome]) -> Iterator[Piece]:
        for k in range(1, run.plan.n_attempts + 1):
            row = rows.get(k)
            if row is None:
                yield from self._under_way(run, task, k)
                return
            yield from self._ended(run, task, row)

    def _under_way(self, run: Run, task: PlannedTask, k: int) -> Iterator[Piece]:
        if piece := self._live(run, task, k):
            yield _heading(trial_id(task, k), LIVE)
            yield piece

    def _ended(self, run: Run, task: PlannedTask, row: TrialOutcome) -> Iterator[Piece]:
        if row.evidence is None:
            yield from self._under_way(run, task, row.k)  # what its lost worker had told
            yield text_piece(f"==> {row.trial_id} left no folder: {row.reason}: {row.message or ''}\n")
            return
        for name in (LIVE, *_AFTER):
            with suppress(NotFound):
                piece = stored_piece(self._artifacts, f"{bundle_key(run.id)}/{row.evidence}/{name}")
                yield _heading(row.trial_id, name)
                yield piece
                yield text_piece("\n")


def _heading(trial: str, name: str) -> Piece:
    return text_piece(f"==> {trial}/{name}\n")


async def mirror(artifacts: Artifacts, source: Path, key: str, seconds: float, ended: asyncio.Event) -> None:
    """Keep the beginning of a growing file in the store, where others can read it, until `ended` is set.

    A store that does not answer costs nothing but liveness: it is tried again.
    """
    stored = 0
    while not ended.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), seconds)
            return
        try:
            stored = await asyncio.to_thread(_copy_grown, artifacts, source, key, stored)
        except HarborAssetsError as error:
            log.warning("the live log %s is behind: %s", key, error)


def _copy_grown(artifacts: Artifacts, source: Path, key: str, stored: int) -> int:
    if source.is_symlink() or not source.is_file() or min(source.stat().st_size, LIVE_MAX_BYTES) <= stored:
        return stored
    with source.open("rb") as file:
        data = file.read(LIVE_MAX_BYTES)
    artifacts.put_bytes(key, data)
    return len(data)


def keep_live(artifacts: Artifacts, live: str, kept: str) -> None:
    """Store a lost trial's live log, if there is one, as `kept`."""
    with suppress(NotFound):
        with artifacts.open(live) as file:
            artifacts.put_bytes(kept, file.read(LIVE_MAX_BYTES))
        artifacts.remove(live)
