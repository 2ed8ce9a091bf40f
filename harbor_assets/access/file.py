"""The access file: read, checked, read again when it changes, and given a token."""

import os
import re
import secrets
import stat
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import tomli
from pydantic import ValidationError

from harbor_assets.access.signed import SignedTokens
from harbor_assets.domain.access import TOKEN_PREFIX, AccessFile, Caller, Issuer, Role, TokenEntry, token_hash
from harbor_assets.domain.errors import HarborAssetsError, Problem, Refused, ServiceUnavailable, Unauthenticated
from harbor_assets.domain.validation import problems_of
from harbor_assets.settings.replacing import replace_file

_MAX_BYTES: Final = 4 * 1024 * 1024  # 20,000 tokens; a larger file is none of ours
_OTHERS: Final = stat.S_IRWXO | stat.S_IWGRP  # a group may read it, as the group of a mounted secret does

type _Version = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class _Known:
    version: _Version
    tokens: Mapping[str, TokenEntry] = field(default_factory=dict)
    issuers: Mapping[str, Issuer] = field(default_factory=dict)
    broken: str | None = None


class AccessFileAuthenticator:
    """`Authenticator` over an access file. A changed file counts from the next request on.

    While the file cannot be read nobody is let in: a token that was just taken out must not live on in a memory.
    """

    def __init__(self, path: Path, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Raises `Refused` with what is wrong with the file."""
        self._path, self._clock = path, clock
        self._signed = SignedTokens()
        self._reading = threading.Lock()
        version = _version(path)  # before it is read: what changes meanwhile is read once more
        self._known = _known(read_access(path), version)

    def authenticate(self, token: str) -> Caller:
        """See `Authenticator`."""
        known = self._current()
        if known.broken is not None:
            raise ServiceUnavailable(
                "The service cannot read its access file now; its log says why, its admin mends it"
            )
        if token.startswith(TOKEN_PREFIX):
            entry = known.tokens.get(token_hash(token) or "")
            if entry is None:
                raise Unauthenticated("This token is not known here; ask the service's admin for one")
            caller = entry.caller(self._clock())
            if caller is None:
                raise Unauthenticated(f"The token of '{entry.name}' has expired; ask the service's admin for another")
            return caller
        return self._signed.authenticate(token, known.issuers)

    def _current(self) -> _Known:
        version = _version(self._path)
        if version != self._known.version:
            with self._reading:
                if version != self._known.version:
                    self._known = self._read(version)
        return self._known

    def _read(self, version: _Version) -> _Known:
        import logging

        log = logging.getLogger(__name__)
        try:
            known = _known(read_access(self._path), version)
        except HarborAssetsError as error:
            log.error("nobody is let in until the access file is mended: %s", error)  # noqa: TRY400 said in words
            return _Known(version, broken=str(error))
        log.warning("%s was read again: tokens of %d, %d issuers", self._path, len(known.tokens), len(known.issuers))
        return known


def _known(access: AccessFile, version: _Version) -> _Known:
    return _Known(
        version,
        {entry.sha256: entry for entry in access.tokens},
        {issuer.issuer: issuer for issuer in access.issuers},
    )


def _version(path: Path) -> _Version:
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0, 0)
    return (found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)


def read_access(path: Path) -> AccessFile:
    """The access file. Raises `Refused` with what is wrong; its values are not repeated, one might be a token."""
    try:
        with path.open("rb") as file:
            _check_mode(path, os.fstat(file.fileno()))
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise Refused(f"The access file {path} cannot be read: {error.strerror}; see HARBOR_ASSETS_ACCESS") from error
    if len(data) > _MAX_BYTES:
        raise Refused(f"The access file {path} is above {_MAX_BYTES} bytes; is it one?")
    try:
        content = tomli.loads(data.decode())
        access = AccessFile.model_validate(content)
    except UnicodeDecodeError:
        raise Refused(f"The access file {path} is not UTF-8 text") from None
    except tomli.TOMLDecodeError as error:
        raise Refused(f"The access file {path} is not TOML: {error}") from None
    except ValidationError as error:
        problems = problems_of(error, AccessFile, quiet=AccessFile.model_fields)
        raise Refused(f"The access file {path} cannot be used:", problems) from None
    for issuer in access.issuers:
        if "://" not in issuer.jwks and not Path(issuer.jwks).is_file():
            raise Refused(
                f"The access file {path} cannot be used:",
                [Problem(f"issuers.{issuer.issuer}.jwks", f"there is no file {issuer.jwks}; write its full path")],
            )
    return access


def _check_mode(path: Path, found: os.stat_result) -> None:
    if found.st_mode & _OTHERS:
        raise Refused(
            f"The access file {path} has mode {stat.S_IMODE(found.st_mode):04o}: others could read or change who may "
            f"do what; chmod 600 {path}"
        )
    if found.st_uid not in (0, os.geteuid()):
        raise Refused(f"The access file {path} belongs to another user (uid {found.st_uid}), who could change it")


def add_token(path: Path, name: str, grants: Mapping[str, Role], *, expires: datetime | None = None) -> str:
    """A new token, its hash written to the access file, which is made if it is missing. Returns the token.

    An interrupted write leaves the file as it was. Raises `Refused` for a name that is taken, and as `read_access`.
    """
    access = read_access(path) if path.exists() else AccessFile()
    token = TOKEN_PREFIX + secrets.token_urlsafe(32)
    digest = token_hash(token)
    assert digest is not None
    try:
        entry = TokenEntry(name=name, sha256=digest, workspaces=dict(grants), expires=expires)
    except ValidationError as error:
        raise Refused("The token was not made:", problems_of(error, TokenEntry)) from None
    if any(known.name == name for known in access.tokens):
        raise Refused(f"{path} holds a token named '{name}' already; remove that entry first, or choose another name")
    before = path.read_bytes() if path.exists() else b""
    _replace(path, before + _toml(entry, blank=bool(before.strip())).encode())
    return token


def _toml(entry: TokenEntry, *, blank: bool) -> str:
    grants = ", ".join(f'{_key(workspace)} = "{role}"' for workspace, role in entry.workspaces.items())
    until = f"expires = {entry.expires.isoformat()}\n" if entry.expires else ""
    text = f'[[tokens]]\nname = "{entry.name}"\nsha256 = "{entry.sha256}"\nworkspaces = {{ {grants} }}\n{until}'
    return f"\n{text}" if blank else text


def _key(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else f'"{text}"'  # a name or *: nothing to be escaped


def _replace(path: Path, data: bytes) -> None:
    target = path.resolve()
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o600
    try:
        replace_file(target, data, mode=mode)
    except OSError as error:
        raise Refused(f"{path} cannot be written: {error.strerror}") from error
