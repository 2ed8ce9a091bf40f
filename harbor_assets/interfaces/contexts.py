"""Services by name: which one commands talk to. Kept in the user's configuration folder, for this user's eyes only."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from harbor_assets.domain.errors import NotFound, Refused
from harbor_assets.domain.names import nearest
from harbor_assets.interfaces.tokens import check_token, read_token
from harbor_assets.settings.replacing import replace_file

LOCAL = "local"  # the home of this machine: always there, never saved
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
_MAX_BYTES = 1024 * 1024  # thousands of contexts; a larger file is none of ours


@dataclass(frozen=True, slots=True)
class Context:
    """A service: its base URL, and the file that holds a token for it. The token itself is never saved here."""

    base_url: str
    token_file: str | None = None

    def token(self, given: str) -> str | None:
        """The token to send: `given` if it is not empty (HARBOR_ASSETS_TOKEN), else the file's, else None.

        Raises `Refused` for one that cannot be read or sent.
        """
        if given:
            return check_token(given, "The token in HARBOR_ASSETS_TOKEN")
        return None if self.token_file is None else read_token(self.token_file)


@dataclass(frozen=True, slots=True)
class Contexts:
    """The saved contexts by name, and which is in use. Changes give a new value; `save` writes it."""

    saved: Mapping[str, Context] = field(default_factory=dict)
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
            saved = {str(name): _context(one) for name, one in found["contexts"].items()}
            return cls(saved, str(found["current"]))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Refused(f"{path} does not hold contexts; correct it, or remove it to begin afresh") from None

    def save(self, path: Path | None = None) -> None:
        """Write them: an interrupted write leaves what was there."""
        path = path or contexts_file()
        content = {
            "current": self.current,
            "contexts": {name: _members(context) for name, context in sorted(self.saved.items())},
        }
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_file(path, (json.dumps(content, indent=2) + "\n").encode(), mode=0o600)
        except OSError as error:
            raise Refused(f"The contexts cannot be saved in {path}: {error.strerror}") from error

    def add(self, name: str, url: str, token_file: str | None = None) -> "Contexts":
        """With this context; one of that name is replaced."""
        if name == LOCAL or not _NAME.fullmatch(name):
            rule = "is this machine's home" if name == LOCAL else "must be lower-case letters, digits, '-', '_' and '.'"
            raise Refused(f"The context '{name}' cannot be saved: the name {rule}; choose another")
        return replace(self, saved={**self.saved, name: Context(url, token_file)})

    def use(self, name: str) -> "Contexts":
        """With this one in use. Raises `NotFound`."""
        self.get(name)
        return replace(self, current=name)

    def remove(self, name: str) -> "Contexts":
        """Without it; if it was in use, commands talk to this machine's home again. Raises `NotFound`."""
        self.get(name)
        saved = {known: context for known, context in self.saved.items() if known != name}
        return Contexts(saved, LOCAL if self.current == name else self.current)

    def get(self, name: str) -> Context | None:
        """A context; None for `local`. Raises `NotFound` with the nearest names."""
        if name == LOCAL:
            return None
        if name not in self.saved:
            close = nearest(name, [*self.saved, LOCAL])
            hint = f"did you mean {', '.join(close)}?" if close else f"saved are: {', '.join([*self.saved, LOCAL])}"
            raise NotFound(f"There is no context '{name}'; {hint}")
        return self.saved[name]

    def chosen(self, wanted: str) -> tuple[str, str]:
        """The name of the context that counts, and what decided it. `wanted`: HARBOR_ASSETS_CONTEXT, or empty."""
        if wanted:
            return wanted, "HARBOR_ASSETS_CONTEXT"
        return self.current, "context use" if self.current in self.saved else "default"


def chosen_context(wanted: str) -> Context | None:
    """The context that counts; None if that is this machine. Raises `NotFound`."""
    if wanted == LOCAL:
        return None
    contexts = Contexts.load()
    return contexts.get(contexts.chosen(wanted)[0])


def _context(saved: Mapping[str, object]) -> Context:
    token_file = saved.get("token_file")
    return Context(str(saved["base_url"]), None if token_file is None else str(token_file))


def _members(context: Context) -> dict[str, str]:
    return {"base_url": context.base_url} | ({"token_file": context.token_file} if context.token_file else {})


def contexts_file() -> Path:
    """`$XDG_CONFIG_HOME/harbor-assets/contexts.json`, by default below `~/.config` (XDG base directories)."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    return Path(base if base.startswith("/") else "~/.config").expanduser() / "harbor-assets" / "contexts.json"
