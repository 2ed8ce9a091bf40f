"""What a task and a taskset answer when a list is filtered: their facts, as `filters.py` explains them."""

from collections.abc import Iterator

from harbor_assets.domain.filters import Fact
from harbor_assets.domain.names import Ref
from harbor_assets.domain.tasks import EvaluatorTask, HarborTask, Record, Task, Taskset


def task_facts(task: Task) -> list[Fact]:
    """Everything but tags and times, which change without a revision."""
    spec = task.spec
    return [
        *_common(task),
        ("kind", "", spec.kind),
        ("intent", "", spec.intent if isinstance(spec, EvaluatorTask) else None),
        ("native_task_id", "", spec.native_task_id if isinstance(spec, HarborTask) else None),
        *(("metrics", "", metric) for metric in spec.metrics),
    ]


def taskset_facts(taskset: Taskset) -> list[Fact]:
    """As `task_facts`; each member once with its digest and once without."""
    members = [Ref.parse(text, workspace=taskset.workspace) for text in taskset.tasks]
    return [
        *_common(taskset),
        ("description", "", taskset.description),
        *(("tasks", "", text) for member in members for text in (str(member), member.bare)),
    ]


def passing_facts(record: Record) -> list[Fact]:
    """Tags and times."""
    times: list[Fact] = [("created_at", "", record.created_at), ("updated_at", "", record.updated_at)]
    return [*times, *(("tags", "", tag) for tag in record.tags)]


def _common(record: Record) -> Iterator[Fact]:
    yield from (("id", "", record.id), ("name", "", record.name), ("project", "", record.project))
    yield from (("metadata", item.key, item.value) for item in record.metadata)
