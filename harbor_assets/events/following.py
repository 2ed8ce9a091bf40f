"""Which tasks of runs have ended since somebody last looked, from the events of `trial_results`."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Self

import dagster as dg

from harbor_assets.domain.errors import Broken, NotFound
from harbor_assets.engine.publication import Published
from harbor_assets.partitions import run_of

EVENTS_MAX = 500  # of each kind at one look
_SECONDS = 20.0  # of one look: a sensor that takes a minute is cut off
_ASSET = dg.AssetKey("trial_results")


@dataclass(frozen=True, slots=True)
class Followed:
    """How far events were followed, by their numbers in Dagster's log: of tasks with a score, and of those without."""

    materialized: int = 0
    observed: int = 0

    @classmethod
    def read(cls, text: str | None) -> Self:
        """A cursor that cannot be read counts as none: publishing twice is no harm."""
        try:
            found = json.loads(text or "{}")
            return cls(int(found.get("materialized", 0)), int(found.get("observed", 0)))
        except (ValueError, AttributeError, TypeError):
            return cls()

    def text(self) -> str:
        """As a sensor's cursor."""
        return json.dumps({"materialized": self.materialized, "observed": self.observed})


@dataclass(slots=True)
class Ended:
    """What one look found: (number of the event, whether it is an observation, partition key), oldest first."""

    followed: Followed
    events: list[tuple[int, bool, str]]
    problems: list[str] = field(default_factory=list)

    def each(self, publish: Callable[[str, int], Published | None]) -> Iterator[Published]:
        """Publish one task after another, as far as there is time; `followed` tells how far that was.

        A run that is gone, or cannot be read, is passed over.
        """
        until, told = time.monotonic() + _SECONDS, set[str]()
        for number, observed, key in self.events:
            if time.monotonic() > until:
                return
            if key not in told:
                told.add(key)
                try:
                    published = publish(run_of(key), int(key.partition("|")[2]))
                except (NotFound, Broken, KeyError, ValueError) as error:
                    self.problems.append(f"{key}: {error}")
                else:
                    if published is not None:
                        yield published
            name = "observed" if observed else "materialized"
            self.followed = replace(self.followed, **{name: number})


def ended_tasks(instance: dg.DagsterInstance, followed: Followed) -> Ended:
    """The tasks that have ended since."""
    materialized = instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key=_ASSET, after_storage_id=followed.materialized),
        limit=EVENTS_MAX,
        ascending=True,
    )
    observed = instance.fetch_observations(
        dg.AssetRecordsFilter(asset_key=_ASSET, after_storage_id=followed.observed), limit=EVENTS_MAX, ascending=True
    )
    events = [(r.storage_id, False, r.partition_key) for r in materialized.records if r.partition_key]
    events += [(r.storage_id, True, r.partition_key) for r in observed.records if r.partition_key]
    return Ended(followed, sorted(events))
