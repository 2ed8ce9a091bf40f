"""Connections: to this machine's home in the same process, or to a service elsewhere. What is done over them is in
`evaluator.py`."""

import logging
import os
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from harbor_assets.domain.errors import HarborAssetsError, HomeUnusable, Refused
from harbor_assets.engine.recovery import Recovered
from harbor_assets.interfaces.backend import Backend
from harbor_assets.interfaces.contexts import chosen_context
from harbor_assets.interfaces.sdk.http import Http, service_url
from harbor_assets.interfaces.sdk.transport import InProcessTransport
from harbor_assets.interfaces.tokens import check_token
from harbor_assets.settings import Settings

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Service:
    """What a client talks to: a `backend` in this process, or the service at `base_url`, which may ask for a token."""

    workspace: str
    base_url: str | None = None
    token: str | None = field(default=None, repr=False)
    backend: Backend | None = field(default=None, repr=False)

    @classmethod
    def find(
        cls,
        base_url: str | None = None,
        *,
        workspace: str | None = None,
        token: str | None = None,
        home: str | os.PathLike[str] | None = None,
    ) -> Self:
        """The service at `base_url`, else the home in the folder `home`, by default the one that the settings name.

        `workspace` and `token` None: HARBOR_ASSETS_WORKSPACE and HARBOR_ASSETS_TOKEN. A home is made if it is missing,
        and its runs that lost their worker are taken up. Raises `Refused` for what is no URL or token and for bad
        settings, `HomeUnusable` for a home that cannot be used; whether a service answers, the first call finds out.
        """
        if base_url is not None:
            if home is not None:
                raise Refused("base_url and home are two places; give one of them")
            settings = Settings.load()
            found = token if token is not None else settings.token or None
            return cls(
                workspace or settings.workspace,
                service_url(base_url),
                None if found is None else check_token(found, "The token"),
            )
        settings = Settings.load({**os.environ, **({} if home is None else {"HARBOR_ASSETS_HOME": os.fspath(home)})})
        return cls.of_home(settings, workspace=workspace)

    @classmethod
    def of_home(cls, settings: Settings, *, workspace: str | None = None) -> Self:
        """The home of these settings, made if it is missing, its lost runs taken up."""
        from harbor_assets.wiring import wire

        settings.prepare_home()
        found = cls(workspace or settings.workspace, backend=Backend.of(wire(settings)))
        try:
            found.recover()
        except HomeUnusable:
            raise
        except (HarborAssetsError, OSError) as error:  # what is stored can be read all the same
            _log.warning("Runs that lost their worker could not be taken up: %s", error)
        return found

    @classmethod
    def configured(cls, *, workspace: str | None = None) -> Self:
        """What the command line talks to: the context in use, else this machine's home."""
        settings = Settings.load()
        context = chosen_context(settings.context)
        if context is None:
            return cls.of_home(settings, workspace=workspace)
        return cls(workspace or settings.workspace, context.base_url, context.token(settings.token))

    def recover(self) -> Recovered:
        """Let runs that lost their worker go on, and say which could not. A service does this by itself: none, then."""
        return Recovered() if self.backend is None else self.backend.evaluations.recover()

    def http(self) -> Http:
        """A way to call it."""
        if self.base_url is not None:
            return Http.remote(self.base_url, self.token)
        assert self.backend is not None
        from harbor_assets.interfaces.api.app import PartedApp

        return Http.in_process(InProcessTransport(PartedApp(self.backend)))


class Connection:
    """What both kinds of connection are: one service, opened on being made."""

    service: Service

    def __init__(
        self,
        base_url: str | None = None,
        *,
        workspace: str | None = None,
        token: str | None = None,
        home: str | os.PathLike[str] | None = None,
    ) -> None:
        """`Service.find` tells of the arguments, and of what is raised."""
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
        self.service = service

    @property
    def workspace(self) -> str:
        """The workspace of calls that name none."""
        return self.service.workspace

    @property
    def base_url(self) -> str | None:
        """Where the service is; None in process."""
        return self.service.base_url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_url or 'in process'}, workspace={self.workspace!r})"


class AsyncClient(Connection):
    """A connection for asynchronous code; use it in an `async with` block."""

    def _open(self, service: Service) -> None:
        super()._open(service)
        self.http = service.http()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection."""
        await self.http.aclose()
