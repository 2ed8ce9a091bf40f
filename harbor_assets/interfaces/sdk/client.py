"""The connection of plain code."""

from types import TracebackType
from typing import Self

from harbor_assets.interfaces.sdk.blocking import Loop
from harbor_assets.interfaces.sdk.connection import AsyncClient, Connection, Service


class Client(Connection):
    """A connection for plain code; use it in a `with` block."""

    def _open(self, service: Service) -> None:
        super()._open(service)
        self.twin = AsyncClient.over(service)
        self.loop = Loop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Wait for calls under way, then close."""
        self.loop.run(self.twin.aclose())
        self.loop.close()
