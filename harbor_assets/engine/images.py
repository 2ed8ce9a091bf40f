"""The images of a taskset: find out what its tasks need, build what is missing, remember what became of it.

A row is written when an image is there or has failed, never before: whoever is killed leaves nothing to interpret, and
a rerun does what is not there. A fault that says nothing of the image (the builder does not answer) leaves no row.
Whoever sees to an image holds a claim on it in the catalog, so that the processes of a service build it once. It is
renewed while its holder lives and runs out soon after, so that a killed one blocks nobody for long.
"""

import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from harbor_assets.domain.endings import cut
from harbor_assets.domain.errors import HarborAssetsError, NotFound, Problem, Refused, ServiceUnavailable
from harbor_assets.domain.images import (
    BuildRequest,
    ImageNeed,
    ImageRecord,
    ImagesImpossible,
    ImageStatus,
    ImageView,
    TaskImage,
    TaskImages,
    image_tag,
    log_key,
    named_key,
    plan_images,
)
from harbor_assets.domain.names import nearest
from harbor_assets.domain.plans import ImageConfig, ImageProblem
from harbor_assets.domain.tasks import Task, Taskset, not_harbor
from harbor_assets.engine.mirroring import ImageMirror
from harbor_assets.engine.ports import (
    Artifacts,
    BuildFailed,
    BuildOrder,
    ImageBuilder,
    ImageCatalog,
    ImageRegistry,
    TaskCatalog,
    TaskFolders,
)

log = logging.getLogger(__name__)

# A claim outlives its holder so long. Three renewals fit in, so that a slow database or clocks that differ by seconds
# take no claim from the living; if one is lost all the same, an image is built twice, which does no harm.
LEASE_SECONDS = 30.0
RENEWALS = 3
CLAIM_POLL_SECONDS = 1.0  # how late one sees that another process is done: little beside a build, one small query
MESSAGE_MAX = 2000  # characters of a builder's error kept in a record; the log holds the rest


@dataclass(slots=True)
class _Work:
    """A task whose images are being seen to since a moment. `state` is what a client is told."""

    since: datetime
    state: str = "waiting"


