"""Where it is kept whether trials of a run may begin, as a Protocol; as `ports.py`, kept apart for its size."""

from collections.abc import Callable
from typing import Protocol

from harbor_assets.domain.admission import Admission
from harbor_assets.engine.ports import RunCatalog


class Admissions(Protocol):
    """One state for each run, for all of its workers."""

    def admission(self, run_id: str) -> Admission:
        """The state of a run; cheap. Raises `NotFound`, `Broken` for one that cannot be read."""
        ...

    def change_admission(self, run_id: str, change: Callable[[Admission], Admission]) -> Admission:
        """Replace the state by what `change` makes of it, as one transaction; the new state. `change` may be called
        more than once. A terminal run keeps what it has. Raises as `admission`."""
        ...


class GatedRuns(RunCatalog, Admissions, Protocol):
    """Runs, and whether their trials may begin: what executing one needs."""
