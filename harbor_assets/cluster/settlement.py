"""When a run that has ended is settled: as a Dagster run of its own, tried again with pauses, given up some day. Pure.

Merging ten thousand trials from an object store takes minutes, which no sensor has.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

# A full disk or a quota without room for one more pod is mended by a person: ten tries span half an hour, and a worker
# that finds no place waits for one as long as Dagster lets it, each time.
TRIES_MAX = 10
_PAUSE_SECONDS, _PAUSE_MAX_SECONDS = 5.0, 600.0


@dataclass(frozen=True, slots=True)
class Tried:
    """A Dagster run that was to settle a run. `ended_at` is None while it goes on."""

    dagster_run_id: str
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class Order:
    """A run to be settled now. `number` counts the tries from 1."""

    run_id: str
    number: int

    @property
    def key(self) -> str:
        """Equal for equal orders: one given twice is carried out once."""
        return f"settle-{self.run_id}-{self.number}"


def order(run_id: str, tried: Sequence[Tried], now: datetime) -> Order | None:
    """The order that is due, None while a try goes on or its failure is too fresh. `tried` in any order."""
    ended = [each.ended_at for each in tried if each.ended_at]
    if len(ended) < len(tried):
        return None
    pause = min(_PAUSE_SECONDS * 2 ** (len(ended) - 1), _PAUSE_MAX_SECONDS) if ended else 0.0
    if ended and now < max(ended) + timedelta(seconds=pause):
        return None
    return Order(run_id, len(ended) + 1)


def given_up(tried: Sequence[Tried]) -> str | None:
    """Why no further try is made, as the run's error says it; None while there is hope."""
    if len(tried) < TRIES_MAX or any(each.ended_at is None for each in tried):
        return None
    last = max(tried, key=lambda each: each.ended_at or datetime.min)
    return (
        f"merging failed {len(tried)} times, the last time in Dagster run {last.dagster_run_id}, whose log says why; "
        "materialise merged_bundle of this run to make the bundle"
    )
