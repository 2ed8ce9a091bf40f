"""Registering a task: what it stands on is looked at first, and that counts, not what the client says of it."""

from harbor_assets.domain.tasks import HarborTask, Task, TaskInput
from harbor_assets.engine.ports import MetricResolver, TaskCatalog, TaskVerifier


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
