"""What a check found."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from harbor_assets.domain.errors import HarborAssetsError

type Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: what was looked at, how it is, and where it is not well what to do (a sentence)."""

    check: str
    status: Status
    said: str
    fix: str = ""


def ok(check: str, said: str) -> Finding:
    """As it should be."""
    return Finding(check, "ok", said)


def warn(check: str, said: str, fix: str = "") -> Finding:
    """It works so, or nobody can tell; somebody should know."""
    return Finding(check, "warn", said, fix)


def fail(check: str, said: str, fix: str = "") -> Finding:
    """It does not work so."""
    return Finding(check, "fail", said, fix)


def guarded(check: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """What `look` finds; what keeps it from looking is said, and does not end the other checks."""
    try:
        yield from look()
    except HarborAssetsError as error:
        yield warn(check, f"could not be looked at: {error}")
