"""A backend for tests: the real service and catalog, an artifact store in memory, and runs that a test ends by hand."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harbor_assets.catalog import open_catalog
from harbor_assets.domain.outcomes import Outcome, Reason, TrialOutcome
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.domain.plans import PlannedTask, SandboxChoice, SandboxKind, trial_id
from harbor_assets.domain.policies import account
from harbor_assets.domain.runs import Run, bundle_key
from harbor_assets.domain.tasks import ArchiveSource, HarborHash, HarborTask, Task, TaskInput, TasksetInput
from harbor_assets.domain.views import LogChunk
from harbor_assets.domain.waiting import RunWaits
from harbor_assets.engine.agent_evals import AgentEvals
from harbor_assets.engine.evaluations import Evaluations
from harbor_assets.engine.images import ImageBuilds
from harbor_assets.engine.lineage import Lineages
from harbor_assets.engine.marking import Marking
from harbor_assets.engine.planning import Deployment
from harbor_assets.engine.ports import TaskVerifier
from harbor_assets.engine.publication import Publisher
from harbor_assets.engine.ranking import Rankings
from harbor_assets.engine.staleness import Staleness
from harbor_assets.engine.taskset_images import TasksetImages
from harbor_assets.engine.verification import Verifications
from harbor_assets.interfaces.backend import Backend
from harbor_assets.interfaces.sdk.client import Client
from harbor_assets.interfaces.sdk.connection import Service
from harbor_assets.interfaces.sdk.evaluator import Evaluator
from harbor_assets.sources.folders import ArchiveTaskFolders
from harbor_assets.templating import SandboxedTemplates
from tests.fakes.artifacts import MemoryArtifacts

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


class Executions:
    """Records what was started; `on_start` is the worker. `dead` are runs whose worker is gone."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.dead: set[str] = set()
        self.full: str | None = None  # why no worker could write anything
        self.on_start: Callable[[str], None] = lambda run_id: None

    def start(self, run_id: str) -> bool:
        self.started.append(run_id)
        self.dead.discard(run_id)
        self.on_start(run_id)
        return True

    def alive(self, run_id: str) -> bool:
        return run_id not in self.dead

    def blocked(self) -> str | None:
        return self.full

    def last_words(self, run_id: str) -> str | None:
        return "killed by SIGKILL"

    def clean(self) -> Sequence[str]:
        return ()


class Sandboxes:
    kind: SandboxKind = "process"

    def choose(self, requested: str, tasks: Callable[[], Sequence[Task]]) -> SandboxChoice:
        return SandboxChoice(kind=self.kind, why=f"asked for {requested}", notes=("a fake one",))


class Waits:
    """What a test says."""

    def __init__(self) -> None:
        self.said = RunWaits()

    def of(self, run: Run, tasks: Collection[int]) -> RunWaits:
        return self.said


class Logs:
    def read(self, run: Run, task: int | None, offset: int) -> LogChunk:
        text = f"log of {run.id} {task}\n"[offset:]
        return LogChunk(text=text, next_offset=offset + len(text), done=True)


class Believing:
    """Takes a client's word; `tests/api/test_registration.py` is about archives."""

    def verify(self, spec: HarborTask) -> HarborTask:
        return spec


