"""Which stored tasks bring no solution: told before a run of the agent `oracle`, which has nothing else to apply."""

import time
from collections.abc import Iterator
from contextlib import suppress

from harbor_assets.domain.errors import HarborAssetsError
from harbor_assets.domain.names import Ref
from harbor_assets.domain.obstacles import lacks_solution
from harbor_assets.domain.plans import ORACLE
from harbor_assets.domain.requests import TaskSelection
from harbor_assets.domain.selection import select_members
from harbor_assets.domain.tasks import not_harbor
from harbor_assets.engine.ports import TaskCatalog, TaskFolders

LOOK_SECONDS = 3.0  # it is a hint: a task that was kept unpacked takes a millisecond, any other must be unpacked


def without_solution(
    workspace: str, stored: TaskSelection, *, tasks: TaskCatalog, folders: TaskFolders, seconds: float = LOOK_SECONDS
) -> Iterator[str]:
    """The names of selected tasks without a solution, as far as they can be looked at within `seconds`.

    Raises `NotFound` for an unknown taskset, `Refused` for a selection that does not fit it.
    """
    ref = Ref.parse(stored.taskset, workspace=workspace)
    taskset = tasks.get_taskset(ref.workspace, ref.name, ref.fragment)
    members = sorted(tasks.get_pinned_tasks(taskset.tasks), key=lambda task: task.name)
    if not_harbor(members):
        return  # submit says so
    chosen = select_members([(task.name, task.harbor.native_task_id) for task in members], stored.select)
    until = time.monotonic() + seconds
    for task in (members[index] for index in chosen):
        if time.monotonic() >= until:
            return
        with suppress(HarborAssetsError):  # an archive that is gone or broken is the run's to tell
            folder = folders.get(task.harbor.source)
            if lacks_solution(task.harbor.config, lambda path, at=folder: (at / path).is_file(), agent=ORACLE):
                yield task.name
