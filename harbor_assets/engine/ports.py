"""What the engine needs from outside, as Protocols. Adapters implement, `wiring.py` chooses, `tests/fakes` stands in.

All methods may raise `StorageFull` or `ServiceUnavailable`; what else they raise is said at each.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

from harbor_assets.domain.access import anywhere
from harbor_assets.domain.endings import Ending
from harbor_assets.domain.filters import Filter
from harbor_assets.domain.images import ImageRecord, TaskImage, TaskImages
from harbor_assets.domain.outcomes import TrialOutcome
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.domain.plans import ImageConfig, PlannedTask, RunPlan, SandboxChoice
from harbor_assets.domain.profiles import SandboxProfile
from harbor_assets.domain.runs import Run, RunMarks, Tally
from harbor_assets.domain.tasks import (
    HarborTask,
    InlineMetric,
    Project,
    Revision,
    Sort,
    Task,
    TaskInput,
    Taskset,
    TasksetInput,
)
from harbor_assets.domain.views import LogChunk
from harbor_assets.domain.waiting import RunWaits
from harbor_assets.engine.report import Report


@dataclass(frozen=True, slots=True)
class Page[T]:
    """One page of a list. `page` counts from 1; `total` is the number of all results.

    `unreadable` names the entries of this page that could not be read and are therefore not among `items`.
    """

    items: Sequence[T]
    page: int
    page_size: int
    total: int
    unreadable: Sequence[str] = ()


class TaskCatalog(Protocol):
    """Tasks and tasksets with immutable revisions. A `revision` is a digest or a tag.

    Whatever names something that is not there raises `NotFound`; who loses a race 5 times in a row gets `Conflict`.
    """

    def put_task(
        self, workspace: str, name: str, body: TaskInput, *, project: str | None = None, create: bool = False
    ) -> tuple[Task, bool]:
        """Create or replace; True if a revision was cut. Content equal to `latest` cuts none, tags and project are
        applied all the same. Answers the revision. `create`: raises `Conflict` if the name is taken. Raises `Malformed`
        for bad tags, `Refused` for bad names, and for a project that does not exist."""
        ...

    def get_task(self, workspace: str, name: str, revision: str | None = None) -> Task:
        """The current record, or as of a revision. `Broken` if the digest does not match."""
        ...

    def get_tasks(self, workspace: str, names: Sequence[str]) -> Mapping[str, Task]:
        """The current records of those of `names` that exist, in one query per 500 names."""
        ...

    def get_pinned_tasks(self, refs: Sequence[str]) -> Sequence[Task]:
        """Tasks of pinned references, in the order given. Raises `NotFound` naming those that do not resolve."""
        ...

    def list_tasks(
        self,
        workspace: str,
        *,
        page: int = 1,
        page_size: int = 100,
        sort: Sort = Sort.CREATED,
        where: Filter | None = None,
    ) -> Page[Task]:
        """A page of the current records that match `where`. A workspace that nobody wrote to is empty."""
        ...

    def task_revisions(self, workspace: str, name: str, *, page: int = 1, page_size: int = 100) -> Page[Revision]:
        """Newest first."""
        ...

    def tag_task(self, workspace: str, name: str, tag: str, revision: str) -> Task:
        """Point a tag at a revision; answers the current record. Raises `Refused` for `latest` and for bad tags."""
        ...

    def delete_task(self, workspace: str, name: str) -> None:
        """Remove the record with its revisions. Tasksets that pin it stay; a task made under the name later is a new
        record, from revision 1."""
        ...

    def published(
        self, kind: Literal["task", "taskset"], after: datetime | None = None, *, limit: int = 1000
    ) -> Sequence[tuple[datetime, str]]:
        """(moment, pinned reference) of the revisions cut after a moment, in all workspaces, oldest first."""
        ...

    def put_taskset(
        self,
        workspace: str,
        name: str,
        body: TasksetInput,
        *,
        project: str | None = None,
        create: bool = False,
        readable: Callable[[str], bool] = anywhere,
    ) -> tuple[Taskset, bool]:
        """As `put_task`; members are resolved and pinned. Raises `Refused` naming unknown or double members.

        Tasks in workspaces that are not `readable` are as if they were not there.
        """
        ...

    def get_taskset(self, workspace: str, name: str, revision: str | None = None) -> Taskset:
        """As `get_task`."""
        ...

    def list_tasksets(
        self,
        workspace: str,
        *,
        page: int = 1,
        page_size: int = 100,
        sort: Sort = Sort.CREATED,
        where: Filter | None = None,
    ) -> Page[Taskset]:
        """As `list_tasks`."""
        ...

    def taskset_revisions(self, workspace: str, name: str, *, page: int = 1, page_size: int = 100) -> Page[Revision]:
        """Newest first."""
        ...

    def tag_taskset(self, workspace: str, name: str, tag: str, revision: str) -> Taskset:
        """As `tag_task`."""
        ...

    def delete_taskset(self, workspace: str, name: str) -> None:
        """Remove the record with its revisions; its members stay."""
        ...


class ProjectCatalog(Protocol):
    """Projects: names in a workspace that tasks and tasksets can be put under."""

    def put_project(self, workspace: str, name: str) -> tuple[Project, bool]:
        """Make a project; False if it was there. Raises `Refused` for bad names."""
        ...

    def list_projects(self, workspace: str, *, page: int = 1, page_size: int = 100) -> Page[Project]:
        """By name."""
        ...

    def delete_project(self, workspace: str, name: str) -> None:
        """Raises `NotFound`, `Conflict` while a task, taskset or metric is in it."""
        ...


class MetricResolver(Protocol):
    """What a task's metrics become before it is stored."""

    def resolve(self, workspace: str, metrics: Sequence[str | InlineMetric]) -> Sequence[str]:
        """References `workspace/name` in the order given; metrics given whole are stored first. Raises `Refused` naming
        every reference that means no stored metric."""
        ...


