"""What rankings need from outside, as Protocols; as `ports.py`, kept apart for its size."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harbor_assets.domain.asking import Limits, SqlAnswer
from harbor_assets.domain.ranking import RankedRun
from harbor_assets.domain.standings import Pairing


@dataclass(frozen=True, slots=True)
class RankedBundle:
    """A bundle for the store: its line, and a folder on this machine with its `trials.parquet`, `scores.parquet` and
    `outcomes.jsonl`."""

    run: RankedRun
    folder: Path


@dataclass(frozen=True, slots=True)
class Written:
    """What became of bundles: the runs that are in the store now, and why others are not (run id and reason)."""

    runs: tuple[str, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()


class LeaderboardStore(Protocol):
    """Where the leaderboard is kept. It holds nothing that the bundles do not: it can be lost and made again."""

    def run_ids(self) -> frozenset[str]:
        """The runs that are in it, of every workspace."""
        ...

    def version(self, workspace: str) -> str:
        """What is another whenever a workspace's rows are; cheap to ask."""
        ...

    def rows(self, workspace: str, *, experiment: str | None = None, taskset: str | None = None) -> Sequence[RankedRun]:
        """The runs of a workspace by taskset and sandbox, the best mean first and those without one last.

        `experiment`: only those of it. `taskset`: only of `workspace/name`, or `workspace/name#` and the beginning of a
        digest.
        """
        ...

    def pairings(self, workspace: str, run_ids: Sequence[str]) -> Mapping[str, Pairing]:
        """run id -> what comparing it takes; those that are not there are left out."""
        ...

    def runs_of_tasks(self, workspace: str, refs: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """run id -> which of these pinned tasks it ran; runs of none of them are left out."""
        ...

    def sql(self, workspace: str, query: str, limits: Limits) -> SqlAnswer:
        """What one SELECT gives over the rows of a workspace; nothing of another can be reached.

        Raises `Refused` for anything else, and beyond the limits; `ServiceUnavailable` while too many are asked.
        """
        ...

    def export(self, workspace: str, table: str, target: Path) -> None:
        """Write a workspace's rows of a table as Parquet. Raises `NotFound` for a table there is not."""
        ...

    def write(self, batches: Iterable[Sequence[RankedBundle]], *, afresh: bool = False) -> Written:
        """Put these bundles in the place of what is there of their runs (`afresh`: of everything).

        Each bundle is there as a whole or, if it cannot be read, not at all; a workspace changes at once, and not if
        this is killed. The files of a batch are used only until the next is asked for. Raises `Broken` if nothing can
        be written, `StorageFull`.
        """
        ...
