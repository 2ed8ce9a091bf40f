"""How large a sandbox is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a sandbox gets at most: cores, megabytes (2**20 bytes), whole devices. None: nothing is asked."""

    cpus: float | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    gpus: int = 0