class ImageBuilds:
    """Builds the images of tasks, several at once, in threads of this process (implements `Images`, too).

    `prefix`: registry and folder of what is built, as `registry.example.org/evals`. `builder` None: nothing can be
    built here, only images named by tasks are looked up. `lease_seconds`: how long a claim outlives a killed process.
    `mirror`: where images that tasks name are copied to; None: they run from where they are.
    """

    def __init__(
        self,
        *,
        tasks: TaskCatalog,
        images: ImageCatalog,
        folders: TaskFolders,
        registry: ImageRegistry,
        artifacts: Artifacts,
        builder: ImageBuilder | None,
        prefix: str,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        lease_seconds: float = LEASE_SECONDS,
        mirror: ImageMirror | None = None,
    ) -> None:
        self._tasks, self._images, self._folders, self._registry = tasks, images, folders, registry
        self._artifacts, self._builder, self._prefix, self._clock = artifacts, builder, prefix, clock
        self._lease_seconds, self._mirror = lease_seconds, mirror
        self._lock = threading.Lock()
        self._work: dict[str, _Work] = {}  # by a task's files hash
        self._one_at_a_time: dict[str, threading.Lock] = {}  # by an image's key: tasks share images
        self._faults: dict[str, str] = {}  # of the last try, by a task's files hash
        self._unchanged: set[str] = set()  # keys of images that the last request found as they were

    # --- for clients ----------------------------------------------------------------------------------------------

    def start(self, workspace: str, name: str, request: BuildRequest) -> ImageStatus:
        """Begin with everything that is not ready; returns at once. What is under way already is not begun again.

        Raises `NotFound` for an unknown taskset, `Refused` naming selected tasks it does not have.
        """
        taskset, tasks = self._members(workspace, name, request.revision, request.select)
        begun: dict[str, Task] = {}
        with self._lock:
            for task in tasks:
                files_hash = task.harbor.source.files_hash
                if files_hash not in self._work:
                    self._work[files_hash], begun[files_hash] = _Work(self._clock()), task
                    self._faults.pop(files_hash, None)
        waiting: queue.SimpleQueue[Task] = queue.SimpleQueue()
        for task in begun.values():
            waiting.put(task)
        for number in range(min(request.concurrency, len(begun))):
            # Daemons: a process that is told to stop must not wait for a build, which ends with its connection.
            threading.Thread(target=self._work_off, args=(waiting,), name=f"images-{number}", daemon=True).start()
        return self._status(taskset, tasks)

    def status(self, workspace: str, name: str, revision: str | None = None) -> ImageStatus:
        """What is known of the images of every task of a taskset."""
        return self._status(*self._members(workspace, name, revision, None))

    def log(self, key: str) -> bytes:
        """The log of an image's last build. Raises `NotFound`."""
        with self._artifacts.open(log_key(key)) as file:
            return file.read()

    def resolve(self, tasks: Sequence[Task]) -> Sequence[TaskImages]:
        """See `Images`."""
        needs = self._images.task_images([task.harbor.source.files_hash for task in tasks])
        keys = [image.key for images in needs.values() for image in images if image.key]
        records = self._images.images(keys)
        return [_resolved(needs.get(task.harbor.source.files_hash, ()), records) for task in tasks]

    def _members(
        self, workspace: str, name: str, revision: str | None, select: Sequence[str] | None
    ) -> tuple[Taskset, list[Task]]:
        taskset = self._tasks.get_taskset(workspace, name, revision)
        tasks = sorted(self._tasks.get_pinned_tasks(taskset.tasks), key=lambda task: task.name)
        if others := not_harbor(tasks):
            raise Refused(f"The taskset {taskset.workspace}/{taskset.name} holds tasks that need no images:", others)
        if select is None:
            return taskset, tasks
        names = [task.name for task in tasks]
        if unknown := sorted(set(select) - set(names)):
            problems = [Problem(n, f"is no task of it; near: {', '.join(nearest(n, names)) or '-'}") for n in unknown]
            raise Refused(f"The taskset {taskset.workspace}/{taskset.name} does not have these tasks:", problems)
        return taskset, [task for task in tasks if task.name in set(select)]

    def _status(self, taskset: Taskset, tasks: Sequence[Task]) -> ImageStatus:
        with self._lock:
            work = {key: item.state for key, item in self._work.items()}
            faults, unchanged = dict(self._faults), set(self._unchanged)
        # Read after the work: what has ended meanwhile has its rows by then.
        needs = self._images.task_images([task.harbor.source.files_hash for task in tasks])
        keys = [image.key for images in needs.values() for image in images if image.key]
        claimed = self._images.claimed_images(keys, now=self._clock())
        records = self._images.images(keys)
        views: list[ImageView] = []
        for task in tasks:
            files_hash = task.harbor.source.files_hash
            if files_hash in work:
                state = "waiting" if work[files_hash] == "waiting" else "building"
                views.append(ImageView(task=task.name, state=state))
            elif files_hash in faults:
                views.append(ImageView(task=task.name, state="failed", message=faults[files_hash]))
            else:
                views += _views(task.name, needs.get(files_hash, ()), records, claimed, unchanged)
        return ImageStatus(taskset_ref=taskset.ref, images=tuple(views))

    # --- the work -------------------------------------------------------------------------------------------------

    def _work_off(self, waiting: "queue.SimpleQueue[Task]") -> None:
        with suppress(queue.Empty):
            while True:
                self._see_to(waiting.get_nowait())

    def _see_to(self, task: Task) -> None:
        """All images of a task. Never raises: what went wrong is in a row, or told as the task's fault."""
        files_hash = task.harbor.source.files_hash
        with self._lock:
            work = self._work[files_hash]
            work.state = "building"
        fault = None
        try:
            self._task(task, work.since)
        except HarborAssetsError as error:
            fault = str(error)
        except OSError as error:
            fault = f"the task's files cannot be read here: {error.strerror or error}"
        except Exception as error:
            log.exception("images of %s", task.name)
            fault = f"an internal error ({type(error).__name__}); the service's log has it"
        with self._lock:
            if fault:
                self._faults[files_hash] = fault
            del self._work[files_hash]

    def _task(self, task: Task, since: datetime) -> None:
        folder = self._folders.get(task.harbor.source)
        files_hash = task.harbor.source.files_hash
        try:
            needs = plan_images(task.harbor.config, lambda path: (folder / path).is_file())
        except ImagesImpossible as error:
            self._images.put_task_images(files_hash, [TaskImage(role="agent", problem=str(error))])
            return
        keys = {need.role: self._key(need, folder) for need in needs}
        found = [TaskImage(role=need.role, key=keys[need.role]) for need in needs]
        if self._images.task_images([files_hash]).get(files_hash) != found:
            self._images.put_task_images(files_hash, found)
        for key, need in {keys[need.role]: need for need in reversed(needs)}.items():
            with self._lock:
                alone = self._one_at_a_time.setdefault(key, threading.Lock())
            with alone, self._claim(key):
                self._image(task.name, need, key, folder, since)

    @contextmanager
    def _claim(self, key: str) -> Iterator[None]:
        """Wait until no other process sees to the image, then keep others from it while the block lasts."""
        holder, over = uuid.uuid4().hex, threading.Event()
        while not self._take(key, holder):
            time.sleep(min(CLAIM_POLL_SECONDS, self._lease_seconds / RENEWALS))

        def keep() -> None:
            while not over.wait(self._lease_seconds / RENEWALS):
                try:
                    self._take(key, holder)
                except HarborAssetsError as error:  # the catalog is away for a moment: try again
                    log.warning("the claim on image %s was not renewed: %s", key, error)

        keeper = threading.Thread(target=keep, name="image-claim", daemon=True)
        keeper.start()
        try:
            yield
        finally:
            over.set()
            keeper.join()
            with suppress(HarborAssetsError):  # it runs out by itself
                self._images.release_image(key, holder)

    def _take(self, key: str, holder: str) -> bool:
        now = self._clock()
        return self._images.claim_image(key, holder, now=now, until=now + timedelta(seconds=self._lease_seconds))

    def _key(self, need: ImageNeed, folder: Path) -> str:
        if need.image is not None:
            return named_key(need.image)
        assert need.context is not None
        return self._needed_builder().key(folder / need.context)

    def _needed_builder(self) -> ImageBuilder:
        if self._builder is None:
            raise ServiceUnavailable(
                "Images cannot be built here: set HARBOR_ASSETS_BUILDKIT, and HARBOR_ASSETS_REGISTRY to push them to"
            )
        return self._builder

    def _image(self, name: str, need: ImageNeed, key: str, folder: Path, since: datetime) -> None:
        known = self._images.images([key]).get(key)
        if known and known.seen_at > since:  # another task or process has seen to it since this was asked for
            return
        ready = known.ref if known and known.state == "ready" else None
        if need.image is not None:
            unchanged = self._find(need.image, key, ready)
        else:
            unchanged = bool(ready and ready.startswith(f"{self._prefix}/") and self._registry.exists(ready))
            if not unchanged:
                self._build(name, need, key, folder)
        with self._lock:
            (self._unchanged.add if unchanged else self._unchanged.discard)(key)

    def _find(self, image: str, key: str, ready: str | None) -> bool:
        """Pin a named image; True if it is what it was."""
        try:
            ref = self._registry.resolve(image)
            if self._mirror and not ref.startswith(f"{self._prefix}/"):  # as `build-images --update-config` writes
                ref = self._mirror.copy(ref)
            if ref == ready:
                return True
            config = self._registry.config(ref)
        except ServiceUnavailable:
            if ready:  # pinned before, by a digest that means the same for ever
                return True
            raise
        except (Refused, BuildFailed) as error:  # NotFound, too
            self._failed(image, key, "image_pull", f"docker_image '{image}': {error}")
            return False
        self._ready(image, key, ref, config)
        return False

    def _build(self, name: str, need: ImageNeed, key: str, folder: Path) -> None:
        assert need.context is not None
        builder = self._needed_builder()
        order = BuildOrder(folder / need.context, image_tag(self._prefix, name, key), need.build_seconds)
        lines = builder.log()
        lines.line(f"building {order.tag} from {need.context}/ of {name}")
        try:
            ref = builder.build(order, lines)
            lines.line(f"pushed {ref}")
        except (BuildFailed, HarborAssetsError) as error:
            lines.line(f"failed: {error}")
            if not isinstance(error, BuildFailed):
                raise
            self._artifacts.put_bytes(log_key(key), lines.content())
            self._failed(name, key, "image_build", str(error), log=log_key(key))
            return
        try:
            config = self._registry.config(ref)
        except NotFound as error:
            raise ServiceUnavailable(f"The image {ref} was built, but is not where it was pushed: {error}") from error
        self._artifacts.put_bytes(log_key(key), lines.content())
        self._ready(name, key, ref, config, log=log_key(key))

    def _ready(self, name: str, key: str, ref: str, config: ImageConfig, log: str | None = None) -> None:
        self._images.put_image(
            ImageRecord(key=key, name=name, state="ready", ref=ref, config=config, log=log, seen_at=self._clock())
        )

    def _failed(self, name: str, key: str, reason: str, message: str, log: str | None = None) -> None:
        problem = ImageProblem.model_validate({"reason": reason, "message": cut(message, MESSAGE_MAX)})
        self._images.put_image(
            ImageRecord(key=key, name=name, state="failed", problem=problem, log=log, seen_at=self._clock())
        )


