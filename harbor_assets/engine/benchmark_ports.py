"""What scheduled benchmarks need from outside, as a Protocol."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Keyed(NamedTuple):
    """A run by the idempotency key it was submitted with."""

    key: str
    run_id: str


class KeyedRuns(Protocol):
    """Runs by their idempotency keys, which are of a workspace and an owner."""

    def runs_by_key(self, workspace: str, owner: str, prefix: str) -> Sequence[Keyed]:
        """Those whose key begins with `prefix`, by key."""
        ...

    def key_of(self, run_id: str) -> str | None:
        """The key a run was submitted with; None: it had none, or there is no such run."""
        ...
