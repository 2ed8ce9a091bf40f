"""Signals held back while something must not be torn in two."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def remembered(*numbers: signal.Signals) -> Iterator[Callable[[], bool]]:
    """While open, these signals are only remembered. Yields the question whether one came."""
    seen: list[int] = []
    before = {number: signal.signal(number, lambda came, _: seen.append(came)) for number in numbers}
    try:
        yield lambda: bool(seen)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
