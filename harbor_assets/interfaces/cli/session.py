"""What a command works with: the settings, the wired services, and the client."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harbor_assets.domain.errors import HarborAssetsError
from harbor_assets.interfaces.cli.output import note

if TYPE_CHECKING:
    from harbor_assets.interfaces.sdk.client import Client
    from harbor_assets.settings import Settings
    from harbor_assets.sources.cache import StatusCache
    from harbor_assets.wiring import Services


@dataclass(frozen=True, slots=True)
class Session:
    """One command's view of the home. `workspace` is the client's."""

    settings: "Settings"
    services: "Services"
    client: "Client"

    @property
    def workspace(self) -> str:
        return self.client.workspace

    def own_words(self) -> list[str]:
        """What a printed command must say to mean the same workspace: nothing where it is the default."""
        return [] if self.workspace == self.settings.workspace else ["--workspace", self.workspace]

    @contextmanager
    def known_files(self, *, rehash: bool) -> Iterator["StatusCache"]:
        """What is known of files that have not changed since a command last read them."""
        from harbor_assets.sources.cache import StatusCache

        with StatusCache(self.settings.cache / "suites.db", rehash=rehash) as cache:
            yield cache


@contextmanager
def open_session(workspace: str | None = None) -> Iterator[Session]:
    """Open the home, take up runs that lost their worker, and hand out a client."""
    from harbor_assets.interfaces.backend import Backend
    from harbor_assets.interfaces.sdk.client import Client
    from harbor_assets.settings import Settings
    from harbor_assets.wiring import wire

    settings = Settings.load()
    for warning in settings.warnings():
        note(f"Warning: {warning}")
    settings.prepare_home()
    services = wire(settings)
    with Client(Backend.of(services), workspace=workspace or settings.workspace) as client:
        recover(client)
        yield Session(settings, services, client)


def recover(client: "Client") -> None:
    """Let runs go on that lost their worker. A failure of that is told, and does not fail the command."""
    try:
        for run_id in client.recover():
            note(f"{run_id} had lost its worker; it goes on")
    except (HarborAssetsError, OSError) as error:
        note(f"Runs that lost their worker could not be taken up: {error}")