class RunCatalog(Protocol):
    """Runs and their outcomes. Every method is one transaction."""

    def add_run(
        self, plan: RunPlan, *, request_digest: str, request: str | None = None, idempotency_key: str | None = None
    ) -> tuple[Run, bool]:
        """Store an accepted run; False, and that run, if the same request came with the same key before (keys are of an
        owner and workspace). Raises `IdempotencyConflict` if the key was used with another request digest; with the
        canonical `request` of both, as JSON, it says what changed."""
        ...

    def get_run(self, run_id: str) -> Run:
        """Raises `NotFound` with the nearest ids; `Broken` if the plan cannot be read."""
        ...

    def marks(self, run_id: str) -> RunMarks:
        """A few columns of one row, for who asks every second: never the plan. Raises `NotFound`."""
        ...

    def list_runs(
        self,
        workspace: str | None = None,
        *,
        active: bool = False,
        owner: str | None = None,
        page: int = 1,
        page_size: int = 100,
    ) -> Page[Run]:
        """Newest first. `workspace=None`: of every workspace."""
        ...

    def ended_runs(self, workspace: str | None = None) -> Sequence[str]:
        """The ids of all runs in a terminal phase, oldest first. `workspace=None`: of every workspace."""
        ...

    def tally(self) -> Tally:
        """How many runs and trials there are. Counts rows, and is not for every second."""
        ...

    def lock(self, name: str) -> AbstractContextManager[None]:
        """A lock between all processes that use this catalog, for what must not be done by two at once. Names are
        lower-case words. Raises `ServiceUnavailable` if another holds it for too long."""
        ...

    def begin_execution(self, run_id: str) -> Run:
        """A worker takes the run up: counts the execution, and `lost_workers` (reset if outcomes were added since)."""
        ...

    def release(self, run_id: str) -> None:
        """The worker stops on purpose before the end (logout, shutdown): it does not count as lost."""
        ...

    def mark_started(self, run_id: str, at: datetime) -> Run:
        """The first trial got a slot: phase `running`. Keeps the first `started_at`."""
        ...

    def request_cancel(self, run_id: str, at: datetime) -> Run:
        """Idempotent; a terminal run is left as it is."""
        ...

    def finish(
        self, run_id: str, phase: RunPhase, state: ResultState, *, at: datetime, error: str | None = None
    ) -> Run:
        """Set the terminal phase and the result state together. Idempotent; a terminal run never changes."""
        ...

    def add_outcome(self, outcome: TrialOutcome) -> bool:
        """Store one row; False (and nothing changed) if (run, index, k) has one already: the first wins."""
        ...

    def outcomes(self, run_id: str, index: int | None = None) -> Sequence[TrialOutcome]:
        """All rows so far, by (index, k); those of one task where `index` says so."""
        ...

    def count_outcomes(self, run_ids: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
        """run id -> outcome -> number of rows."""
        ...

    def add_try(self, run_id: str, index: int, k: int, start: datetime, leftovers: str) -> None:
        """A trial begins: recorded so that the try of a lost worker is known to the one that goes on."""
        ...

    def tries(self, run_id: str, index: int | None = None) -> Mapping[tuple[int, int], Sequence[tuple[datetime, str]]]:
        """(index, k) -> (start, leftovers) of every try begun so far, oldest first; of one task as `outcomes`."""
        ...


class Artifacts(Protocol):
    """Archives, trial folders and bundles by key (a relative POSIX path). Writes leave the old or the new."""

    def exists(self, key: str) -> bool: ...

    def size(self, key: str) -> int:
        """Bytes. Raises `NotFound`."""
        ...

    def open(self, key: str) -> AbstractContextManager[BinaryIO]:
        """Read one object as a stream. Raises `NotFound`."""
        ...

    def put_bytes(self, key: str, data: bytes) -> None: ...

    def put_file(self, key: str, source: Path) -> None:
        """Store a file's bytes; `source` is left alone."""
        ...

    def put_tree(self, key: str, source: Path) -> int:
        """Store a folder (regular files and empty folders). May move `source`.

        Links, special files and names that cannot be keys are left out; returns how many.
        """
        ...

    def list(self, key: str) -> Iterator[tuple[str, int]]:
        """(path relative to `key`, size in bytes) of every object below, sorted. Nothing if there is none."""
        ...

    def remove(self, key: str) -> None:
        """Remove an object or everything below. Idempotent."""
        ...

    def sweep(self) -> int:
        """Remove what writes killed more than an hour ago left behind; returns how many. Cheap if nothing is there."""
        ...

    def url(self, key: str) -> str:
        """Where a person finds it: a path for a folder store, else the URL."""
        ...


class Executions(Protocol):
    """How a run's worker is started and found."""

    def start(self, run_id: str) -> bool:
        """Start a worker for the run; False if one is at work already."""
        ...

    def alive(self, run_id: str) -> bool:
        """True while a worker holds the run."""
        ...

    def blocked(self) -> str | None:
        """Why no worker can do anything now (no space left where it writes), and what to do; None if one can."""
        ...

    def last_words(self, run_id: str) -> str | None:
        """How the run's last worker ended, as far as anybody knows: its exit code or signal, the end of its log."""
        ...

    def clean(self) -> Sequence[str]:
        """Remove what dead workers left (processes, mounts, interfaces, folders). Returns what was removed."""
        ...


@dataclass(frozen=True, slots=True)
class BundleTables:
    """Parquet files of a bundle: rows as plain dicts, all of one shape per table."""

    trials: Iterable[Mapping[str, Any]]
    scores: Iterable[Mapping[str, Any]]


class TableWriter(Protocol):
    """Writes a bundle's tables as Parquet."""

    def write(self, tables: BundleTables, folder: Path) -> None:
        """Make `trials.parquet` and `scores.parquet` in `folder`, also when there are no rows."""
        ...


class ReportWriter(Protocol):
    """Draws a run's report."""

    def render(self, report: Report) -> Iterator[bytes]:
        """One self-contained HTML page in pieces, in UTF-8. Everything in the report that came from tasks or agents is
        escaped, and links lead only to relative paths."""
        ...


class Archived(Protocol):
    """Something whose files lie in an archive: a planned task, or a stored task's source."""

    @property
    def fileset_ref(self) -> str: ...

    @property
    def files_hash(self) -> str: ...


class TaskFolders(Protocol):
    """Task folders unpacked from their archives, verified, and kept by hash."""

    def get(self, task: Archived, *, archived: bool = False) -> Path:
        """A read-only folder with the task's files. Raises `Broken` if the archive is unsafe or not what its hash says,
        `NotFound` if there is none.

        `archived`: the archive must be where its reference says even if the folder was kept from another time.
        """
        ...


class TaskVerifier(Protocol):
    """Reads task definitions from the archives they name."""

    def verify(self, spec: HarborTask) -> HarborTask:
        """The definition with `instruction` and `config` as the archive has them. Raises `BadArchive` where the archive
        has another hash or native id, breaks a rule of archives or tasks; `NotFound` if there is none."""
        ...


class SandboxChooser(Protocol):
    """Which sandbox a run gets on this machine or deployment."""

    def choose(self, requested: str, tasks: Callable[[], Sequence[Task]]) -> SandboxChoice:
        """`auto` or a kind. Raises `Refused` saying why it cannot work here, and the next step.

        `tasks`: what is to run, asked for where the choice depends on it.
        """
        ...


class Profiles(Protocol):
    """The sandbox profiles of a deployment."""

    def get(self, name: str | None) -> SandboxProfile:
        """The profile of that name, the default for None. Raises `Refused` that lists the valid names."""
        ...


class ImageCatalog(Protocol):
    """What is known of images. Every method is one transaction."""

    def put_task_images(self, files_hash: str, images: Sequence[TaskImage]) -> None:
        """Store which images a task's content needs, one for each role; replaces what was known."""
        ...

    def task_images(self, files_hashes: Sequence[str]) -> Mapping[str, Sequence[TaskImage]]:
        """files hash -> its images by role; those nothing is known of are left out."""
        ...

    def put_image(self, record: ImageRecord) -> None:
        """Create or replace the record of its key."""
        ...

    def images(self, keys: Sequence[str]) -> Mapping[str, ImageRecord]:
        """key -> record; those nothing is known of are left out."""
        ...

    def claim_image(self, key: str, holder: str, *, now: datetime, until: datetime) -> bool:
        """Take, or keep, the right to see to an image until a moment. False while another holder's right lasts."""
        ...

    def release_image(self, key: str, holder: str) -> None:
        """Give the right up. Nothing happens if it is not the holder's any more."""
        ...

    def claimed_images(self, keys: Sequence[str], *, now: datetime) -> frozenset[str]:
        """Those of the keys that somebody sees to now."""
        ...

    def ready_images(self, after: datetime | None = None, *, limit: int = 1000) -> Sequence[ImageRecord]:
        """Images that became ready after a moment, oldest first: what a sensor has not yet told Dagster of."""
        ...


class BuildFailed(Exception):
    """The image cannot be made from what the task says; the text is the builder's own."""


@dataclass(frozen=True, slots=True)
class BuildOrder:
    """What to build: a folder with a Dockerfile, the tag to push it as, and how many seconds it may take."""

    context: Path
    tag: str
    seconds: float


class BuildLines(Protocol):
    """Where a build's lines go."""

    def line(self, text: str) -> None: ...

    def content(self) -> bytes:
        """All of it, cut to a megabyte."""
        ...


class ImageBuilder(Protocol):
    """Builds images and pushes them."""

    def key(self, folder: Path) -> str:
        """The key of what is built from a folder: equal keys mean equal images but for the registry's own changes."""
        ...

    def log(self) -> BuildLines:
        """An empty log for one build."""
        ...

    def build(self, order: BuildOrder, log: BuildLines) -> str:
        """Build, push, and return `repository@digest`. Raises `BuildFailed`; `ServiceUnavailable` if the builder is
        not there, which says nothing of the image."""
        ...


class ImageRegistry(Protocol):
    """Looks images up. All methods may raise `ServiceUnavailable` and `Refused` (denied, or no image's name)."""

    def resolve(self, image: str) -> str:
        """`repository@digest` for a name by tag or digest. Raises `NotFound`."""
        ...

    def exists(self, ref: str) -> bool:
        """Whether `repository@digest` is there."""
        ...

    def config(self, ref: str) -> ImageConfig:
        """How the image's processes run. Raises `NotFound`."""
        ...


class Images(Protocol):
    """The images of tasks, as submitting a run needs them."""

    def resolve(self, tasks: Sequence[Task]) -> Sequence[TaskImages]:
        """What is known of each task's images, in the order given."""
        ...


class Logs(Protocol):
    """Logs of runs and of their trials while they go on and after."""

    def read(self, run: Run, task: int | None, offset: int) -> LogChunk:
        """From a byte offset, at most 256 KiB; `task` None is the run's own log."""
        ...


class Waits(Protocol):
    """What runs under way wait for, where a cluster decides over them."""

    def of(self, run: Run, tasks: Collection[int]) -> RunWaits:
        """Why the run, and those of its `tasks` (indexes) that have not ended, are not at work, as far as anybody
        knows. Cheap to ask again; never raises for a cluster that does not answer."""
        ...


class TrialRunner(Protocol):
    """Runs one trial."""

    async def run(self, plan: RunPlan, task: PlannedTask, k: int, *, source: Path, folder: Path) -> Ending:
        """Run trial k of the task whose files are in `source`, leaving its traces in `folder` (made here).

        Never raises for what the task, the agent or the sandbox did: that is in the ending. When cancelled it stops the
        trial, leaves nothing running, and raises CancelledError.
        """
        ...
