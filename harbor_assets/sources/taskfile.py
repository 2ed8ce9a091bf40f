"""Write into a task.toml that people wrote: comments, order and format stay; a file is changed whole or not at all."""

import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli
import tomlkit
from tomlkit.container import OutOfOrderTableProxy
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable, Table, Whitespace

from harbor_assets.domain.errors import Refused
from harbor_assets.settings.replacing import replace_file
from harbor_assets.sources.archive import no_space, open_regular

MAX_BYTES = 1 << 20  # as of an archive


def change_table(text: str, path: Sequence[str], values: Mapping[str, str | None]) -> str:
    """`text` with these values in the table at `path`, which is made if it is missing; None takes a key out.

    Read back before it is returned: raises ValueError where the change would say anything else than it is to.
    """
    expected = _expected(tomli.loads(text), path, values)
    newline = "\r\n" if "\r\n" in text else "\n"
    try:
        document = tomlkit.parse(text)
        holder: Any = document
        for name in path:
            if name not in holder:
                if all(value is None for value in values.values()):
                    return text
                holder[name] = tomlkit.table()
            holder = holder[name]
        for name, value in values.items():
            if value is None and name in holder:
                del holder[name]
        _put(holder, {name: value for name, value in values.items() if value is not None}, newline)
        changed = tomlkit.dumps(document)
        if tomli.loads(changed) != expected:
            raise ValueError("the change cannot be written in the way this file is written")
    except (TOMLKitError, TypeError, AttributeError, KeyError) as error:
        raise ValueError(f"it is written in a way that cannot be changed here ({type(error).__name__})") from error
    return changed


def _expected(document: dict[str, Any], path: Sequence[str], values: Mapping[str, str | None]) -> dict[str, Any]:
    at = document
    for name in path:
        if name not in at and all(value is None for value in values.values()):
            return document
        at = at.setdefault(name, {})
        if not isinstance(at, dict):
            raise ValueError(f"[{'.'.join(path)}] is no table")  # noqa: TRY004 - it is about the file's content
    for name, value in values.items():
        if value is None:
            at.pop(name, None)
        else:
            at[name] = value
    return document


def _put(table: "Table | InlineTable | OutOfOrderTableProxy", values: Mapping[str, str], newline: str) -> None:
    """Set what is there in its place; add the rest after the table's own keys, before a blank line and what follows it:
    a comment there is about the next table."""
    new = {name: value for name, value in values.items() if name not in table}
    for name in values.keys() - new.keys():
        table[name] = values[name]  # keeps the comment behind it
    after: list[Any] = []
    if isinstance(table, Table):
        body = table.value.body
        keys = [at for at, (key, item) in enumerate(body) if key is not None and not isinstance(item, Table)]
        first = keys[-1] + 1 if keys else 0
        blank = next((at for at in range(first, len(body)) if _blank(body[at])), len(body))
        if all(key is None for key, _ in body[blank:]):
            after = body[blank:]
            del body[blank:]
    for name, value in new.items():
        item = tomlkit.string(value)
        if isinstance(table, Table):
            item.trivia.trail = newline
        table[name] = item
    if isinstance(table, Table):
        table.value.body.extend(after)


def _blank(entry: tuple[Any, Any]) -> bool:
    key, item = entry
    return key is None and isinstance(item, Whitespace) and "\n" in item.s


def read_text(path: Path) -> str:
    """A task.toml as it is, line ends included. Raises `Refused` for what is no plain text file of its own."""
    try:
        with open_regular(path) as file:
            return file.read(MAX_BYTES + 1)[:MAX_BYTES].decode()
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path} cannot be read: {error}") from error


def write_text(path: Path, text: str) -> None:
    """Replace the file at once: whoever reads meanwhile, and who is killed, has the old one or the new one.

    Raises `Refused` where it cannot be written, `StorageFull` when there is no space.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        with no_space(f"{path} was written"):
            replace_file(path, text.encode(), mode=mode)
    except OSError as error:
        raise Refused(f"{path} cannot be written: {error.strerror or error}") from error