class World:
    """A backend and the means to move it on."""

    def __init__(self, folder: Path, url: str | None = None) -> None:
        self.catalog = open_catalog(url or f"sqlite:///{folder / 'catalog.db'}")
        self.artifacts = MemoryArtifacts()
        self.executions = Executions()
        self.waits = Waits()
        self.tasks = self.catalog
        self.sandboxes = Sandboxes()
        self.images: ImageBuilds | None = None
        self.staleness = Staleness(self.catalog, self.catalog)
        self.marking = Marking(marks=self.catalog, runs=self.catalog, tasks=self.catalog, owner="me", clock=lambda: NOW)
        self.evaluations = Evaluations(
            tasks=self.catalog,
            runs=self.catalog,
            artifacts=self.artifacts,
            executions=self.executions,
            sandboxes=self.sandboxes,
            logs=Logs(),
            deployment=Deployment(
                owner="me", n_concurrent=4, timeout_seconds=3600, harbor_version="0.26.0", version="0.1.0"
            ),
            images_of=lambda kind: self.images,
            waits=self.waits,
            publisher=Publisher(self.catalog, self.artifacts),
            marks=self.catalog,
            staleness=self.staleness,
        )
        self.taskset_images = TasksetImages(
            tasks=self.catalog, sandboxes=self.sandboxes, builds_of=lambda kind: self.images
        )
        self.rankings: Rankings | None = None
        self.verifier: TaskVerifier = Believing()
        self.agent_evals = AgentEvals(
            tasks=self.catalog,
            metrics=self.catalog,
            evals=self.catalog,
            artifacts=self.artifacts,
            templates=SandboxedTemplates(),
            version="0.1.0",
        )
        self.verifications = Verifications(runs=self.catalog, marks=self.catalog)
        self.lineages = Lineages(
            runs=self.catalog,
            tasks=self.catalog,
            artifacts=self.artifacts,
            mentions=self.catalog,
            keys=self.catalog,
            staleness=self.staleness,
        )
        self.backend = Backend(
            evaluations=self.evaluations,
            tasks=self.catalog,
            artifacts=self.artifacts,
            verifier=self.verifier,
            images=self.taskset_images,
            projects=self.catalog,
            metrics=self.catalog,
            marks=self.catalog,
            verifications=self.verifications,
            experiments=self.catalog,
            marking=self.marking,
            lineages=self.lineages,
            staleness=self.staleness,
            agent_evals=lambda: self.agent_evals,
        )

    def look_at_archives(self, root: Path) -> None:
        """Let the service see the files of stored tasks, which it then unpacks to `root`."""
        self.evaluations._folders = ArchiveTaskFolders(self.artifacts, root)

    def publish(self, *names: str, taskset: str = "suite") -> str:
        """Store tasks and a taskset of them; returns its pinned reference."""
        for name in names:
            self.catalog.put_task("default", name, task_input(f"org/{name}"))
        return self.catalog.put_taskset("default", taskset, TasksetInput(tasks=list(names)))[0].ref

    def end(self, run_id: str, *rewards: float | Reason, state: ResultState = ResultState.READY) -> None:
        """End the run: a reward or the reason for having none, for each task in order."""
        run = self.catalog.get_run(run_id)
        self.catalog.mark_started(run_id, NOW)
        for task, ended in zip(run.plan.tasks, rewards, strict=True):
            self.catalog.add_outcome(outcome(run_id, task, ended))
        scored = any(isinstance(ended, float) for ended in rewards)
        self.catalog.finish(
            run_id, RunPhase.COMPLETED if scored else RunPhase.FAILED, state if scored else ResultState.NONE, at=NOW
        )

    def merge(self, run_id: str) -> None:
        """The part of a bundle that commands read."""
        summary = account(self.catalog.outcomes(run_id)).model_dump_json().encode()
        self.put_bundle(
            run_id, {"summary.json": b'{"task_count": 1}\n', "outcomes.json": summary, "report.html": b"<html>"}
        )

    def put_bundle(self, run_id: str, files: dict[str, bytes]) -> None:
        for path, data in files.items():
            self.artifacts.put_bytes(f"{bundle_key(run_id)}/{path}", data)


@contextmanager
def world(folder: Path, url: str | None = None) -> Iterator[World]:
    """On the catalog at `url`, else on one in `folder`."""
    made = World(folder, url)
    with made.catalog:
        yield made


def evaluator_of(made: World) -> Evaluator:
    """The SDK over a world, in process."""
    return Evaluator.from_client(Client.over(Service("default", backend=made.backend)))


def task_input(native_id: str, **config: object) -> TaskInput:
    return TaskInput(
        spec=HarborTask(
            native_task_id=native_id,
            source=ArchiveSource(fileset_ref="default/harbor-tasks#a/b/task_archive", files_hash="0" * 64),
            harbor_hash=HarborHash(digest="1" * 64, harbor_version="0.26.0"),
            instruction="Do it.",
            config={"task": {"name": native_id}, "nothing": None, **config},  # type: ignore[dict-item]
        )
    )


def outcome(run_id: str, task: PlannedTask, ended: float | Reason, **more: Any) -> TrialOutcome:
    from harbor_assets.domain.outcomes import OUTCOME_OF

    scored = not isinstance(ended, Reason)
    return TrialOutcome(
        run_id=run_id,
        index=task.index,
        task=task.name,
        task_ref=task.ref,
        native_task_id=task.native_task_id,
        k=1,
        trial_id=trial_id(task, 1),
        outcome=Outcome.SCORED if scored else OUTCOME_OF[ended],
        reason=Reason.GRADED if scored else ended,
        message=None if scored else "as the test wanted",
        reward=ended if scored else None,
        trial_key=task.trial_key,
        **more,
    )
