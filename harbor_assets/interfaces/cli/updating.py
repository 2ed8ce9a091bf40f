"""`tasksets build-images --harbor-dir`: publish a suite, build its images, and write them into its task.toml files.

A file is changed only when its image is ready, or to take out one that is not what the task's folder would give: killed
anywhere, the suite is one that still publishes and builds.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harbor_assets.domain.errors import HarborAssetsError, Problem, Refused
from harbor_assets.domain.images import (
    BuildRequest,
    ImageStatus,
    ImageView,
    WrittenImage,
    context_key,
    named_key,
    written_images,
)
from harbor_assets.domain.names import Ref
from harbor_assets.domain.plans import ENGINES, SandboxWord
from harbor_assets.domain.suites import SourceTask
from harbor_assets.interfaces.cli import source
from harbor_assets.interfaces.cli.building import ALL_READY, document, exit_code, follow
from harbor_assets.interfaces.cli.output import Output, command, counted, note, one_line
from harbor_assets.interfaces.cli.publishing import publish
from harbor_assets.sources.scan import scan

if TYPE_CHECKING:
    from harbor_assets.interfaces.cli.session import Session
    from harbor_assets.sources.cache import StatusCache

NAMES_SHOWN = 10
_KIND = "context-key"  # of what the cache keeps by folder


@dataclass(slots=True)
class SuiteImages:
    """One command. `update`: whether task.toml files are written; `skip_unchanged`: tasks whose image was built from
    what they hold now are not asked for again."""

    session: "Session"
    choice: source.Choice
    out: Output
    concurrency: int
    sandbox: SandboxWord
    update: bool = False
    skip_unchanged: bool = False
    updated: list[dict[str, str]] = field(default_factory=list)

    def run(self) -> int:
        """Do it. Returns the exit code of `build-images`."""
        chosen = source.choose(self.session, self.choice, stale=not self.update)
        left_out: list[str] = []
        if self.skip_unchanged:
            kept = [task for task in chosen.tasks if not self._unchanged(task)]
            left_out = [task.stored_name for task in chosen.tasks if task not in kept]
            if left_out:
                self.out.line(f"Unchanged: {_names(left_out)}; not built again")
            chosen = replace(chosen, tasks=tuple(kept))
        if not chosen.tasks:
            return self._end(None, left_out)
        stale = {task.stored_name for task in chosen.tasks if any(map(self._is_stale(task), self._places(task)))}
        status = self._round(self._without_images(chosen, stale) if self.update else chosen)
        gone = self._gone(chosen, status) if self.update else frozenset[str]()
        if gone:
            self.out.line(f"Built anew, since their image is gone: {_names(sorted(gone))}")
            again = self._round(self._without_images(chosen, gone))
            views = [view for view in status.images if view.task not in gone]
            status = again.model_copy(update={"images": (*views, *again.images)})
        return self._end(status, left_out)

    def _round(self, chosen: source.Chosen) -> ImageStatus:
        """Publish, build, and write what is ready."""
        ref = publish(self.session, chosen, self.out, rehash=self.choice.rehash).taskset.ref
        named = Ref.parse(ref, workspace=self.session.workspace)
        request = BuildRequest(revision=named.fragment, concurrency=self.concurrency, sandbox=self.sandbox)
        status = self.session.evaluator.images.build(named, request)
        if self.update and (not status.needed or status.sandbox in ENGINES):
            what = "needs no images" if not status.needed else "keeps its images on this machine"
            raise Refused(
                f"--update-config: the sandbox {status.sandbox} {what}; what stands in task.toml must be in a "
                "registry. Ask a service that has one (--base-url), or leave --update-config out"
            )
        if status.needed:
            status = follow(self.session, named, request, status, self.out)
        if self.update:
            self._write(chosen.tasks, status.images)
        return status

    def _write(self, tasks: Sequence[SourceTask], views: Sequence[ImageView]) -> None:
        ready = {(view.task, view.role): view for view in views if view.state == "ready" and view.ref}
        for task in tasks:
            for place in self._places(task):
                view = ready.get((task.stored_name, place.role))
                if view is None or view.ref is None or (place.image and view.key == named_key(place.image)):
                    continue  # what stands there was found
                key = self._key(task, place)
                if key != view.key:
                    note(
                        f"Not updated {one_line(task.stored_name)}: {place.context}/ changed while its image was built"
                    )
                    continue
                self._change(
                    task,
                    place,
                    {
                        "docker_image": view.ref,
                        "built_content_hash": key,
                        "image_sha256": view.ref.rpartition("@")[2],
                    },
                )
                self.updated.append({"task": task.stored_name, "role": place.role, "docker_image": view.ref})
                self.out.line(f"Updated {one_line(task.stored_name)}: [{'.'.join(place.table)}] docker_image")

    def _without_images(self, chosen: source.Chosen, names: "set[str] | frozenset[str]") -> source.Chosen:
        """The tasks of that name (none: all that were chosen) with what we once wrote taken out, read again."""
        if not names:
            return chosen
        for task in (task for task in chosen.tasks if task.stored_name in names):
            for place in self._places(task):
                self._change(task, place, dict.fromkeys(("docker_image", "built_content_hash", "image_sha256")))
        kept = {task.stored_name for task in chosen.tasks}
        again = source.read(self.session, self.choice)
        return replace(again, tasks=tuple(t for t in again.tasks if t.stored_name in kept), skipped=chosen.skipped)

    def _change(self, task: SourceTask, place: WrittenImage, values: dict[str, str | None]) -> None:
        from harbor_assets.sources.taskfile import change_table, read_text, write_text

        path = Path(task.folder) / "task.toml"
        text = read_text(path)
        try:
            changed = change_table(text, place.table, values)
        except ValueError as error:
            raise Refused("task.toml cannot be updated:", [Problem(str(path), str(error))]) from error
        if changed != text:
            write_text(path, changed)

    def _gone(self, chosen: source.Chosen, status: ImageStatus) -> frozenset[str]:
        """Tasks whose image we once wrote and that is not in the registry any more."""
        failed = {(view.task, view.role) for view in status.images if view.state == "failed"}
        return frozenset(
            task.stored_name
            for task in chosen.tasks
            for place in self._places(task)
            if place.content_hash and not self._is_stale(task)(place) and (task.stored_name, place.role) in failed
        )

    def _places(self, task: SourceTask) -> list[WrittenImage]:
        """Those that are ours to write."""
        return [place for place in places_of(task) if not place.named_by_author]

    def _unchanged(self, task: SourceTask) -> bool:
        places = self._places(task)
        return all(place.image and not self._is_stale(task)(place) for place in places)

    def _is_stale(self, task: SourceTask) -> Callable[[WrittenImage], bool]:
        return lambda place: bool(place.content_hash) and place.content_hash != self._key(task, place)

    def _key(self, task: SourceTask, place: WrittenImage) -> str:
        return key_of(Path(task.folder) / place.context)

    def _end(self, status: ImageStatus | None, left_out: Sequence[str]) -> int:
        if self.update:
            self.out.line(f"{counted(len({entry['task'] for entry in self.updated}), 'task.toml file')} updated")
        if status is None:
            self.out.line("Nothing is left to build")
        elif not status.needed:
            self.out.line(f"The sandbox {status.sandbox} needs no images: there is nothing to build.")
        elif self.choice.harbor_dir:
            words = ("runs", "submit", "--harbor-dir", self.choice.harbor_dir, *self.session.own_words())
            self.out.line(f"Run it: {command(*words)}")
        if self.out.json:
            images = {} if status is None else document(self.session, status)
            self.out.document({**images, "updated": self.updated, "left_out": list(left_out)})
        return ALL_READY if status is None or not status.needed else exit_code(status)


def places_of(task: SourceTask) -> Iterator[WrittenImage]:
    """Where built images stand, or may, in a task's task.toml."""
    folder = Path(task.folder)
    return written_images(task.config, lambda path: (folder / path).is_file())


def key_of(folder: Path) -> str:
    """The key of a build context as builders reckon it. Raises `Refused` if it cannot be read."""
    from harbor_assets.images.context import key_entries

    try:
        return context_key(key_entries(folder))
    except OSError as error:
        raise Refused(f"{folder} cannot be read: {error.strerror or error}") from error


def stale_images(tasks: Sequence[SourceTask], known: "StatusCache") -> Iterator[str]:
    """The names of tasks with an image of ours in task.toml that was built from other content than there is now."""
    for task in tasks:
        for place in places_of(task):
            if place.image is None or place.content_hash is None:
                continue
            try:
                seen = scan(Path(task.folder) / place.context)
                key = known.get(seen, _KIND)
                if key is None:
                    key = key_of(seen.folder)
                    known.put(seen, _KIND, key)
            except (HarborAssetsError, OSError):
                continue  # publishing says what is wrong with the folder
            if key != place.content_hash:
                yield task.stored_name
                break


def _names(names: Sequence[str]) -> str:
    more = f", … ({len(names)} tasks)" if len(names) > NAMES_SHOWN else ""
    return f"{', '.join(map(one_line, names[:NAMES_SHOWN]))}{more}"
