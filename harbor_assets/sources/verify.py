"""Verify what a client says of a task against the archive it names: hash, layout, limits, paths, and the task itself.

The folder is kept where runs and builds look for it, so that an archive is unpacked once.
"""

from harbor_assets.domain.errors import BadArchive, Broken, Problem
from harbor_assets.domain.tasks import HarborTask
from harbor_assets.engine.ports import TaskFolders
from harbor_assets.sources.checks import check_folder
from harbor_assets.sources.scan import scan


class ArchiveVerifier:
    """Implements the port `TaskVerifier`."""

    def __init__(self, folders: TaskFolders) -> None:
        self._folders = folders

    def verify(self, spec: HarborTask) -> HarborTask:
        """See `TaskVerifier.verify`."""
        try:
            folder = self._folders.get(spec.source, archived=True)
        except Broken as error:
            raise _bad(spec, [Problem("source", str(error))]) from error
        found = check_folder(scan(folder))
        problems = [Problem(fault.file, fault.reason) for fault in found.problems]
        if found.native_task_id != spec.native_task_id:
            problems.insert(
                0, Problem("native_task_id", f"'{spec.native_task_id}' is not the archive's, '{found.native_task_id}'")
            )
        if problems:
            raise _bad(spec, problems)
        return spec.model_copy(update={"instruction": found.instruction, "config": found.config})


def _bad(spec: HarborTask, problems: list[Problem]) -> BadArchive:
    return BadArchive(f"The task '{spec.native_task_id}' cannot be registered from its archive:", problems)
