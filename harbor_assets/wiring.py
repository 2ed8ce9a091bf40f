"""Settings in, ready adapters out: the only place that chooses implementations.

Everything is made when it is first asked for, so that a command pays only for what it uses.
"""

import os
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from harbor_assets.domain.plans import ENGINES
from harbor_assets.engine.evaluations import Evaluations
from harbor_assets.engine.planning import Deployment
from harbor_assets.engine.ports import Artifacts, Executions, Logs
from harbor_assets.settings import Settings

if TYPE_CHECKING:
    from harbor.models.trial.config import EnvironmentConfig

    from harbor_assets.catalog import Catalog
    from harbor_assets.cluster.client import ClusterClient
    from harbor_assets.cluster.executions import ClusterExecutions
    from harbor_assets.cluster.upkeep import Upkeep
    from harbor_assets.domain.plans import PlannedTask, RunPlan, SandboxKind
    from harbor_assets.engine.access import Authenticator
    from harbor_assets.engine.agent_evals import AgentEvals
    from harbor_assets.engine.benchmarks import Benchmarks
    from harbor_assets.engine.images import ImageBuilds
    from harbor_assets.engine.lifecycle import RunEngine
    from harbor_assets.engine.lineage import Lineages
    from harbor_assets.engine.marking import Marking
    from harbor_assets.engine.notices import Notices
    from harbor_assets.engine.ports import Profiles, SandboxChooser, TaskFolders, TaskVerifier, Waits
    from harbor_assets.engine.publication import Publisher
    from harbor_assets.engine.ranking import Rankings
    from harbor_assets.engine.staleness import Staleness
    from harbor_assets.engine.taskset_images import TasksetImages
    from harbor_assets.engine.verification import Verifications
    from harbor_assets.leaderboard.store import DuckDbLeaderboard
    from harbor_assets.sandboxes.engines.cli import Engine
    from harbor_assets.sandboxes.engines.images import EngineImages


_MIRROR_SECONDS = (
    2.0  # a follower of a log on a deployment sees a line this late; one small write, if there are new ones
)