def _resolved(needs: Sequence[TaskImage], records: Mapping[str, ImageRecord]) -> TaskImages:
    images: dict[str, str] = {}
    config: dict[str, ImageConfig] = {}
    problem, missing = None, []
    for need in needs:
        record = records.get(need.key or "")
        if need.problem is not None:
            problem = problem or ImageProblem(reason="image_build", message=need.problem)
        elif record is None:
            missing.append(need.role)
        elif record.ref is None:
            problem = problem or record.problem
        else:
            images[need.role], config[need.role] = record.ref, record.config
    if not needs:
        missing.append("agent")
    if problem:
        images, config = {}, {}
    impossible = next((need.problem for need in needs if need.problem is not None), None)
    return TaskImages(images, config, problem, tuple(missing), impossible)


def _views(
    name: str,
    needs: Sequence[TaskImage],
    records: Mapping[str, ImageRecord],
    claimed: Container[str | None],
    unchanged: Container[str],
) -> Iterator[ImageView]:
    if not needs:
        yield ImageView(task=name, state="missing")
    for need in needs:
        record = records.get(need.key or "")
        if need.problem is not None:
            yield ImageView(task=name, role=need.role, state="failed", message=need.problem)
        elif need.key in claimed:  # by another process, or for another task
            yield ImageView(task=name, role=need.role, state="building", key=need.key)
        elif record is None:
            yield ImageView(task=name, role=need.role, state="missing", key=need.key)
        else:
            yield ImageView(
                task=name,
                role=need.role,
                state=record.state,
                ref=record.ref,
                message=record.problem.message if record.problem else None,
                key=record.key,
                log=record.log,
                unchanged=record.key in unchanged,
            )
