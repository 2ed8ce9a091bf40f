"""Retiring the partitions of old runs, so that the pages of Dagster stay quick.

Every page of an asset loads all keys of its partition set. Only the keys go: the events, with all their metadata, stay
in the asset's event history, and results stay in catalog, bundles and leaderboard.
"""

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import batched

import dagster as dg

from harbor_assets.partitions import RUN_TASKS, RUNS, run_of

SECONDS_MAX = 30.0  # of one call: a sensor's tick ends at 60 s, and what is left is retired at the next one
BATCH = 500  # keys of one transaction, some milliseconds: whoever adds keys meanwhile waits for it


@dataclass(frozen=True, slots=True)
class Retired:
    """How many keys were retired, of how many runs, and how many are over the limit still."""

    keys: int
    runs: int
    left: int

    def __str__(self) -> str:
        left = f", {self.left} are left for the next time" if self.left else ""
        return f"{self.keys} partitions of {self.runs} old runs retired{left}"


def retire(
    instance: dg.DagsterInstance,
    *,
    keep: int,
    active: Collection[str],
    lock: Callable[[], AbstractContextManager[None]],
    seconds: float = SECONDS_MAX,
) -> Retired:
    """Retire keys of the oldest runs until at most `keep` are left in each set, whole runs at a time.

    A run in `active` keeps its keys, and so does the newest run of all, however many it has. Age is the order in which
    keys were added. Safe to be killed anywhere and done again.
    """
    until = time.monotonic() + seconds
    keys = left = 0
    runs = set[str]()
    for partitions in (str(RUN_TASKS.name), str(RUNS.name)):
        over = surplus(instance.get_dynamic_partitions(partitions), keep, active)
        left += len(over)
        for batch in batched(over, BATCH):
            if time.monotonic() >= until:
                break
            with lock():
                _delete(instance, partitions, batch)
            keys += len(batch)
            left -= len(batch)
            runs.update(map(run_of, batch))
    return Retired(keys, len(runs), left)


def _delete(instance: dg.DagsterInstance, partitions: str, keys: Sequence[str]) -> None:
    """In one transaction: Dagster's own call takes one key, and commits each."""
    from dagster._core.storage.event_log.schema import DynamicPartitionsTable
    from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage

    storage, table = instance.event_log_storage, DynamicPartitionsTable.c
    assert isinstance(storage, SqlEventLogStorage)  # SQLite and Postgres both are
    with storage.index_connection() as connection:
        connection.execute(
            DynamicPartitionsTable.delete().where(table.partitions_def_name == partitions, table.partition.in_(keys))
        )


def surplus(keys: Collection[str], keep: int, active: Collection[str]) -> list[str]:
    """The keys to retire, oldest first; `keys` in the order in which they were added."""
    by_run: dict[str, list[str]] = {}
    for key in keys:
        by_run.setdefault(run_of(key), []).append(key)
    over, total = list[str](), len(keys)
    newest = next(reversed(by_run), None)
    for run, mine in by_run.items():
        if total <= keep:
            break
        if run in active or run == newest:
            continue
        over += mine
        total -= len(mine)
    return over
