"""Read a suite from a folder: every child is checked and named, none is dropped."""

import os
from pathlib import Path

from pydantic import ValidationError

from harbor_assets.domain.archives import RESERVED_ROOT
from harbor_assets.domain.errors import Refused
from harbor_assets.domain.suites import CheckedFolder, FileProblem, Suite, assemble, suite_name
from harbor_assets.domain.text import visible
from harbor_assets.sources.cache import StatusCache
from harbor_assets.sources.checks import check_folder, folder_text
from harbor_assets.sources.scan import scan

_KIND = "checked"
_NO_TASKS = frozenset({"__pycache__"})  # what programs leave beside tasks


def read_suite(path: Path, *, cache: StatusCache | None = None, strict: bool = False) -> Suite:
    """The suite in `path`: each folder in it is a task, valid or named among the invalid with file and reason.

    Files, hidden entries and `__pycache__` beside the tasks are no tasks; a `task_template` is skipped with a warning.
    The suite's name is the folder's (see `suite_name`). `strict`: unknown keys make a task invalid. Raises `Refused`
    where there is no suite at all: no such folder, a file, a single task, nothing in it, or nothing that this user may
    read.
    """
    given = Path(os.path.abspath(path))  # noqa: PTH100 - the name the user wrote, not the one a link leads to
    folder, children = _open(given)
    found: list[CheckedFolder] = []
    warnings: list[str] = []
    for child in sorted(children, key=lambda entry: entry.name):
        if child.name.startswith(".") or child.name in _NO_TASKS or _is_file(child):
            continue
        if child.name == RESERVED_ROOT and child.is_dir(follow_symlinks=False):
            warnings.append(f"{RESERVED_ROOT} is skipped: it is where new tasks are copied from, not a task")
            continue
        found.append(_read_child(folder / child.name, child, cache))
    if not found:
        raise Refused(
            f"{given} holds no task folders; a suite is a folder whose folders are tasks (task.toml in each)."
        )
    return assemble(suite_name(given.name), found, warnings=warnings, strict=strict)


def _open(given: Path) -> tuple[Path, list[os.DirEntry[str]]]:
    try:
        str(given).encode()
        folder = given.resolve(strict=True)
        str(folder).encode()
        with os.scandir(folder) as entries:
            children = list(entries)
    except UnicodeEncodeError as error:
        raise Refused(f"{visible(str(given))} is not a UTF-8 path; rename the folder.") from error
    except FileNotFoundError as error:
        raise Refused(f"There is no folder {given}; give the folder whose folders are the tasks.") from error
    except NotADirectoryError as error:
        raise Refused(f"{given} is a file; give the folder whose folders are the tasks.") from error
    except (OSError, RuntimeError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise Refused(f"The suite {given} cannot be read: {why}; give it to this user, or choose another.") from error
    if any(child.name == "task.toml" for child in children):
        raise Refused(
            f"{given} is a single task, not a suite; give the folder around it, {given.parent}, and choose the task "
            "there with --tasks NAME (--list-tasks shows the names)."
        )
    return folder, children


def _is_file(child: os.DirEntry[str]) -> bool:
    try:
        return child.is_file()
    except OSError:  # a link in a circle, or into a folder that this user may not enter
        return False


def _read_child(folder: Path, child: os.DirEntry[str], cache: StatusCache | None) -> CheckedFolder:
    if child.is_symlink():
        return _unread(folder, "is a link; put the task's folder itself here")
    if not child.is_dir():
        return _unread(folder, "is a device, pipe or socket; a suite holds task folders")
    try:
        seen = scan(folder)
    except OSError as error:
        return _unread(folder, f"cannot be read: {error.strerror or error}")
    if cache and (known := cache.get(seen, _KIND)):
        try:
            return CheckedFolder.model_validate_json(known)
        except ValidationError:
            pass  # written by other code: as good as not known
    checked = check_folder(seen)
    if cache:
        cache.put(seen, _KIND, checked.model_dump_json())
    return checked


def _unread(folder: Path, reason: str) -> CheckedFolder:
    return CheckedFolder(
        name=visible(folder.name),
        folder=folder_text(folder),
        status="",
        problems=(FileProblem(file=".", reason=reason),),
    )
