"""What was published since somebody last looked, as asset events: task revisions, tasksets, images."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Self

import dagster as dg

from harbor_assets.domain.errors import HarborAssetsError
from harbor_assets.domain.images import partition_key
from harbor_assets.domain.names import Ref
from harbor_assets.domain.tasks import HarborTask
from harbor_assets.engine.lifecycle import RunEngine
from harbor_assets.engine.ports import ImageCatalog, TaskCatalog
from harbor_assets.events.suites import image_event, task_event, taskset_event
from harbor_assets.partitions import IMAGES, TASKS, TASKSETS

# Of each kind at one look. Dagster's daemon writes them, some 16 ms each, and does not look after runs meanwhile.
EVENTS_MAX = 20
_PAGE = 500
_SECONDS = 20.0  # of one look: a sensor that takes a minute is cut off
# What was stored at 12:00:00 may be committed, and so be seen, after what was stored at 12:00:01.
_OVERLAP = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Followed:
    """How far each kind has been followed: the moment of the last one told."""

    moments: Mapping[str, datetime] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str | None) -> Self:
        """A cursor that cannot be read counts as none: telling an event twice is no harm."""
        try:
            return cls({kind: datetime.fromisoformat(at) for kind, at in json.loads(text or "{}").items()})
        except (ValueError, AttributeError, TypeError):
            return cls()

    def text(self) -> str:
        """As a sensor's cursor."""
        return json.dumps({kind: at.isoformat() for kind, at in sorted(self.moments.items())})


@dataclass(slots=True)
class Found:
    """What one look found. `partitions`: keys to add by partition set. `problems`: what could not be told."""

    followed: Followed
    events: list[dg.AssetMaterialization] = field(default_factory=list)
    partitions: dict[str, list[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class Publications:
    """Follows the catalog. A key that Dagster has is not told again, so looking twice, or from the start, is safe."""

    def __init__(self, tasks: TaskCatalog, images: ImageCatalog, engine: RunEngine) -> None:
        self._tasks, self._images, self._engine = tasks, images, engine

    def since(self, followed: Followed, *, known: Callable[[str], set[str]]) -> Found:
        """The events of what was published since; `known` answers with the keys of a partition set that are there."""
        found = Found(followed)
        until = time.monotonic() + _SECONDS
        for kind, partitions, entries in (
            ("task", TASKS, self._published_tasks),
            ("taskset", TASKSETS, self._published_tasksets),
            ("image", IMAGES, self._ready_images),
        ):
            self._follow(found, kind, str(partitions.name), entries, known, until)
        return found

    def _follow(
        self,
        found: Found,
        kind: str,
        partitions: str,
        entries: "Callable[[datetime | None], Sequence[_Entry]]",
        known: Callable[[str], set[str]],
        until: float,
    ) -> None:
        last = found.followed.moments.get(kind)
        start = last - _OVERLAP if last else None
        there, added = known(partitions), found.partitions.setdefault(partitions, [])
        while page := entries(start):
            for entry in page:
                if len(added) == EVENTS_MAX or time.monotonic() > until:
                    page = []
                    break
                if entry.key not in there:
                    there.add(entry.key)
                    try:
                        found.events.append(entry.event())
                        added.append(entry.key)
                    except HarborAssetsError as error:
                        found.problems.append(f"{kind} {entry.key} is not told: {error}")
                last = max(last or entry.at, entry.at)
            if len(page) < _PAGE:
                break
            start = page[-1].at
        if last is not None:
            found.followed = replace(found.followed, moments={**found.followed.moments, kind: last})

    def _published_tasks(self, after: datetime | None) -> "list[_Entry]":
        return [
            _Entry(at, Ref.parse(ref, workspace="").partition_key, lambda ref=ref: self._task(ref))
            for at, ref in self._tasks.published("task", after, limit=_PAGE)
        ]

    def _published_tasksets(self, after: datetime | None) -> "list[_Entry]":
        return [
            _Entry(at, Ref.parse(ref, workspace="").partition_key, lambda ref=ref: self._taskset(ref))
            for at, ref in self._tasks.published("taskset", after, limit=_PAGE)
        ]

    def _ready_images(self, after: datetime | None) -> "list[_Entry]":
        return [
            _Entry(
                image.seen_at,
                partition_key(image.ref or ""),
                lambda image=image: image_event(image.ref or "", name=image.name, key=image.key, log=image.log),
            )
            for image in self._images.ready_images(after, limit=_PAGE)
        ]

    def _task(self, text: str) -> dg.AssetMaterialization:
        (task,) = self._tasks.get_pinned_tasks([text])
        if not isinstance(task.spec, HarborTask):
            return task_event(task.ref, workspace=task.workspace)
        source = task.spec.source
        return task_event(
            task.ref,
            native_task_id=task.spec.native_task_id,
            files_hash=source.files_hash,
            workspace=task.workspace,
            files=self._engine.task_files(source),
        )

    def _taskset(self, text: str) -> dg.AssetMaterialization:
        ref = Ref.parse(text, workspace="")
        found = self._tasks.get_taskset(ref.workspace, ref.name, ref.fragment)
        return taskset_event(found.ref, found.tasks, workspace=found.workspace)


@dataclass(frozen=True, slots=True)
class _Entry:
    at: datetime
    key: str
    event: Callable[[], dg.AssetMaterialization]
