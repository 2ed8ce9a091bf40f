"""Read a result bundle from a folder into typed objects: ours, and any other of the same format.

A bundle may come from anywhere, so every file is read with a limit, every row is checked, and an error names the file,
the line and the member. References to evidence are made absolute where the file is there, as the format says.
"""

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NoReturn

from pydantic import BaseModel, ValidationError

from harbor_assets.domain import bundle
from harbor_assets.domain.bundle import BundleTask, Evidence, Manifest, RunMetadata, Score, Summary, Trial
from harbor_assets.domain.errors import Broken, NotFound, Refused
from harbor_assets.domain.outcomes import TrialOutcome
from harbor_assets.domain.policies import OutcomeSummary
from harbor_assets.domain.text import quoted, visible

DOCUMENT_MAX_BYTES = 256 * 1024 * 1024  # a summary of a million trials has about a hundred
LINE_MAX_BYTES = 64 * 1024 * 1024  # the longest row we write is a few hundred KiB
ROWS_MAX = 1_000_000  # a hundred times the largest run that is planned for
_ERRORS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Bundle:
    """A whole result bundle. `outcomes` and `outcome_summary` are None in bundles that harbor-assets did not make."""

    folder: Path
    run: Manifest
    metadata: RunMetadata
    summary: Summary
    tasks: list[BundleTask]
    trials: list[Trial]
    scores: list[Score]
    outcomes: list[TrialOutcome] | None
    outcome_summary: OutcomeSummary | None


def read_trials(folder: str | os.PathLike[str]) -> list[Trial]:
    """The trials of the bundle in `folder` (`agent-eval-results/`), in the order of its file.

    References to evidence are absolute paths where the file is there, and as stored where it is not. Raises `NotFound`
    if this is no bundle, `Broken` for a row that is not of the format, `Refused` for a file beyond the limits.
    """
    root = Path(folder)
    return list(_trials(root, bundle.TRIALS))


def read_bundle(folder: str | os.PathLike[str]) -> Bundle:
    """Everything in the bundle in `folder`. Raises as `read_trials`; a missing part of the format is `NotFound`."""
    root = Path(folder)
    run = _document(root, bundle.MANIFEST, Manifest)
    parts = run.artifacts
    for name in parts.model_dump().values():
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise Broken(f"{root / bundle.MANIFEST} names {quoted(name)} as a part; parts lie beside it, by plain name")
    ours = (root / bundle.OUTCOMES).exists()
    figures = (root / bundle.OUTCOME_SUMMARY).exists()
    return Bundle(
        folder=root,
        run=run,
        metadata=_document(root, parts.metadata, RunMetadata),
        summary=_document(root, parts.summary, Summary),
        tasks=list(_rows(root, parts.tasks, BundleTask)),
        trials=list(_trials(root, parts.trials)),
        scores=list(_rows(root, parts.scores, Score)),
        outcomes=list(_rows(root, bundle.OUTCOMES, TrialOutcome)) if ours else None,
        outcome_summary=_document(root, bundle.OUTCOME_SUMMARY, OutcomeSummary) if figures else None,
    )


# --- files --------------------------------------------------------------------------------------------------------


def _open(root: Path, name: str) -> BinaryIO:
    path = root / name
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise Refused(f"{path} is not a file")
        return path.open("rb")
    except (FileNotFoundError, NotADirectoryError):
        inner = root / bundle.BUNDLE_FOLDER
        hint = f"; did you mean {inner}?" if (inner / name).is_file() else ""
        raise NotFound(f"{root} is not a result bundle: it has no {name}{hint}") from None
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}") from error


def _document[M: BaseModel](root: Path, name: str, model: type[M]) -> M:
    with _open(root, name) as file:
        data = file.read(DOCUMENT_MAX_BYTES + 1)
    if len(data) > DOCUMENT_MAX_BYTES:
        raise Refused(f"{root / name} has more than {DOCUMENT_MAX_BYTES} bytes, the most that is read")
    return _parse(data, model, str(root / name))


def _rows[M: BaseModel](root: Path, name: str, model: type[M]) -> Iterator[M]:
    count = number = 0
    with _open(root, name) as file:
        while line := file.readline(LINE_MAX_BYTES + 1):
            number += 1
            if len(line) > LINE_MAX_BYTES:
                raise Refused(
                    f"{root / name} line {number} has more than {LINE_MAX_BYTES} bytes, the most that is read"
                )
            if not line.strip():
                continue
            count += 1
            if count > ROWS_MAX:
                raise Refused(f"{root / name} has more than {ROWS_MAX} rows, the most that is read")
            yield _parse(line, model, f"{root / name} line {number}")


def _parse[M: BaseModel](data: bytes, model: type[M], where: str) -> M:
    try:
        value = json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Broken(f"{where} is not JSON: {visible(str(error))}") from None
    try:
        return model.model_validate(value)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        said = "; ".join(
            f"{visible('.'.join(map(str, item['loc'])))}: {visible(item['msg'])}" for item in found[:_ERRORS_SHOWN]
        )
        more = f"; and {len(found) - _ERRORS_SHOWN} more" if len(found) > _ERRORS_SHOWN else ""
        raise Broken(f"{where} is not of the format: {said}{more}") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


# --- evidence -----------------------------------------------------------------------------------------------------


def _trials(root: Path, name: str) -> Iterator[Trial]:
    finder = _Finder(root)
    for trial in _rows(root, name, Trial):
        if trial.evidence is None:
            yield trial
            continue
        found = {
            key: item if item.ref is None else item.model_copy(update={"ref": finder.resolve(item.ref)})
            for key, item in trial.evidence.descriptors.items()
        }
        proof = Evidence.model_construct(descriptors=found, metadata=trial.evidence.metadata)
        yield trial.model_copy(update={"evidence": proof})


class _Finder:
    """Finds evidence under a bundle. What lies outside it, by `..` or by a link, is never taken for part of it."""

    def __init__(self, root: Path) -> None:
        self._root = os.path.realpath(root)
        self._folders: dict[str, str] = {}  # many files share few folders

    def resolve(self, ref: str) -> str:
        """The absolute path of `ref` if the file is there, else `ref` as stored."""
        try:
            if PurePosixPath(ref).is_absolute():
                if os.path.lexists(ref):
                    return ref
            elif found := self._inside(ref):
                return found
            parts = PurePosixPath(ref).parts
            for i, part in enumerate(parts):
                if part == "evidence" and (found := self._inside("/".join(parts[i:]))):
                    return found
        except ValueError:  # a NUL in the name
            pass
        return ref

    def _inside(self, relative: str) -> str | None:
        folder, name = os.path.split(relative.rstrip("/"))
        if name in ("", "."):
            return None
        real = self._folders.get(folder)
        if real is None:
            real = self._folders[folder] = os.path.realpath(f"{self._root}/{folder}")
        path = f"{real}/{name}"
        if name == ".." or Path(path).is_symlink():
            path = os.path.realpath(path)
        inside = path == self._root or path.startswith(f"{self._root}/")
        return path if inside and os.path.lexists(path) else None
