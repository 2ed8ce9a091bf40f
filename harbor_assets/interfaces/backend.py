"""What the API and the client in process stand on: the part of the wired services they use."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harbor_assets.engine.agent_evals import AgentEvals
    from harbor_assets.engine.evaluations import Evaluations
    from harbor_assets.engine.experiment_ports import ExperimentCatalog
    from harbor_assets.engine.lineage import Lineages
    from harbor_assets.engine.mark_ports import MarkCatalog
    from harbor_assets.engine.marking import Marking
    from harbor_assets.engine.metric_ports import MetricCatalog
    from harbor_assets.engine.ports import Artifacts, ProjectCatalog, TaskCatalog, TaskVerifier
    from harbor_assets.engine.ranking import Rankings
    from harbor_assets.engine.staleness import Staleness
    from harbor_assets.engine.taskset_images import TasksetImages
    from harbor_assets.engine.verification import Verifications
    from harbor_assets.wiring import Services


@dataclass(frozen=True, slots=True)
class Backend:
    """The engine's service and the stores beside it, usable from several threads.

    `agent_evals` is made when it is asked for: it brings the engine of templates. `scratch` is where uploads lie until
    they are whole; None: the system's temporary folder. Without `projects` no record can be put under one.
    """

    evaluations: "Evaluations"
    tasks: "TaskCatalog"
    artifacts: "Artifacts"
    verifier: "TaskVerifier"
    images: "TasksetImages"
    metrics: "MetricCatalog"
    marks: "MarkCatalog"
    verifications: "Verifications"
    experiments: "ExperimentCatalog"
    marking: "Marking"
    lineages: "Lineages"
    staleness: "Staleness"
    agent_evals: "Callable[[], AgentEvals]"
    scratch: Path | None = None
    rankings: "Rankings | None" = None
    projects: "ProjectCatalog | None" = None

    @classmethod
    def of(cls, services: "Services", scratch: Path | None = None) -> "Backend":
        """The parts of wired services. Nothing is connected before it is used."""
        return cls(
            evaluations=services.evaluations,
            tasks=services.tasks,
            artifacts=services.artifacts,
            verifier=services.verifier,
            scratch=scratch,
            images=services.taskset_images,
            metrics=services.catalog,
            marks=services.catalog,
            verifications=services.verifications,
            experiments=services.catalog,
            marking=services.marking,
            lineages=services.lineages,
            staleness=services.staleness,
            agent_evals=lambda: services.agent_evals,
            rankings=services.rankings,
            projects=services.catalog,
        )
