"""The other workspaces that a body refers to: whoever sends it must be allowed to read there.

A reference is as good as a read. What cannot be parsed is left out; it is refused where it is used.
"""

from collections.abc import Iterable, Iterator

from harbor_assets.domain.agent_eval import AgentEvalJobInput
from harbor_assets.domain.errors import Refused
from harbor_assets.domain.names import Ref
from harbor_assets.domain.tasks import HarborTask, TaskInput, TasksetInput


def of_refs(refs: Iterable[object], workspace: str) -> Iterator[str]:
    """The workspaces of references; those of `workspace` itself, and what is no reference, are left out."""
    for text in refs:
        try:
            ref = Ref.parse(text, workspace=workspace) if isinstance(text, str) else None
        except Refused:
            continue
        if ref is not None and ref.workspace != workspace:
            yield ref.workspace


def of_task(body: TaskInput, workspace: str) -> Iterator[str]:
    """Those of its metrics and of its archive."""
    yield from of_refs(body.spec.metrics, workspace)
    if isinstance(body.spec, HarborTask):
        yield from _of_fileset(body.spec.source.fileset_ref, workspace)


def of_taskset(body: TasksetInput, workspace: str) -> Iterator[str]:
    """Those of its members by reference and of its files. Members by id name none; the catalog is told instead."""
    yield from of_refs(body.tasks or (), workspace)
    if body.files_ref is not None:
        yield from _of_fileset(body.files_ref, workspace)


def of_evaluation(body: AgentEvalJobInput, workspace: str) -> Iterator[str]:
    """That of its taskset, or those of its tasks' metrics."""
    tasks = body.spec.tasks
    if isinstance(tasks, str):
        yield from of_refs([tasks], workspace)
    else:
        for task in tasks:
            yield from of_refs(task.metrics, workspace)


def _of_fileset(ref: str, workspace: str) -> Iterator[str]:
    if (named := ref.partition("/")[0]) != workspace:
        yield named