class Services:
    """The adapters of one process, sharing their connections."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @property
    def _on_cluster(self) -> bool:
        return self.settings.executor == "kubernetes"

    @cached_property
    def catalog(self) -> "Catalog":
        """Tasks, tasksets, runs and outcomes."""
        from harbor_assets.catalog import open_catalog

        return open_catalog(self.settings.catalog_url)

    @cached_property
    def profiles(self) -> "Profiles | None":
        """The sandbox profiles of a deployment; None on a laptop."""
        if self.settings.executor != "kubernetes":
            return None
        from harbor_assets.sandboxes.profiles import FolderProfiles

        return FolderProfiles(self.settings.profiles)

    def images_of(self, kind: "SandboxKind") -> "ImageBuilds | None":
        """The images for one kind of sandbox; None if it needs none, or cannot be had here."""
        if self._on_cluster:
            return self.images if kind == "kubernetes" else None
        return self._engine_builds.get(kind)

    @cached_property
    def taskset_images(self) -> "TasksetImages":
        """The images of tasksets, for whichever sandbox their runs would get."""
        from harbor_assets.engine.taskset_images import TasksetImages

        return TasksetImages(tasks=self.catalog, sandboxes=self.sandboxes, builds_of=self.images_of)

    @cached_property
    def engines(self) -> "Sequence[Engine]":
        """The container engines that may be on this machine, in the order `auto` tries them."""
        from harbor_assets.sandboxes.engines.cli import KINDS, Engine

        return [Engine(kind) for kind in KINDS]

    def _engine_registry(self, engine: "Engine") -> "EngineImages":
        from harbor_assets.domain.images import context_key
        from harbor_assets.images.context import key_entries
        from harbor_assets.images.progress import BuildLog
        from harbor_assets.sandboxes.engines.images import EngineImages

        return EngineImages(
            engine, home=self.settings.home, context_key=lambda folder: context_key(key_entries(folder)), log=BuildLog
        )

    @cached_property
    def _engine_builds(self) -> "Mapping[SandboxKind, ImageBuilds]":
        from harbor_assets.engine.images import ImageBuilds
        from harbor_assets.engine.taskset_images import ScopedImages
        from harbor_assets.sandboxes.engines.images import PREFIX

        def builds(engine: "Engine") -> ImageBuilds:
            adapter = self._engine_registry(engine)
            return ImageBuilds(
                tasks=self.catalog,
                images=ScopedImages(self.catalog, engine.kind),
                folders=self.folders,
                registry=adapter,
                artifacts=self.artifacts,
                builder=adapter,
                prefix=PREFIX,
            )

        return {engine.kind: builds(engine) for engine in self.engines}

    @cached_property
    def sandboxes(self) -> "SandboxChooser":
        """Which sandbox a run gets."""
        from harbor_assets.engine.taskset_images import BaseImages
        from harbor_assets.sandboxes.choice import ClusterSandboxes, LocalSandboxes

        if self._on_cluster:
            return ClusterSandboxes()
        return LocalSandboxes(
            self.settings.home,
            engines=self.engines,
            registries=self._engine_registry,
            base_images=BaseImages(self.folders),
        )

    @cached_property
    def images(self) -> "ImageBuilds":
        """The images of a deployment's tasks."""
        from harbor_assets.engine.images import ImageBuilds
        from harbor_assets.engine.mirroring import ImageMirror
        from harbor_assets.images import registries_of
        from harbor_assets.images.buildkit import BuildKit
        from harbor_assets.images.registry import RegistryClient

        settings = self.settings
        registries = registries_of(
            settings.insecure_registries, settings.registry_mirrors, settings.docker_config or None
        )
        can_build = settings.buildkit and settings.registry
        registry, builder = RegistryClient(registries), BuildKit(settings.buildkit, registries) if can_build else None
        return ImageBuilds(
            tasks=self.catalog,
            images=self.catalog,
            folders=self.folders,
            registry=registry,
            artifacts=self.artifacts,
            builder=builder,
            prefix=settings.registry,
            mirror=ImageMirror(registry, builder, settings.registry) if builder and settings.mirror_images else None,
        )

    @cached_property
    def folders(self) -> "TaskFolders":
        """Tasks unpacked from their archives."""
        from harbor_assets.sources.folders import ArchiveTaskFolders

        return ArchiveTaskFolders(self.artifacts, self.settings.cache / "tasks")

    @cached_property
    def verifier(self) -> "TaskVerifier":
        """Who reads a task from its archive before it is registered."""
        from harbor_assets.sources.verify import ArchiveVerifier

        return ArchiveVerifier(self.folders)

    @property
    def tasks(self) -> "Catalog":
        """The catalog, as the port for tasks and tasksets."""
        return self.catalog

    @cached_property
    def artifacts(self) -> Artifacts:
        """Archives, trial folders and bundles."""
        from harbor_assets.artifacts import open_artifacts

        return open_artifacts(self.settings.artifacts_url)

    @cached_property
    def executions(self) -> Executions:
        """Workers on this machine, or Jobs on a deployment's cluster."""
        if self._on_cluster:
            return self.cluster_executions
        from harbor_assets.local.executions import LocalExecutions

        return LocalExecutions(
            home=self.settings.home,
            locks_folder=self.settings.locks,
            logs_folder=self.settings.logs,
            environment=self.settings.for_worker(os.environ),
            reap=self._reap,
        )

    @cached_property
    def cluster(self) -> "ClusterClient":
        """The deployment's namespace."""
        from harbor_assets.cluster.client import ClusterClient

        return ClusterClient(self.settings.namespace)

    @cached_property
    def cluster_executions(self) -> "ClusterExecutions":
        """Executions as Dagster runs on a deployment."""
        from harbor_assets.cluster.executions import ClusterExecutions

        return ClusterExecutions(
            runs=self.catalog,
            client=self.cluster,
            has_work=lambda run_id: self.engine.has_work(run_id),
            image=self.settings.worker_image,
            max_concurrent=self.settings.max_concurrent,
        )

    @cached_property
    def upkeep(self) -> "Upkeep":
        """What the sensors of a deployment do."""
        from harbor_assets.cluster.upkeep import Upkeep

        return Upkeep(runs=self.catalog, engine=self.engine, executions=self.cluster_executions, client=self.cluster)

    def _reap(self) -> Sequence[str]:
        from harbor_assets.sandboxes.process.reap import reap

        gone = reap(self.settings.home)
        if (self.settings.home / "engines").exists():  # every command comes by here
            from harbor_assets.sandboxes.engines import guard

            gone += guard.reap(self.settings.home)
        return gone

    @property
    def _logs(self) -> Logs:
        if self._on_cluster:
            from harbor_assets.cluster.logs import ClusterLogs

            return ClusterLogs(runs=self.catalog, artifacts=self.artifacts, executions=self.cluster_executions)
        from harbor_assets.local.logs import LocalLogs

        return LocalLogs(
            logs_folder=self.settings.logs,
            work_folder=self.settings.work,
            runs=self.catalog,
            artifacts=self.artifacts,
        )

    @cached_property
    def evaluations(self) -> Evaluations:
        """Runs as a service."""
        return Evaluations(
            tasks=self.catalog,
            runs=self.catalog,
            artifacts=self.artifacts,
            executions=self.executions,
            sandboxes=self.sandboxes,
            logs=self._logs,
            deployment=Deployment(
                owner=self.settings.owner,
                n_concurrent=self.settings.max_concurrent if self._on_cluster else self.settings.n_concurrent,
                timeout_seconds=self.settings.run_timeout_seconds,
                infra_retries=self.settings.infra_retries,
                harbor_version=version("harbor"),
                version=version("harbor-assets"),
                # A worker on this machine inherits the environment; a Job has its own, which the service does not see.
                variables=self.settings.trial_variables.split(",")
                if self._on_cluster
                else self.settings.for_child(os.environ).keys(),
                variables_setting="HARBOR_ASSETS_TRIAL_VARIABLES" if self._on_cluster else "",
            ),
            profiles=self.profiles,
            images_of=self.images_of,
            folders=self.folders,
            waits=self._waits,
            marks=self.catalog,
            publisher=self.publisher,
            staleness=self.staleness,
        )

    @cached_property
    def staleness(self) -> "Staleness":
        """Which results rest on something marked."""
        from harbor_assets.engine.staleness import Staleness

        return Staleness(self.catalog, self.catalog)

    @cached_property
    def marking(self) -> "Marking":
        """Marks of persons."""
        from harbor_assets.engine.marking import Marking

        return Marking(marks=self.catalog, runs=self.catalog, tasks=self.catalog, owner=self.settings.owner)

    @cached_property
    def lineages(self) -> "Lineages":
        """What numbers were made of, and what things were made into."""
        from harbor_assets.engine.lineage import Lineages

        return Lineages(
            runs=self.catalog,
            tasks=self.catalog,
            artifacts=self.artifacts,
            mentions=self.catalog,
            keys=self.catalog,
            staleness=self.staleness,
        )

    @cached_property
    def notices(self) -> "Notices | None":
        """What is told of ended runs; None where nobody is to be told."""
        settings = self.settings
        if not settings.webhook_url:
            return None
        from harbor_assets.domain.notices import Event
        from harbor_assets.engine.notices import Notices
        from harbor_assets.webhook import Webhook

        return Notices(
            runs=self.catalog,
            ended=self.catalog,
            mentions=self.catalog,
            keys=self.catalog,
            messenger=Webhook(settings.webhook_url, settings.webhook_format, timeout=settings.webhook_timeout_seconds),
            events=[Event(name) for name in settings.webhook_events.split(",")],
        )

    @cached_property
    def benchmarks(self) -> "Benchmarks":
        """The days of scheduled benchmarks."""
        from harbor_assets.engine.benchmarks import Benchmarks

        return Benchmarks(
            evaluations=self.evaluations,
            runs=self.catalog,
            keys=self.catalog,
            owner=self.settings.owner,
            workspace=self.settings.workspace,
        )

    @cached_property
    def verifications(self) -> "Verifications":
        """Judging tasks by runs of oracle and nop."""
        from harbor_assets.engine.verification import Verifications

        return Verifications(runs=self.catalog, marks=self.catalog)

    @cached_property
    def publisher(self) -> "Publisher":
        """Publishes runs to Experiments."""
        from harbor_assets.engine.publication import Publisher

        return Publisher(self.catalog, self.artifacts)

    @property
    def _waits(self) -> "Waits | None":
        if not self._on_cluster:
            return None
        from harbor_assets.cluster.client import ClusterClient
        from harbor_assets.cluster.waits import TIMEOUT, ClusterWaits

        client = ClusterClient(self.settings.namespace, timeout=TIMEOUT)
        return ClusterWaits(client=client, executions=self.cluster_executions)

    @cached_property
    def agent_evals(self) -> "AgentEvals":
        """Evaluations of given outputs."""
        from harbor_assets.engine.agent_evals import AgentEvals
        from harbor_assets.templating import SandboxedTemplates

        return AgentEvals(
            tasks=self.catalog,
            metrics=self.catalog,
            evals=self.catalog,
            artifacts=self.artifacts,
            templates=SandboxedTemplates(),
            version=version("harbor-assets"),
        )

    @cached_property
    def authenticator(self) -> "Authenticator | None":
        """Who tells the service's callers apart; None where nobody is asked. Raises `Refused` for a bad access file."""
        if not self.settings.access:
            return None
        from harbor_assets.access import AccessFileAuthenticator

        return AccessFileAuthenticator(Path(self.settings.access))

    @cached_property
    def leaderboard(self) -> "DuckDbLeaderboard":
        """The store of results."""
        from harbor_assets.leaderboard.store import DuckDbLeaderboard

        return DuckDbLeaderboard(self.settings.leaderboard)

    @cached_property
    def rankings(self) -> "Rankings":
        """The leaderboard, and what else is asked of the store of results."""
        from harbor_assets.engine.ranking import Rankings

        return Rankings(
            runs=self.catalog,
            artifacts=self.artifacts,
            store=self.leaderboard,
            scratch=self.settings.work,
            staleness=self.staleness,
            tasksets=self.catalog,
            experiments=self.catalog,
        )

    @cached_property
    def engine(self) -> "RunEngine":
        """What a worker does with a run."""
        from harbor_assets.engine.bundles import BundleMaker
        from harbor_assets.engine.lifecycle import RunEngine
        from harbor_assets.engine.regrading import RegradingRunner
        from harbor_assets.leaderboard.parquet import ParquetTables
        from harbor_assets.report import HtmlReport
        from harbor_assets.trials.harbor import HarborTrialRunner

        return RunEngine(
            runs=self.catalog,
            artifacts=self.artifacts,
            folders=self.folders,
            runner=RegradingRunner(HarborTrialRunner(self._environment), runs=self.catalog, artifacts=self.artifacts),
            bundles=BundleMaker(
                tasks=self.catalog,
                artifacts=self.artifacts,
                tables=ParquetTables(),
                report=HtmlReport(),
                scratch=self.settings.work,
            ),
            rankings=self.rankings,
            publisher=self.publisher,
            work=self.settings.work,
            poll_seconds=self.settings.cancel_poll_seconds,
            queue_timeout_seconds=self.settings.queue_timeout_seconds if self._on_cluster else None,
            mirror_seconds=_MIRROR_SECONDS if self._on_cluster else None,
        )

    def _environment(self, plan: "RunPlan", task: "PlannedTask") -> "EnvironmentConfig":
        from harbor_assets.sandboxes.choice import engine_environment, kubernetes_environment, process_environment

        if plan.sandbox.kind == "process":
            return process_environment(plan, home=self.settings.home)
        if plan.sandbox.kind in ENGINES:
            return engine_environment(plan, task, home=self.settings.home)
        from harbor_assets.cluster.manifests import own_pod, owner

        return kubernetes_environment(
            plan,
            task,
            namespace=self.settings.namespace,
            owner=owner(os.environ),
            worker_pod=own_pod(os.environ),
        )


@lru_cache(maxsize=4)
def wire(settings: Settings) -> Services:
    """The services for these settings: the same object for the same settings, so that each client is opened once."""
    return Services(settings)


def local_services() -> Services:
    """The services of the home that the environment names, which is made if it is missing.

    Raises `Refused` for bad settings, `HomeUnusable` for a home that cannot be used.
    """
    settings = Settings.load()
    settings.prepare_home()
    return wire(settings)
