"""Registering a task: its archive is read first, and what it says counts, not what the client says of it."""

from harbor_assets.domain.tasks import Task, TaskInput
from harbor_assets.engine.ports import TaskCatalog, TaskVerifier


def register_task(
    workspace: str, name: str, body: TaskInput, *, tasks: TaskCatalog, verifier: TaskVerifier
) -> tuple[Task, bool]:
    """Create or replace a task, with `instruction` and `config` as its archive has them; True if a revision was cut.

    Raises `BadArchive`, `NotFound` if there is no archive, and what the catalog raises.
    """
    verified = verifier.verify(body.spec)
    return tasks.put_task(workspace, name, body.model_copy(update={"spec": verified}))
