"""Bodies from files: JSON or YAML, checked with every problem at once before anything is asked."""

import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from harbor_assets.documents import read_json, read_yaml
from harbor_assets.domain.errors import Problem, Refused
from harbor_assets.domain.tasks import TasksetInput
from harbor_assets.domain.validation import problems_of

STDIN = "-"
BODY_MAX = 16 << 20  # bytes: what the service reads
_YAML = (".yaml", ".yml")
_KINDS = ("spec.evaluator.", "spec.harbor.")  # how pydantic names the members of a task's definition


def read_document(file: str, subject: str, *, limit: int) -> Any:
    """The value in a JSON or YAML file (YAML by its name; on stdin either). Raises `Refused`, saying what is wrong with
    the `subject`, as "The request file x.json"."""
    try:
        if file == STDIN:
            data = sys.stdin.buffer.read(limit + 1)
        else:
            with Path(file).expanduser().open("rb") as opened:
                data = opened.read(limit + 1)
    except OSError as error:
        raise Refused(f"{subject} cannot be read: {error.strerror}") from None
    if len(data) > limit:
        raise Refused(f"{subject} has more than {limit} bytes; is it the right file?")
    if not data.strip():
        raise Refused(f"{subject} is empty")
    is_yaml = Path(file).suffix.lower() in _YAML or (file == STDIN and not data.lstrip().startswith(b"{"))
    try:
        text = data.decode("utf-8-sig")
        return read_yaml(text) if is_yaml else read_json(text)
    except (ValueError, RecursionError) as error:
        by_name = "" if file == STDIN else f", which it would be by its name; YAML ends in {' or '.join(_YAML)}"
        kind = "YAML" if is_yaml else f"JSON{by_name}"
        raise Refused(f"{subject} cannot be used:", [Problem("", f"it is not {kind}: {error}")]) from None


def read_mapping(file: str, what: str) -> dict[str, Any]:
    """The object in a file. Raises `Refused`."""
    found = read_document(file, _subject(file, what), limit=BODY_MAX)
    if not isinstance(found, dict):
        raise Refused(f"{_subject(file, what)} must be an object with members")
    return found


def read_body[T: BaseModel](file: str, model: type[T]) -> T:
    """The body in a file. Raises `Refused` with every problem and its path in the document."""
    what = model.__name__.removesuffix("Input").lower()
    found = read_mapping(file, what)
    try:
        return model.model_validate(found)
    except ValidationError as error:
        problems = [Problem(_path(at.subject), at.message) for at in problems_of(error, model)]
        raise Refused(f"{_subject(file, what)} cannot be used:", problems) from None


def read_taskset(name: str | None, file: str | None, others: list[str]) -> tuple[str, TasksetInput]:
    """Name and body of a taskset of stored tasks. Raises `Refused`, also for `others`: flags of a suite's folder."""
    if name is None and file is None:
        raise Refused(
            "No tasks were named. Write --harbor-dir DIR for a suite on this machine, or NAME --file FILE for a "
            "taskset of stored tasks"
        )
    if others:
        raise Refused(f"{', '.join(others)}: only for a suite's folder, and NAME --file FILE is another way; give one")
    if name is None or file is None:
        raise Refused("A taskset of stored tasks needs both, NAME and --file FILE")
    return name, read_body(file, TasksetInput)


def _subject(file: str, what: str) -> str:
    return f"The {what} on stdin" if file == STDIN else f"The {what} in {file}"


def _path(path: str) -> str:
    return next((f"spec.{path.removeprefix(kind)}" for kind in _KINDS if path.startswith(kind)), path)
