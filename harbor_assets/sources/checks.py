"""Judge one task folder: all that would make Harbor, the archive or the catalog refuse it, by file and reason."""

import errno
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from harbor_assets.domain.archives import Tree, metadata_limit, tree_problems
from harbor_assets.domain.suites import CheckedFolder, FileProblem, normalised_instruction
from harbor_assets.domain.text import visible
from harbor_assets.sources.archive import open_regular
from harbor_assets.sources.scan import Scan
from harbor_assets.sources.taskconfig import read_task_toml

if TYPE_CHECKING:
    from harbor.models.task.config import TaskConfig

_PROBLEMS_KEPT = 20  # of one folder: enough to act on, and a hostile one does not fill the screen
_COMPOSE = "docker-compose.yaml"
# What Harbor's packager opens by these names; it fails on the other kind without a word of explanation.
_KINDS = {
    **dict.fromkeys(("README.md", "trajectory.json"), "file"),
    **dict.fromkeys(("environment", "tests", "solution", "steps"), "dir"),
}


def check_folder(scan: Scan) -> CheckedFolder:
    """Check a task folder. Never raises for what is in it; each fault is named, and Harbor has the last word."""
    found = _Findings(scan)
    for path, reason in [*scan.unreadable, *_closed(scan), *tree_problems(scan.folder.name, scan.entries)]:
        found.add(path, reason)
    text = found.text("task.toml", "is missing; a task needs it (other folders do not belong in a suite)")
    toml = read_task_toml(text, scan.folder.name) if text is not None else None
    instruction = ""
    if toml:
        for reason in toml.problems:
            found.add("task.toml", reason)
    if toml and toml.parsed:
        instruction = _check_instructions(found, toml.parsed, toml.native_task_id or "")
        _check_layout(found, toml.parsed)
        if not found.problems:
            _ask_harbor(found)
    return CheckedFolder(
        name=visible(scan.folder.name),
        folder=folder_text(scan.folder),
        status=scan.signature,
        native_task_id=toml.native_task_id if toml else None,
        instruction=instruction,
        config=toml.config if toml else {},
        warnings=toml.warnings if toml else (),
        problems=found.cut(),
    )


def _closed(scan: Scan) -> Iterator[tuple[str, str]]:
    """Files that this user may not read: publishing would fail on them, and for the whole suite."""
    for entry in scan.entries:
        if entry.kind == "file" and not os.access(scan.folder / entry.path, os.R_OK, effective_ids=True):
            yield entry.path, f"cannot be read: {os.strerror(errno.EACCES)}"


def folder_text(folder: Path) -> str:
    """The path as it is; one that is not UTF-8 (its task cannot be valid) in a form that can be kept as text."""
    return os.fsencode(folder).decode(errors="backslashreplace")


@dataclass(slots=True)
class _Findings:
    scan: Scan
    problems: list[FileProblem] = field(default_factory=list)
    tree: Tree = field(init=False)

    def __post_init__(self) -> None:
        self.tree = Tree(self.scan.entries)

    def add(self, path: str, reason: str) -> None:
        problem = FileProblem(file=visible(path) or ".", reason=visible(reason))
        if problem not in self.problems:
            self.problems.append(problem)

    def cut(self) -> tuple[FileProblem, ...]:
        rest = len(self.problems) - _PROBLEMS_KEPT
        more = [FileProblem(file=".", reason=f"has {rest} more faults that are not listed")] if rest > 0 else []
        return (*self.problems[:_PROBLEMS_KEPT], *more)

    def has(self, path: str, kind: str) -> bool:
        """Links count as what they lead to."""
        end = self.tree.find(path)
        return end is not None and end.kind == kind

    def text(self, path: str, missing: str = "is missing") -> str | None:
        """A file that is read whole; None, and a finding, where it is not there, too large, a link or no text."""
        entry = self.tree.get(path)
        if entry is None:
            self.add(path, missing)
            return None
        if entry.kind != "file":
            if entry.kind == "dir":
                self.add(path, "is a folder, it has to be a file")
            return None  # links and devices are findings of the tree
        if entry.size > (metadata_limit(path) or 0):
            return None  # so are files that are too large
        try:
            with open_regular(self.scan.folder / path) as file:
                return file.read(entry.size).decode()
        except UnicodeDecodeError as error:
            self.add(path, f"is not UTF-8 text (byte {error.start + 1}); save it as UTF-8")
        except OSError as error:
            self.add(path, f"cannot be read: {error.strerror or error}")
        return None


def _check_instructions(found: _Findings, config: "TaskConfig", native_task_id: str) -> str:
    """The instruction as it is stored; that of a task in steps may be missing, then its id stands for it."""
    for step in config.steps or ():
        _instruction(found, f"steps/{step.name}/instruction.md")
    if config.steps and found.tree.get("instruction.md") is None:
        return native_task_id
    return _instruction(found, "instruction.md")


def _instruction(found: _Findings, path: str) -> str:
    from harbor.models.task.task import strip_canary

    text = found.text(path, "is missing; say there what the agent has to do")
    if text is None:
        return ""
    instruction = normalised_instruction(text)
    if not instruction or not strip_canary(text).strip():
        found.add(path, "says nothing (only blanks and comments); say there what the agent has to do")
    return instruction


def _check_layout(found: _Findings, config: "TaskConfig") -> None:
    from harbor.models.task.config import TaskOS, VerifierEnvironmentMode
    from harbor.models.task.verifier_mode import resolve_task_verifier_mode

    verifiers = [config.verifier, *(step.verifier for step in config.steps or ())]
    environments = [config.environment, *(v.environment for v in verifiers if v.environment)]
    if any(environment.os == TaskOS.WINDOWS for environment in environments):
        found.add("task.toml", "environment.os = 'windows': only Linux tasks can be run")
    if not config.environment.docker_image and found.tree.get("environment") is None:
        found.add("environment", "is missing; add the folder (with a Dockerfile), or set environment.docker_image")
    for path, kind in _KINDS.items():
        if found.tree.get(path) is not None and not found.has(path, kind):
            found.add(path, "has to be a file" if kind == "file" else "has to be a folder")
    build_folders = ["environment", "tests", *(f"steps/{step.name}/tests" for step in config.steps or ())]
    for path in (f"{folder}/{_COMPOSE}" for folder in build_folders):
        if found.tree.get(path) is not None:
            found.add(path, "tasks of several containers (Docker Compose) are not supported yet")
    shared = resolve_task_verifier_mode(config) == VerifierEnvironmentMode.SHARED
    if not config.steps and shared and not found.has("tests/test.sh", "file"):
        found.add("tests/test.sh", "is missing; it writes the reward to /logs/verifier/reward.txt or reward.json")


def _ask_harbor(found: _Findings) -> None:
    """Harbor's own loader, the one the trial will use: ignore files, steps and separate verifiers are left to it."""
    from harbor.models.task.task import Task
    from harbor.publisher.packager import Packager

    folder = found.scan.folder
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            Task(folder)
            if found.tree.get(".gitignore") is not None:
                Packager.collect_files(folder)
    except (OSError, ValueError, RuntimeError) as error:
        said = str(error).replace(f"{folder}/", "").replace(f"Task directory {folder}", "The task")
        found.add(".", f"Harbor does not load it: {said.replace(str(folder), 'the task')}")
