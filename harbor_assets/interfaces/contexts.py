"""Services by name: which one commands talk to. Kept in the user's configuration folder, for this user's eyes only."""

import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from harbor_assets.domain.errors import NotFound, Refused
from harbor_assets.domain.names import nearest

LOCAL = "local"  # the home of this machine: always there, never saved
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
_MAX_BYTES = 1024 * 1024  # thousands of contexts; a larger file is none of ours


@dataclass(frozen=True, slots=True)
class Contexts:
    """The saved contexts (name -> base URL), and which is in use. Changes give a new value; `save` writes it."""

    urls: Mapping[str, str] = field(default_factory=dict)
    current: str = LOCAL

    @classmethod
    def load(cls, path: Path | None = None) -> "Contexts":
        """What was saved; nothing if nothing was. Raises `Refused` for a file that is not ours."""
        path = path or contexts_file()
        try:
            with path.open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
        except FileNotFoundError:
            return cls()
        except OSError as error:
            raise Refused(f"The contexts in {path} cannot be read: {error.strerror}") from error
        try:
            found = json.loads(data[:_MAX_BYTES])
            urls = {str(name): str(saved["base_url"]) for name, saved in found["contexts"].items()}
            return cls(urls, str(found["current"]))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Refused(f"{path} does not hold contexts; correct it, or remove it to begin afresh") from None

    def save(self, path: Path | None = None) -> None:
        """Write them: an interrupted write leaves what was there."""
        path = path or contexts_file()
        content = {
            "current": self.current,
            "contexts": {name: {"base_url": url} for name, url in sorted(self.urls.items())},
        }
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            beside = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
            try:
                with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                    json.dump(content, file, indent=2)
                    file.write("\n")
                    file.flush()
                    os.fsync(file.fileno())
                beside.replace(path)
            finally:
                beside.unlink(missing_ok=True)
        except OSError as error:
            raise Refused(f"The contexts cannot be saved in {path}: {error.strerror}") from error

    def add(self, name: str, url: str) -> "Contexts":
        """With this context; one of that name is replaced."""
        if name == LOCAL or not _NAME.fullmatch(name):
            rule = "is this machine's home" if name == LOCAL else "must be lower-case letters, digits, '-', '_' and '.'"
            raise Refused(f"The context '{name}' cannot be saved: the name {rule}; choose another")
        return replace(self, urls={**self.urls, name: url})

    def use(self, name: str) -> "Contexts":
        """With this one in use. Raises `NotFound`."""
        self.url(name)
        return replace(self, current=name)

    def remove(self, name: str) -> "Contexts":
        """Without it; if it was in use, commands talk to this machine's home again. Raises `NotFound`."""
        self.url(name)
        urls = {known: url for known, url in self.urls.items() if known != name}
        return Contexts(urls, LOCAL if self.current == name else self.current)

    def url(self, name: str) -> str | None:
        """The base URL of a context; None for `local`. Raises `NotFound` with the nearest names."""
        if name == LOCAL:
            return None
        if name not in self.urls:
            close = nearest(name, [*self.urls, LOCAL])
            hint = f"did you mean {', '.join(close)}?" if close else f"saved are: {', '.join([*self.urls, LOCAL])}"
            raise NotFound(f"There is no context '{name}'; {hint}")
        return self.urls[name]


def contexts_file() -> Path:
    """`$XDG_CONFIG_HOME/harbor-assets/contexts.json`, by default below `~/.config` (XDG base directories)."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    return Path(base if base.startswith("/") else "~/.config").expanduser() / "harbor-assets" / "contexts.json"
