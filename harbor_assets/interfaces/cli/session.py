"""What a command works with: the settings, and the SDK over this machine's home or a service elsewhere."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from harbor_assets.domain.errors import HarborAssetsError, HomeUnusable, StorageFull
from harbor_assets.interfaces.cli.output import command, note, one_line

if TYPE_CHECKING:
    from harbor_assets.interfaces.sdk.evaluator import Evaluator
    from harbor_assets.settings import Settings
    from harbor_assets.sources.cache import StatusCache


@dataclass(frozen=True, slots=True)
class Session:
    """One command's view of the service.

    `asked_url` is the base URL that stood on the command line, None if a context decided or this machine serves itself.
    """

    settings: "Settings"
    evaluator: "Evaluator"
    asked_url: str | None = None
    _told: set[str] = field(default_factory=set)

    @property
    def workspace(self) -> str:
        return self.evaluator.workspace

    @property
    def remote(self) -> bool:
        return self.evaluator.base_url is not None

    def own_words(self) -> list[str]:
        """What a printed command must say to mean the same service and workspace: nothing where it is the default."""
        words = [] if self.workspace == self.settings.workspace else ["--workspace", self.workspace]
        return words if self.asked_url is None else [*words, "--base-url", self.asked_url]

    def tell(self, text: str) -> None:
        """A note, once: a command that follows a run looks again each second."""
        if text not in self._told:
            self._told.add(text)
            note(text)

    @contextmanager
    def known_files(self, *, rehash: bool) -> Iterator["StatusCache"]:
        """What is known of files that have not changed since a command last read them."""
        from harbor_assets.sources.cache import StatusCache

        with StatusCache(self.settings.cache / "suites.db", rehash=rehash) as cache:
            yield cache

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for archives on their way: in the home where that is used, else the system's own for a while."""
        if not self.remote:
            yield self.settings.work
            return
        import tempfile

        with tempfile.TemporaryDirectory(prefix="harbor-assets-") as folder:
            yield Path(folder)


@contextmanager
def open_session(
    workspace: str | None = None, base_url: str | None = None, *, local: bool = False, take_up: bool = True
) -> Iterator[Session]:
    """Hand out the SDK over the service that the command line, `HARBOR_ASSETS_CONTEXT` or the context in use names.

    Where that is this machine, its home is opened and runs that lost their worker are taken up. `local`: no context
    counts. `take_up` False leaves them to the command.
    """
    from harbor_assets.interfaces.contexts import Context, chosen_context
    from harbor_assets.interfaces.sdk.client import Client
    from harbor_assets.interfaces.sdk.connection import Service
    from harbor_assets.interfaces.sdk.evaluator import Evaluator
    from harbor_assets.interfaces.sdk.http import service_url
    from harbor_assets.settings import Settings

    settings = Settings.load()
    for warning in settings.warnings():
        note(f"Warning: {warning}")
    asked = Context(base_url) if base_url else None
    context = asked if asked or local else chosen_context(settings.context)
    where = workspace or settings.workspace
    if context is not None:
        service = Service(where, service_url(context.base_url), context.token(settings.token))
        with Client.over(service) as client:
            yield Session(settings, Evaluator.from_client(client), base_url)
        return
    from harbor_assets.interfaces.backend import Backend
    from harbor_assets.wiring import wire

    settings.prepare_home()
    _show_waits()
    services = wire(settings)
    with Client.over(Service(where, backend=Backend.of(services))) as client:
        session = Session(settings, Evaluator.from_client(client))
        if take_up:
            recover(session)
        yield session


class _Notes(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        note(one_line(record.getMessage()))


def _show_waits() -> None:
    """What this process says of an engine's long pulls, which no answer of the API can tell while they last."""
    log = logging.getLogger("harbor_assets.sandboxes.engines")
    if not any(isinstance(handler, _Notes) for handler in log.handlers):
        log.addHandler(_Notes())
        log.setLevel(logging.INFO)


def recover(session: Session, run_id: str | None = None) -> None:
    """Let runs go on that lost their worker. A failure of that is told once, and does not fail the command.

    `run_id` is the run that the command follows: if that one cannot go on, raises why, and what to do.
    """
    try:
        found = session.evaluator.recover()
    except HomeUnusable:
        raise  # nor can the command do anything
    except (HarborAssetsError, OSError) as error:
        if run_id is not None and isinstance(error, StorageFull):
            raise  # the followed run cannot go on either
        session.tell(f"Runs that lost their worker could not be taken up: {error}")
        return
    for taken in found.taken_up:
        why = f" ({one_line(taken.why)})" if taken.why else ""
        note(f"{taken.run_id} had lost its worker{why}; it goes on. Its log: {command('runs', 'logs', taken.run_id)}")
    for held in found.held_up:
        if held.run_id == run_id:
            follow = command("runs", "status", held.run_id, "--watch")
            raise type(held.error)(f"{held.error}\n{held.run_id} has lost its worker. Then let it go on: {follow}")
        session.tell(f"{held.run_id} has lost its worker and cannot go on: {held.error}")
