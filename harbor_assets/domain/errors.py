"""The one error family of harbor-assets.

::

    HarborAssetsError
    ├── Refused                 the request cannot be done as asked; nothing was started or stored
    │   ├── NotFound            the thing named does not exist
    │   ├── Unauthenticated     nobody says who asks, or what says so is not accepted
    │   ├── Forbidden           whoever asks may not do that
    │   ├── Conflict            somebody else changed the same thing first; look, then repeat
    │   ├── Malformed           a filter or a tag that cannot be read as one
    │   ├── TooMany             more than can be sorted or filtered at once; ask for less
    │   ├── BadArchive          a task's archive is not what the task says, or not one that can be unpacked
    │   ├── IdempotencyConflict the key was used before with a different request
    │   └── HomeUnusable        the home folder cannot be read or written
    ├── NotReady                asked too early (results of a run that still goes on); ask again later
    ├── StorageFull             the disk is full; free space, then repeat the command
    ├── ServiceUnavailable      the service did not answer or is overloaded; try again
    └── Broken                  stored data contradicts itself: our own fault, or somebody changed it by hand

Errors become exit codes (`interfaces/cli`) and HTTP statuses (`interfaces/api`) only at the edge.
"""

import errno
from collections.abc import Sequence
from dataclasses import dataclass

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})  # the OSError numbers that mean StorageFull: disk or quota is full


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a request.

    `subject` is what it is about (a task's name, a flag, a file), `message` the value, the rule and the next step.
    """

    subject: str
    message: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.message}" if self.subject else self.message


class HarborAssetsError(Exception):
    """Base of every error this project raises on purpose. `str(error)` is fit to be shown to a person."""

    elsewhere: str | None = None
    """What a caller on another machine is told instead, where the text names a path or an address of this one."""


class Refused(HarborAssetsError):
    """The request cannot be done as asked. Nothing was started or stored. `problems` holds every reason at once."""

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join([self.message, *(f"  {problem}" for problem in self.problems)])


class NotFound(Refused):
    """The thing named does not exist.

    `tells_of`: the workspace whose names stand in the text, `*`: those of any; None: of none but the one asked for. Who
    may not read that one is told `otherwise`.
    """

    def __init__(
        self, message: str, problems: Sequence[Problem] = (), *, tells_of: str | None = None, otherwise: str = ""
    ) -> None:
        super().__init__(message, problems)
        self.tells_of, self.otherwise = tells_of, otherwise


class Unauthenticated(Refused):
    """Nobody says who asks, or the token that says so is not accepted."""


class Forbidden(Refused):
    """Whoever asks is known, and may not do that."""


class Conflict(Refused):
    """Somebody else created or changed the same thing first, also after tries in a row. Look at it, then repeat."""


class Malformed(Refused):
    """What was sent cannot be read as what it should be: a filter, a tag in a body."""


class TooMany(Refused):
    """More than can be sorted or filtered at once by what has to be computed. Ask for less, or for another order."""


class BadArchive(Refused):
    """A task's archive is not what the task says it is, or not one that can be unpacked and run."""


class IdempotencyConflict(Refused):
    """The idempotency key was used before with a different request."""


class HomeUnusable(Refused):
    """The home folder cannot be read or written, or its content is of a newer version."""

    elsewhere = "The service cannot use its storage; the service's log says why. Ask its admin, then try again."


class NotReady(HarborAssetsError):
    """Asked too early: the run still goes on. Ask again when it has ended."""


class StorageFull(HarborAssetsError):
    """There is no space left where artifacts or the catalog live."""

    elsewhere = "The service has no space left; its admin must free some. Then try again."


class ServiceUnavailable(HarborAssetsError):
    """The service did not answer, or answered that it cannot serve now."""


class Broken(HarborAssetsError):
    """Stored data contradicts itself (a digest that does not match, a plan that cannot be read)."""
