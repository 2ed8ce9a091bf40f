"""What telling others of ended runs needs from outside, as Protocols."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from harbor_assets.domain.notices import Notice


class EndedRun(NamedTuple):
    """A run and when it ended. That may be long before the end was written: merging takes its time."""

    at: datetime
    run_id: str


class EndedRuns(Protocol):
    """Ended runs by time."""

    def ended_since(self, at: datetime, *, limit: int) -> Sequence[EndedRun]:
        """Runs of every workspace that ended at that moment or later, oldest first."""
        ...


class Undelivered(Exception):
    """A notice did not arrive; the text says why, without the address."""


class Messenger(Protocol):
    """Brings notices to whoever wants them."""

    def send(self, notice: Notice) -> None:
        """Raises `Undelivered`. May be called again for the same notice."""
        ...
