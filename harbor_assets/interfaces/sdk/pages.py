"""Pages of lists. A page holds its own items, and gives those of all pages from it on when it is iterated over."""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from harbor_assets.domain.views import Pagination


@dataclass(frozen=True, slots=True)
class Listing[T]:
    """One page. `unreadable` names entries of it that could not be read and are therefore not among `data`."""

    data: Sequence[T]
    pagination: Pagination
    sort: str | None = None
    unreadable: Sequence[str] = ()

    @property
    def has_next(self) -> bool:
        """Whether a page follows."""
        return self.pagination.page < self.pagination.total_pages


@dataclass(frozen=True, slots=True)
class AsyncPage[T](Listing[T]):
    """A page whose followers are fetched with `await`. Pages are counted when they are fetched: what others add or
    delete meanwhile may move an item to a page that was read already, or to one that is still to come."""

    _fetch: "Callable[[int], Awaitable[AsyncPage[T]]]" = field(kw_only=True, repr=False, compare=False)

    async def next_page(self) -> "AsyncPage[T] | None":
        """The page that follows, None after the last."""
        return await self._fetch(self.pagination.page + 1) if self.has_next else None

    async def __aiter__(self) -> AsyncIterator[T]:
        page: AsyncPage[T] | None = self
        while page is not None:
            for item in page.data:
                yield item
            page = await page.next_page()


@dataclass(frozen=True, slots=True)
class Page[T](Listing[T]):
    """A page of plain code. Pages are counted when they are fetched: what others add or delete meanwhile may move an
    item to a page that was read already, or to one that is still to come."""

    _twin: AsyncPage[T] = field(kw_only=True, repr=False, compare=False)
    _run: Callable[[Coroutine[Any, Any, AsyncPage[T] | None]], AsyncPage[T] | None] = field(
        kw_only=True, repr=False, compare=False
    )

    @classmethod
    def of(cls, page: AsyncPage[T], run: Callable[[Coroutine[Any, Any, Any]], Any]) -> Self:
        """The plain form of a page."""
        return cls(page.data, page.pagination, page.sort, page.unreadable, _twin=page, _run=run)

    def next_page(self) -> "Page[T] | None":
        """The page that follows, None after the last."""
        found = self._run(self._twin.next_page())
        return None if found is None else Page.of(found, self._run)

    def __iter__(self) -> Iterator[T]:
        page: Page[T] | None = self
        while page is not None:
            yield from page.data
            page = page.next_page()
