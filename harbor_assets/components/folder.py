"""Benchmarks from a folder of YAML files that belongs to no project: a home's, or a ConfigMap's on a deployment."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from harbor_assets.components.scheduled import BenchmarkYaml, ScheduledBenchmark
from harbor_assets.domain.errors import Problem, Refused

TYPE = "harbor_assets.components.ScheduledBenchmark"
FILE_MAX = 256 * 1024  # bytes; a benchmark has some hundred
FILES_MAX = 500


def files_of(folder: Path) -> list[Path]:
    """`NAME.yaml` (as a ConfigMap has them) and `NAME/defs.yaml` (as `dg` has them), sorted; none without a folder.

    Hidden ones are left out: of a mounted ConfigMap each file is there twice.
    """
    found = [*folder.glob("*.yaml"), *folder.glob("*.yml"), *folder.glob("*/defs.yaml")]
    return sorted(path for path in found if not any(p.startswith(".") for p in path.relative_to(folder).parts))


def read_benchmarks(folder: Path) -> list[ScheduledBenchmark]:
    """Every benchmark of the folder. Raises `Refused` with all that is wrong: file, field and rule."""
    problems: list[Problem] = []
    found: dict[str, tuple[Path, BenchmarkYaml]] = {}
    paths = files_of(folder)
    if len(paths) > FILES_MAX:
        raise Refused(f"{folder} holds {len(paths)} files of benchmarks; at most {FILES_MAX} are read")
    for path in paths:
        for attributes in _documents(path, problems):
            try:
                read = BenchmarkYaml.model_validate(attributes)
            except ValidationError as error:
                problems += [Problem(str(path), _told(at)) for at in error.errors(include_url=False)]
                continue
            if other := found.get(read.name):
                problems.append(Problem(str(path), f"name: {read.name!r} is the name of {other[0]} too; take another"))
                continue
            found[read.name] = (path, read)
    if problems:
        raise Refused("Scheduled benchmarks cannot be loaded (docs/schedules.md):", problems)
    return [ScheduledBenchmark(read) for _, read in found.values()]


def _documents(path: Path, problems: list[Problem]) -> Iterator[dict[str, Any]]:
    """The `attributes` of each document of a file; what is none of ours becomes a problem."""
    try:
        if (size := path.stat().st_size) > FILE_MAX:
            problems.append(Problem(str(path), f"has {size} bytes; at most {FILE_MAX} are read"))
            return
        documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        problems.append(Problem(str(path), f"cannot be read: {error}"))
        return
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problems.append(Problem(str(path), f"is no YAML: {' '.join(str(error).split())[:300]}"))
        return
    for document in documents:
        if document is None:
            continue
        if not isinstance(document, dict):
            problems.append(Problem(str(path), "must be a mapping with `type` and `attributes`"))
            continue
        if (kind := document.get("type")) != TYPE:
            problems.append(Problem(str(path), f"type: {str(kind)[:100]!r} is not {TYPE}"))
        elif unknown := sorted(map(str, document.keys() - {"type", "attributes"})):
            problems.append(Problem(str(path), f"{', '.join(unknown)[:200]}: not known here, only type and attributes"))
        elif not isinstance(attributes := document.get("attributes"), dict):
            problems.append(Problem(str(path), "attributes: must be a mapping, as name: nightly"))
        else:
            yield {str(name): value for name, value in attributes.items()}


def _told(at: Any) -> str:
    """One error of pydantic's as `field: rule`."""
    field = ".".join(map(str, at["loc"])) or "attributes"
    rules = {"missing": "is missing", "extra_forbidden": "is no field of a benchmark"}
    rule = rules.get(at["type"], at["msg"].removeprefix("Value error, "))
    shown = "" if at["type"] in rules or isinstance(at["input"], dict) else f" (it is {str(at['input'])[:80]!r})"
    return f"{field}: {rule}{shown}"
