"""Publishing a suite's folder to this home, for callers that are no command line."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harbor_assets.domain.errors import Refused

if TYPE_CHECKING:
    from harbor_assets.domain.plans import SkippedTask
    from harbor_assets.engine.publish import Published, PublishEvent
    from harbor_assets.wiring import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What to publish: a suite's folder, what to take of it, and whether its broken tasks may be left out.

    `workspace` None: the one that the settings name.
    """

    folder: str
    tasks: Sequence[str] | None = None
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    limit: int | None = None
    skip_invalid: bool = False
    workspace: str | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """What came of it. `warnings`: of the suite and its tasks, for people."""

    workspace: str
    published: "Published"
    skipped: "Sequence[SkippedTask]"
    warnings: Sequence[str]


class Publisher:
    """Publishes to the home or deployment of `services`."""

    def __init__(self, services: "Services") -> None:
        self._services = services

    def publish(self, wanted: Publication, report: "Callable[[PublishEvent], None]" = lambda event: None) -> Told:
        """Publish the chosen tasks and a taskset of them; `report` is told of each as it happens.

        Raises `Refused` for a folder that is no suite, for broken tasks, and for names that fit nothing.
        """
        from harbor_assets.domain.suites import select
        from harbor_assets.engine.publish import publish_suite
        from harbor_assets.interfaces.backend import Backend
        from harbor_assets.interfaces.sdk.client import Client
        from harbor_assets.interfaces.sdk.connection import Service
        from harbor_assets.interfaces.sdk.publishing import Publishing
        from harbor_assets.sources.cache import StatusCache
        from harbor_assets.sources.directory import read_suite
        from harbor_assets.sources.packing import FolderPacker

        folder = Path(wanted.folder).expanduser()
        if not folder.is_absolute():
            raise Refused(f"'{wanted.folder}' is not a full path; write the path from / of the suite's folder")
        settings = self._services.settings
        settings.prepare_home()
        workspace = wanted.workspace or settings.workspace
        with StatusCache(settings.cache / "suites.db") as known:
            suite = read_suite(folder, cache=known)
            skipped = suite.skip_invalid(wanted.skip_invalid)
            chosen = select(suite, wanted.tasks, include=wanted.include, exclude=wanted.exclude, limit=wanted.limit)
            service = Service(workspace, backend=Backend.of(self._services))
            with Client.over(service) as client:
                published = publish_suite(
                    suite,
                    chosen,
                    workspace=workspace,
                    target=Publishing(client),
                    packer=FolderPacker(settings.work, known),
                    report=report,
                )
        warnings = [*suite.warnings, *(f"{task.stored_name}: {text}" for task in suite.tasks for text in task.warnings)]
        warnings += [f"skipped {task.name}: {task.file}: {task.reason}" for task in skipped]
        return Told(workspace, published, skipped, warnings)
