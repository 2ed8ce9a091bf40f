"""The connection of plain code."""

import os
from types import TracebackType
from typing import Self

from harbor_assets.interfaces.sdk.blocking import Loop
from harbor_assets.interfaces.sdk.connection import AsyncClient, Service


class Client:
    """A connection for plain code; use it in a `with` block. `Service.find` tells of the arguments."""

    def __init__(
        self,
        base_url: str | None = None,
        *,
        workspace: str | None = None,
        token: str | None = None,
        home: str | os.PathLike[str] | None = None,
    ) -> None:
        self._open(Service.find(base_url, workspace=workspace, token=token, home=home))

    @classmethod
    def from_config(cls, *, workspace: str | None = None) -> Self:
        """A connection to what the command line talks to: the context in use, else this machine's home."""
        return cls.over(Service.configured(workspace=workspace))

    @classmethod
    def over(cls, service: Service) -> Self:
        """A connection to a service that is known already."""
        client = cls.__new__(cls)
        client._open(service)
        return client

    def _open(self, service: Service) -> None:
        self.twin = AsyncClient.over(service)
        self.loop = Loop()

    @property
    def service(self) -> Service:
        """What it talks to."""
        return self.twin.service

    @property
    def workspace(self) -> str:
        """The workspace of calls that name none."""
        return self.twin.workspace

    @property
    def base_url(self) -> str | None:
        """Where the service is; None in process."""
        return self.twin.base_url

    def __repr__(self) -> str:
        return f"Client({self.base_url or 'in process'}, workspace={self.workspace!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Wait for calls under way, then close."""
        self.loop.run(self.twin.aclose())
        self.loop.close()
