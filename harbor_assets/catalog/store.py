"""The catalog: its ports on one database."""

from types import TracebackType
from typing import Self

from harbor_assets.catalog.admissions import SqlAdmissions
from harbor_assets.catalog.database import BUSY_SECONDS, Database
from harbor_assets.catalog.ended import SqlEnded
from harbor_assets.catalog.experiments import SqlExperiments
from harbor_assets.catalog.images import SqlImages
from harbor_assets.catalog.keys import SqlKeys
from harbor_assets.catalog.marks import SqlMarks
from harbor_assets.catalog.mentions import SqlMentions
from harbor_assets.catalog.metrics import SqlMetrics
from harbor_assets.catalog.outcomes import SqlOutcomes
from harbor_assets.catalog.projects import SqlProjects
from harbor_assets.catalog.runs import SqlRuns
from harbor_assets.catalog.tasks import SqlTasks, write_all_facts


class Catalog(
    SqlTasks,
    SqlProjects,
    SqlRuns,
    SqlKeys,
    SqlMentions,
    SqlEnded,
    SqlOutcomes,
    SqlAdmissions,
    SqlImages,
    SqlMetrics,
    SqlMarks,
    SqlExperiments,
):
    """`TaskCatalog`, `ProjectCatalog`, `GatedRuns`, `KeyedRuns`, `MentionCatalog`, `EndedRuns`, `ImageCatalog`,
    `MetricCatalog`, `EvalCatalog`, `MarkCatalog` and `ExperimentCatalog` on one database. Shared between threads."""

    @classmethod
    def open(cls, url: str, *, busy_seconds: float = BUSY_SECONDS) -> Self:
        """See `harbor_assets.catalog.open_catalog`; `busy_seconds` is how long a write waits for another's."""
        return cls(Database.at(url, busy_seconds=busy_seconds, upgraded=write_all_facts))

    def close(self) -> None:
        """Give the connections back. The next use opens new ones."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
