"""Read a task.toml as a stranger's text: its JSON form, Harbor's own judgement of it, and keys that mean nothing."""

import copy
import datetime
import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import tomli
from pydantic import JsonValue, ValidationError

from harbor_assets.domain.text import quoted, visible

if TYPE_CHECKING:
    from harbor.models.task.config import TaskConfig

MAX_DEPTH = 100  # of nested tables: hand-written ones have five; pydantic gives up at 255
_VALUE_SHOWN = 60  # characters of a wrong value, enough to find it by
_SECRET_PARENTS = frozenset({"env", "headers"})  # what stands in these is never quoted
# Written back by `harbor admin upload-images` of the ACK fork; they record an image and change nothing.
_KNOWN_BESIDE_HARBOR = ("built_content_hash", "image_sha256")


@dataclass(frozen=True, slots=True)
class TaskToml:
    """What a task.toml says. `parsed` is Harbor's view of it, None where there are `problems`."""

    native_task_id: str | None = None
    config: dict[str, JsonValue] = field(default_factory=dict)
    parsed: "TaskConfig | None" = None
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def read_task_toml(text: str, folder_name: str) -> TaskToml:
    """Parse and judge. The native id is `[task].name`, or the folder's name where there is no such table."""
    try:
        raw = tomli.loads(text)
    except (ValueError, RecursionError) as error:
        bom = " (it begins with a byte order mark; save it without)" if text.startswith("\ufeff") else ""
        return TaskToml(problems=(f"is not TOML: {visible(str(error)) or 'nested too deeply'}{bom}",))
    if _depth_exceeds(raw, MAX_DEPTH):
        return TaskToml(problems=(f"nests tables deeper than {MAX_DEPTH} levels",))
    native = _native_task_id(raw, folder_name)
    parsed, problems = _harbors_view(text)
    strange = tuple(f"{location} is {value}; it is stored as text" for location, value in _not_json(raw))
    return TaskToml(
        native_task_id=native,
        config={key: _as_json(value) for key, value in raw.items()},
        parsed=parsed,
        warnings=(*unknown_keys(raw), *strange),
        problems=problems,
    )


def unknown_keys(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """Harbor's lint rule `unknown-config-field`: keys and tables it would ignore, each with the nearest known one.

    Harbor's own walk over its schema is used without the rest of its linter, which reads every file of the task and
    starts programs; a test keeps the two equal.
    """
    from harbor.lint.task import (
        _unknown_fields,  # pyright: ignore[reportPrivateUsage] - harbor is pinned exactly
    )
    from harbor.models.task.config import TaskConfig

    known = copy.deepcopy(dict(raw))
    for table in _environment_tables(known):
        for key in _KNOWN_BESIDE_HARBOR:
            table.pop(key, None)
    return tuple(visible(text) for text in _unknown_fields(known, TaskConfig))


def _environment_tables(raw: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    steps = raw.get("steps")
    holders = [raw, raw.get("verifier")]
    holders += [step.get("verifier") for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []
    for holder in holders:
        if isinstance(holder, dict) and isinstance(table := holder.get("environment"), dict):
            yield table


def _native_task_id(raw: Mapping[str, Any], folder_name: str) -> str | None:
    if "task" not in raw:
        return folder_name
    name = raw["task"].get("name") if isinstance(raw["task"], dict) else None
    return name if isinstance(name, str) and name else None


def _harbors_view(text: str) -> "tuple[TaskConfig | None, tuple[str, ...]]":
    from harbor.models.task.config import TaskConfig

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old spellings, which Harbor maps to the new ones
            return TaskConfig.model_validate_toml(text), ()
    except ValidationError as error:
        return None, tuple(_sentence(item) for item in error.errors(include_url=False, include_context=False))
    except (ValueError, RecursionError) as error:  # TOML 1.1, which tomli reads and Harbor does not
        return None, (f"is not the TOML 1.0 that Harbor reads: {visible(str(error))}",)


def _sentence(error: Mapping[str, Any]) -> str:
    """`environment.memory_mb = 'lots': Input should be a valid integer`."""
    location = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"]).lstrip(".")
    value, shown = error["input"], ""
    if isinstance(value, str | int | float) and not _SECRET_PARENTS.intersection(map(str, error["loc"])):
        shown = f" = {quoted(value, _VALUE_SHOWN) if isinstance(value, str) else repr(value)}"
    message = visible(error["msg"].removeprefix("Value error, ")).rstrip(".")
    return f"{visible(location)}{shown}: {message}" if location else message


def _depth_exceeds(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def _as_json(value: Any) -> JsonValue:
    if isinstance(value, dict):
        return {key: _as_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    if isinstance(value, datetime.date | datetime.time):  # datetime is a date
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _not_json(value: Any, location: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, float) and not math.isfinite(value):
        yield location, value
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in children:
        part = f"[{key}]" if isinstance(key, int) else f".{key}"
        yield from _not_json(item, f"{location}{part}".lstrip("."))
