"""Profiles as an admin writes them: YAML files in a folder.

A file is one profile (a mapping with `name`), or `profiles:` with a list of them; `default:` names the one that a
request without a name gets, in any one of the files. A single profile needs no `default`.
"""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from harbor_assets.documents import read_yaml
from harbor_assets.domain.errors import Problem, Refused
from harbor_assets.domain.names import nearest
from harbor_assets.domain.profiles import SandboxProfile
from harbor_assets.domain.validation import problems_of

MAX_BYTES = 1 << 20  # a ConfigMap's own limit


class FolderProfiles:
    """Implements the engine's `Profiles`. Read once: a changed folder is seen by the next process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @cached_property
    def _known(self) -> tuple[dict[str, SandboxProfile], str]:
        return read_profiles(self._folder)

    def get(self, name: str | None) -> SandboxProfile:
        """See `engine.ports.Profiles`."""
        profiles, default = self._known
        found = profiles.get(name or default)
        if found is None:
            raise Refused(
                "There is no such sandbox profile:",
                [Problem(f"sandbox profile '{name}'", f"is not known; {_choices(str(name), profiles, default)}")],
            )
        return found


def _choices(name: str, profiles: Mapping[str, SandboxProfile], default: str) -> str:
    names = ", ".join(f"{known} (the default)" if known == default else known for known in sorted(profiles))
    close = nearest(name, profiles, 1)
    return f"valid names: {names}" + (f"; did you mean {close[0]}?" if close else "")


def read_profiles(folder: Path) -> tuple[dict[str, SandboxProfile], str]:
    """All profiles by name, and the default's name. Raises `Refused` with everything that is wrong at once."""
    problems: list[Problem] = []
    profiles: dict[str, SandboxProfile] = {}
    defaults: dict[str, str] = {}
    files = sorted(path for path in (*folder.glob("*.yaml"), *folder.glob("*.yml")) if path.is_file())
    if not files:
        problems.append(Problem(str(folder), "holds no *.yaml file; write at least one sandbox profile"))
    for path in files:
        entries, default = _entries(path, problems)
        if default is not None:
            defaults[default] = path.name
        for at, entry in entries:
            profile = _profile(at, entry, problems)
            if profile and profile.name in profiles:
                problems.append(Problem(at, f"the name '{profile.name}' is taken by another profile"))
            elif profile:
                profiles[profile.name] = profile
    default = _default(defaults, profiles, problems, folder)
    if problems:
        raise Refused("The sandbox profiles cannot be used:", problems)
    return profiles, default


def _default(
    defaults: Mapping[str, str], profiles: Mapping[str, SandboxProfile], problems: list[Problem], folder: Path
) -> str:
    if len(defaults) > 1:
        problems.append(Problem(str(folder), f"names several defaults: {', '.join(sorted(defaults))}; keep one"))
    elif not defaults and len(profiles) == 1:
        return next(iter(profiles))
    elif not defaults and len(profiles) > 1:
        problems.append(Problem(str(folder), f"`default:` is missing; name one of {', '.join(sorted(profiles))}"))
    for name, file in defaults.items():
        if name not in profiles:
            known = ", ".join(sorted(profiles)) or "none"
            problems.append(Problem(file, f"default: '{name}' is no profile; there are {known}"))
    return next(iter(defaults), "")


def _entries(path: Path, problems: list[Problem]) -> tuple[list[tuple[str, Any]], str | None]:
    """(where, mapping) of every profile in the file, and the default it names."""
    document = _read(path, problems)
    if document is None:
        return [], None
    if "name" in document and "profiles" not in document:
        default = document.pop("default", None)
        entries: Any = [document]
    else:
        default, entries = document.pop("default", None), document.pop("profiles", [])
        for key in document:
            problems.append(Problem(path.name, f"unknown field '{key}'; a file has `default` and `profiles`"))
    if not isinstance(entries, list):
        problems.append(Problem(path.name, "`profiles` must be a list of profiles"))
        entries = []
    if default is not None and not isinstance(default, str):
        problems.append(Problem(path.name, f"`default` must be the name of a profile, not {default!r}"))
        default = None
    named = [entry.get("name") if isinstance(entry, dict) else None for entry in entries]
    return [
        (f"{path.name}, {name or f'profile {at}'}", e)
        for at, (name, e) in enumerate(zip(named, entries, strict=True), 1)
    ], default


def _profile(where: str, entry: Any, problems: list[Problem]) -> SandboxProfile | None:
    from pydantic import ValidationError

    if not isinstance(entry, dict):
        problems.append(Problem(where, f"must be a mapping of fields, not {entry!r}"))
        return None
    try:
        return SandboxProfile.model_validate(entry)
    except ValidationError as error:
        problems.extend(Problem(where, str(problem)) for problem in problems_of(error, SandboxProfile))
        return None


def _read(path: Path, problems: list[Problem]) -> dict[str, Any] | None:
    try:
        if path.stat().st_size > MAX_BYTES:
            problems.append(Problem(path.name, f"has more than {MAX_BYTES} bytes"))
            return None
        document = read_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        problems.append(Problem(path.name, f"cannot be read: {error}"))
        return None
    except ValueError as error:
        problems.append(Problem(path.name, f"is not YAML: {error}"))
        return None
    if not isinstance(document, dict):
        problems.append(Problem(path.name, "must hold `default` and `profiles`, or one profile"))
        return None
    return document
