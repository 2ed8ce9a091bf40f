"""Plain code out of asynchronous code: what the SDK does is written once, as coroutines, and called from both kinds."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import Any, Concatenate

from harbor_assets.interfaces.sdk.pages import AsyncPage, Page


class Loop:
    """One event loop, kept from call to call. Calls of several threads wait for each other."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._lock = threading.RLock()

    def run[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Run a piece of asynchronous work to its end."""
        with self._lock:
            if not _within_a_loop():
                return self._runner.run(work)
            with ThreadPoolExecutor(1) as thread:  # a notebook's cells run inside a loop of its own
                return thread.submit(self._runner.run, work).result()

    def close(self) -> None:
        """Wait for what is under way, then end."""
        with self._lock:
            self._runner.close()


def _within_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class Blocking:
    """The plain form of an asynchronous resource, its `twin`."""

    def __init__(self, loop: Loop, twin: Any) -> None:
        self._loop, self._twin = loop, twin


def blocking[**P, T](method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """The plain form of a method of the twin."""

    @wraps(method)
    def call(self: Blocking, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._loop.run(method(self._twin, *args, **kwargs))

    return call


def blocking_page[**P, T](
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, AsyncPage[T]]],
) -> Callable[Concatenate[Any, P], Page[T]]:
    """The plain form of a method of the twin that lists."""

    @wraps(method)
    def call(self: Blocking, /, *args: P.args, **kwargs: P.kwargs) -> Page[T]:
        return Page.of(self._loop.run(method(self._twin, *args, **kwargs)), self._loop.run)

    return call


def blocking_each[**P, T](
    method: Callable[Concatenate[Any, P], AsyncIterator[T]],
) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """The plain form of a method of the twin that tells of one thing after another."""

    @wraps(method)
    def call(self: Blocking, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        found = method(self._twin, *args, **kwargs)

        async def following() -> T | None:
            return await anext(found, None)

        while (one := self._loop.run(following())) is not None:
            yield one

    return call
