"""Registering a task: what it stands on is looked at first, and that counts, not what the client says of it."""

from collections.abc import Sequence

from harbor_assets.domain.errors import Problem, Refused
from harbor_assets.domain.tasks import HarborTask, InlineMetric, Task, TaskInput
from harbor_assets.engine.ports import MetricResolver, TaskCatalog, TaskVerifier


class NoMetrics:
    """`MetricResolver` where no metrics are stored: none can be named, and none is stored."""

    def resolve(self, workspace: str, metrics: Sequence[str | InlineMetric]) -> Sequence[str]:
        """Raises `Refused` unless there are none."""
        problems = [
            Problem(metric if isinstance(metric, str) else "a metric given whole", "is not stored here; leave it out")
            for metric in metrics
        ]
        if problems:
            raise Refused("The task names metrics that do not exist:", problems)
        return ()


def register_task(
    workspace: str,
    name: str,
    body: TaskInput,
    *,
    tasks: TaskCatalog,
    verifier: TaskVerifier,
    metrics: MetricResolver,
    project: str | None = None,
    create: bool = False,
) -> tuple[Task, bool]:
    """Create or (unless `create`) replace a task; True if a revision was cut.

    Its metrics must be stored, or are stored with it; a Harbor task has `instruction` and `config` as its archive has
    them. Raises `BadArchive`, `NotFound` if there is no archive, and what catalog and metrics raise.
    """
    if body.spec.metrics:
        body = body.with_metrics(metrics.resolve(workspace, body.spec.metrics))
    if isinstance(body.spec, HarborTask):
        body = body.model_copy(update={"spec": verifier.verify(body.spec)})
    return tasks.put_task(workspace, name, body, project=project, create=create)
